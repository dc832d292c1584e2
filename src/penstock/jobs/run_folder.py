"""The folder of a training run: what lies in it, who may write to it, how it was configured."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.core.artefact import replacing
from penstock.core.errors import ArtefactError, OutputExistsError
from penstock.core.yaml_files import read_yaml, write_yaml
from penstock.data.files import is_remote, local_path
from penstock.data.sources import are_paths, paths_of
from penstock.jobs.settings import MARK, TrainSettings, split_config

VERSION = 1
_HEAD = "# What this run was asked for, every setting filled in. Usable as it is: penstock train --config THIS …\n"


class RunFolder:
    """Names the parts of a run.

    `features`, `valid` and `workflow` are what the rows became; `checkpoints` is the state that a stopped run goes on
    from, `second` that of a second training while it goes on; `model` predicts; `report.json` and `report.html` tell
    what happened; `explain.json` and `explain.html`, where they are, which columns matter; `config.yaml` is the
    configuration.

    Args:
        path: of the folder; it need not be there.

    >>> RunFolder("run").model.as_posix()
    'run/model'
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.features, self.valid, self.workflow = (self.path / n for n in ("features", "valid", "workflow"))
        self.checkpoints, self.model = self.path / "checkpoints", self.path / "model"
        self.second = self.path / "second"
        self.recipe = self.path / "recipe.yaml"
        self.config, self.report = self.path / "config.yaml", self.path / "report.html"
        self.explanation = self.path / "explain.html"

    @property
    def parts(self) -> list[Path]:
        folders = [self.features, self.valid, self.workflow, self.checkpoints, self.model, self.second]
        pages = [page.with_suffix(suffix) for page in (self.report, self.explanation) for suffix in (".html", ".json")]
        return [*folders, self.config, self.recipe, *pages]

    def check_free(self, overwrite: bool) -> None:
        """Refuse a folder with a run in it unless it may be replaced, and foreign files in the places of a run's.

        Args:
            overwrite: whether a run may be replaced.

        Raises:
            OutputExistsError: there is one, or something else.
            ArtefactError: the folder cannot be written.
        """
        if self.path.exists() and not self.path.is_dir():
            raise OutputExistsError(f"{self.path} is a file; the output of a run is a folder")
        places = (self.path.absolute(), *self.path.absolute().parents)
        nearest = next(place for place in places if place.exists())
        if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
            reason = "may not be written" if nearest.is_dir() else "is a file"
            raise ArtefactError(f"cannot write to {self.path}: {nearest} {reason}; choose a writable folder")
        taken = [part for part in self.parts if part.exists()]
        if not taken:
            return
        if not self.is_run():
            raise OutputExistsError(
                f"{taken[0]} is in the way, and {self.path} is not the folder of a training run (it has no "
                f"{self.config.name} of one); choose another output"
            )
        if not overwrite:
            raise OutputExistsError(
                f"{self.path} holds a training run already; pass overwrite=True to replace it, TrainJob.resumed(…) to "
                f"go on with it, or choose another output"
            )

    def begin(self, config: Mapping[str, Any], drafted: str | None = None) -> None:
        """Clear what an earlier run left and write the configuration.

        The earlier model stays until the new one takes its place in one step, so that what serves it is not disturbed.

        Args:
            config: settings, and where the data is.
            drafted: the recipe as text, where it was drafted.
        """
        for part in self.parts:
            if part.is_dir() and part != self.model:
                shutil.rmtree(part)
            elif part.is_file():
                part.unlink()
        self.write(config)
        if drafted is not None:
            with replacing(self.recipe) as unfinished:
                unfinished.write_text(drafted, encoding="utf-8")

    def write(self, config: Mapping[str, Any]) -> None:
        """Write the configuration.

        Args:
            config: settings, and where the data is.

        Raises:
            ArtefactError: the folder cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArtefactError(f"cannot write to {self.path}: {error.strerror}; choose a writable folder") from error
        with replacing(self.config) as partial:
            partial.write_text(_HEAD + write_yaml({MARK: VERSION, **config}))

    def is_run(self) -> bool:
        """Whether a run began here.

        Returns:
            Whether.
        """
        return self.config.is_file() and MARK.encode() in self.config.read_bytes()

    def read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the run began with: about its data, and its settings.

        Returns:
            Two mappings.

        Raises:
            ArtefactError: there is no run, or its configuration cannot be read.
        """
        if not self.is_run():
            raise ArtefactError(f"{self.path} is not the folder of a training run: it has no {self.config.name} of one")
        if read_yaml(self.config).get(MARK) != VERSION:
            raise ArtefactError(f"{self.config} was written by another version of Penstock; start a new run")
        return split_config(self.config)


def absolute_paths(source: Any) -> list[str] | None:
    """Where `source` lies, in a form that does not depend on the present folder; None for data in memory."""
    if not are_paths(source):
        return None
    given = paths_of(source)
    return [p if is_remote(p) else str(Path(p).absolute()) for p in ([given] if isinstance(given, str) else given)]


def trained_on(directory: str | Path, source: Any) -> list[str]:
    """Those of some files that a model was trained on, as far as the run that it lies in tells.

    Args:
        directory: a saved model, or the folder of a run.
        source: files to score.

    Returns:
        Their absolute paths; none where there is no run.
    """
    folder = next((own for own in map(RunFolder, (directory, Path(directory).parent)) if own.is_run()), None)
    if folder is None:
        return []
    learned = folder.read()[0].get("data") or []
    return [path for path in absolute_paths(source) or [] if path in learned]


def plain_copy(value: Any) -> Any:
    """Mappings and lists as dicts and lists of their own."""
    if isinstance(value, Mapping):
        return {key: plain_copy(item) for key, item in value.items()}
    return [plain_copy(item) for item in value] if isinstance(value, (list, tuple)) else value


def with_absolute_folders(settings: TrainSettings) -> TrainSettings:
    """The settings with folders that trainers write to by absolute paths: those elsewhere have other working folders.

    Args:
        settings: of a run.

    Returns:
        The same, but for that.
    """

    def absolute(path: str | None) -> str | None:
        return path if path is None or is_remote(path) else str(Path(local_path(path)).absolute())

    return replace(settings, feed=absolute(settings.feed), copy_checkpoints_to=absolute(settings.copy_checkpoints_to))
