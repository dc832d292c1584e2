"""The whole way in one job: raw rows → features → a trained model → evaluation → a saved model that predicts.

This module does without torch, whose import takes seconds: raw text is read meanwhile. What needs it is `TrainRun`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.core.errors import ParameterError
from penstock.core.runtime.long_imports import long_imports
from penstock.core.runtime.threads import thread_pool
from penstock.core.signing import KeyLike, check_signed, verifying
from penstock.data.dataset import as_dataset
from penstock.data.sources import DataLike, are_paths
from penstock.etl import Workflow
from penstock.etl.trust import check_references
from penstock.jobs.compiling import is_compiling
from penstock.jobs.etl import check_outside
from penstock.jobs.events import Listener
from penstock.jobs.holding_out import way_of
from penstock.jobs.preparation import RawRows, ReadyFeatures
from penstock.jobs.run_folder import RunFolder, absolute_paths, plain_copy, with_absolute_folders
from penstock.jobs.settings import TrainSettings
from penstock.jobs.training_result import TrainResult

if TYPE_CHECKING:
    from penstock.jobs.training_run import TrainRun
    from penstock.train import Record


@dataclass
class TrainJob:
    """Trains a click model and saves it.

    Args:
        source: raw rows that `recipe` describes, or features that are ready to train on: paths, a frame, or a Dataset.
        output: the folder of the run (see `RunFolder`).
        recipe: what turns raw rows into features; its `input` section says how to read them. None for features.
        valid: rows to evaluate on, of the same kind; without it `valid_share` of the rows are held out.
        test: rows to test the saved model on at the end; what it reaches there is `TrainResult.test`.
        workflow: with ready features, the fitted workflow that made them, so that the model predicts on raw rows.
        settings: `TrainSettings`, or a mapping of those that differ from the defaults.
        overwrite: replace a run in `output`.
        best_auc: the best that is reachable, where it is known.
        num_examples: held-out rows whose predictions are among the figures.
        progress: draw bars; None draws them on a terminal.
        listener: called with each event as the run goes on (see `penstock.jobs.events`).
        callbacks: of `penstock.train.fit`.
        drafted: the recipe as text with its comments, where it was drafted; the run keeps it as `recipe.yaml`.
        verify: a signing key. The workflow that is given and, when a run is resumed, everything it has saved must be
            signed with it (`penstock sign`); what the run writes from then on is its own and need not be.
        stop: asked at every training record; once it says True, training ends with a checkpoint and
            `TrainingStopped` is raised. `TrainJob.resumed(output)` goes on from there.
        cluster: where all of it runs, in the place of the settings' section of that name: "local" (a Ray of this
            machine's processes), "auto", an address ray://…, or a mapping of `address`, `trainers`, `shards` and
            `replicas`.

    >>> import tempfile
    >>> from penstock.data.synthetic import criteo
    >>> from penstock.etl import presets
    >>> place = Path(tempfile.mkdtemp())
    >>> _ = criteo(place / "day.tsv", 2000, cardinalities=50)
    >>> settings = {"model": {"name": "MLP", "hidden": [16]}, "epochs": 1, "batch_size": 256}
    >>> found = TrainJob(place / "day.tsv", place / "run", presets.load("criteo"), settings=settings).run()
    >>> found.rows, 0 < found.auc < 1, len(found.examples)
    ({'train': 1800, 'valid': 200}, True, 3)
    """

    source: DataLike
    output: str | Path
    recipe: Mapping[str, Any] | None = None
    valid: DataLike | None = None
    workflow: Workflow | str | Path | None = None
    settings: TrainSettings | Mapping[str, Any] = field(default_factory=dict)
    overwrite: bool = False
    best_auc: float | None = None
    num_examples: int = 3
    progress: bool | None = None
    listener: Listener | None = None
    callbacks: Sequence[Callable[[Record], Any]] = ()
    stop: Callable[[], bool] | None = None
    is_resumed: bool = False
    test: DataLike | None = None
    drafted: str | None = None
    verify: KeyLike | None = None
    cluster: str | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.settings, TrainSettings):
            self.settings = TrainSettings.resolve(self.settings)
        if self.cluster is not None:
            self.settings = TrainSettings.resolve(self.settings.to_dict(), {"cluster": self.cluster})
        self.settings = with_absolute_folders(self.settings)
        self._take_valid_file(self.settings)
        for name in ("source", "valid", "test"):
            value = getattr(self, name)
            if value is not None and not are_paths(value):
                setattr(self, name, as_dataset(value))
        self._folder = RunFolder(self.output)

    def _take_valid_file(self, settings: TrainSettings) -> None:
        """`valid_by` may name a file, which is what `valid` is for."""
        if settings.valid_by is None or way_of(settings.valid_by) is not None:
            return
        if self.valid is not None:
            raise ParameterError("valid and valid_by both name rows to hold out; leave one of them out")
        self.valid, self.settings = settings.valid_by, replace(settings, valid_by=None)

    @classmethod
    def resumed(cls, output: str | Path, changes: Mapping[str, Any] | None = None, **hooks: Any) -> Self:
        """The job that began in `output`, to go on from its newest checkpoint, with some settings changed.

        Args:
            output: the folder of a run.
            changes: settings by key.
            hooks: other arguments of the job, such as `listener`. With `verify`, what the run has saved must be signed,
                and its `config.yaml`, which is not, may name only modules that are trusted.

        Returns:
            The job.

        Raises:
            ParameterError: the run read data from memory, or a setting cannot be changed.
            ArtefactError: there is no run in the folder, or it is not as `verify` asks.
        """
        about, config = RunFolder(output).read()
        if hooks.get("verify") is not None:
            check_signed(output, hooks["verify"])
            check_references([about, config], RunFolder(output).config)
        del about["preset"]  # a run keeps the recipe itself
        if about["data"] is None:
            raise ParameterError(f"the run in {output} read data from memory, so it cannot be resumed from its folder")
        settings = TrainSettings.resolve(config).changed(changes or {})
        return cls(about.pop("data"), output, settings=settings, is_resumed=True, **about, **hooks)

    @property
    def configuration(self) -> dict[str, Any]:
        """What the run was asked for, as `config.yaml` holds it."""
        assert isinstance(self.settings, TrainSettings)
        workflow = None if isinstance(self.workflow, Workflow) else absolute_paths(self.workflow)
        about = {
            "data": absolute_paths(self.source),
            "recipe": plain_copy(self.recipe),
            "valid": absolute_paths(self.valid),
            "test": absolute_paths(self.test),
        }
        return {**about, "workflow": workflow[0] if workflow else None, **self.settings.to_dict()}

    # Running.

    def run(self) -> TrainResult:
        """Do it all. What cannot work is refused before anything is written.

        Returns:
            What the run has reached, and where its model is.

        Raises:
            TrainingStopped: it was told to stop, and can go on.
            PenstockError: the data or the settings do not allow it.
        """
        settings = self._checked()
        with ExitStack() as opened:
            if settings.is_on_cluster:
                from penstock.jobs.cluster import Cluster  # brings torch

                cluster = Cluster.of(settings)
                assert cluster is not None
                opened.enter_context(cluster.running())
                settings = cluster.settings_of_etl(settings)
            begin = partial(self._begun, settings, opened)
            if is_compiling():  # to open the data takes as long as torch's import then: it waits for kernels
                with thread_pool(1, "opening") as pool:
                    begun = pool.submit(begin)
                    train_run = _train_run()
                preparation = begun.result()
            else:
                preparation, train_run = begin(), _train_run()
            return train_run(self, self._folder, preparation).run()

    def _begun(self, settings: TrainSettings, opened: ExitStack) -> RawRows | ReadyFeatures:
        """The data, opened, and threads that read it."""
        preparation = opened.enter_context(closing(self._preparation(settings)))
        if self.is_resumed:
            preparation.resume(self._folder)
        preparation.begin_reading()
        return preparation

    def _checked(self) -> TrainSettings:
        assert isinstance(self.settings, TrainSettings)
        if not self.is_resumed:
            self._folder.check_free(self.overwrite)
            if (copies := self.settings.copy_checkpoints_to) is not None:
                from penstock.train.mirror import Mirror  # brings torch

                Mirror(copies).check_free()
        for source in (self.source, self.valid, self.test):
            for part in self._folder.parts:
                if (paths := absolute_paths(source)) and part.is_dir():
                    check_outside(paths, part)
        return self.settings

    def _preparation(self, settings: TrainSettings) -> RawRows | ReadyFeatures:
        if self.recipe is None:
            with verifying(self.verify):
                return ReadyFeatures(self.source, self.valid, self.workflow, settings)
        if self.workflow is not None:
            raise ParameterError("a workflow goes with features that it has made; raw rows go with a recipe")
        return RawRows(self.source, self.valid, self.recipe, settings)


def _train_run() -> type[TrainRun]:
    """What needs torch, whose import takes seconds."""
    with long_imports():
        from penstock.jobs.training_run import TrainRun
    return TrainRun
