"""A whole ETL run: open, fit, transform, write the features and the fitted workflow. What `penstock etl` calls."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.core.artefact import check_free, staged_together
from penstock.core.errors import ParameterError
from penstock.core.runtime.lanes import Lane
from penstock.core.schema import Schema
from penstock.data.bad_lines import BadLines
from penstock.data.dataset import Dataset
from penstock.data.files import is_remote, local_path
from penstock.data.finding import find
from penstock.data.side_by_side import ParquetSettings, write_side_by_side
from penstock.data.sources import DataLike, Paths, are_paths
from penstock.data.spill import spilling
from penstock.data.writer import WriteReport
from penstock.engine import resolve
from penstock.engine.base import EngineLike
from penstock.etl.input_section import open_input, settled
from penstock.etl.workflow import Workflow
from penstock.jobs.assumptions import assumed_line
from penstock.jobs.workflow_profile import profile_schema


@dataclass(frozen=True)
class EtlResult:
    """What an ETL run produced.

    Args:
        output: where the features are.
        workflow: where the fitted workflow is.
        num_rows: written.
        num_files: written.
        seconds: that it took.
        bad_lines: malformed lines of text.
        fitted: the workflow.
        assumed: how text was read where nobody said, as one line.
    """

    output: str
    workflow: str | None
    num_rows: int
    num_files: int
    seconds: float
    bad_lines: BadLines
    fitted: Workflow = field(repr=False, compare=False)
    assumed: str | None = None

    @property
    def schema(self) -> Schema:
        """Of the features."""
        return self.fitted.output_schema

    @property
    def rows_per_second(self) -> float:
        """Rows written in a second of the whole run."""
        return self.num_rows / max(self.seconds, 1e-9)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data; `columns` describes the features.

        Returns:
            Figures by name.
        """
        return {
            "output": self.output,
            "workflow": self.workflow,
            "rows": self.num_rows,
            "files": self.num_files,
            "seconds": round(self.seconds, 3),
            "rows_per_second": self.rows_per_second,
            "bad_lines": self.bad_lines.count,
            "first_bad_line": str(self.bad_lines.first) if self.bad_lines.count else None,
            "columns": profile_schema(self.schema),
        }


@dataclass(frozen=True)
class EtlJob:
    """Fits `recipe` on `inputs`, or takes the fitted workflow at `apply`, and writes the transformed rows to `output`.

    `inputs` are paths, a frame, or a data set that is open already. The fitted workflow goes to `workflow`, beside the
    output by default (`OUTPUT-workflow`). `held_out` are rows that nothing is fitted on; they are transformed too and
    go to `held_out_output`. All of it appears together when everything is written, the workflow last: a run that fails
    or is stopped leaves none of it.

    Args:
        inputs: raw rows.
        output: where features go.
        recipe: to fit.
        apply: or a fitted workflow to take.
        workflow: where the fitted one goes.
        engine: where the work runs.
        part_size: bytes a partition aims at; chosen by the size of the data when left out.
        on_error: what a malformed text line does.
        shuffle: how rows are permuted.
        seed: of the permutation.
        row_group_size: rows of a row group.
        num_files: how many files.
        overwrite: replace what is there.
        progress: draw bars; None draws them on a terminal.
        held_out: rows that nothing is fitted on.
        held_out_output: where these go.

    >>> import tempfile
    >>> from penstock.data.synthetic import criteo
    >>> from penstock.etl import presets
    >>> place = Path(tempfile.mkdtemp())
    >>> _ = criteo(place / "day.tsv", 1000, cardinalities=50)
    >>> result = EtlJob([str(place / "day.tsv")], str(place / "features"), recipe=presets.load("criteo")).run()
    >>> result.num_rows, result.schema["C1"].role, Path(result.workflow).name
    (1000, <Role.CATEGORICAL: 'categorical'>, 'features-workflow')
    """

    inputs: DataLike
    output: str
    recipe: Mapping[str, Any] | None = None
    apply: str | None = None
    workflow: str | None = None
    engine: EngineLike = None
    part_size: int | str | None = None
    on_error: str = "raise"
    shuffle: str | None = None
    seed: int = 0
    row_group_size: int = 250_000
    num_files: int | None = None
    overwrite: bool = False
    progress: bool | None = None
    held_out: DataLike | None = None
    held_out_output: str | None = None

    def run(self) -> EtlResult:
        """Do it all; nothing is read before the output is known to be free.

        Returns:
            What was written, and the fitted workflow.

        Raises:
            ParameterError: the settings contradict one another, or an input lies inside the output.
            OutputExistsError: something is in the way.
        """
        place = self._workflow_place()
        self._check(place)
        started = time.perf_counter()
        fitted = None if self.apply is None else Workflow.load(self.apply, engine=self.engine)
        workflow = fitted or Workflow.from_recipe(self.recipe or {}, engine=self.engine)
        data = self._opened(self.inputs, workflow)
        if fitted is not None or not workflow.learns:  # the text is read once in any case
            written = self._fit_and_write(workflow, data, place, fitted is None)
        else:
            inputs = workflow.fit_schema(data.schema).input_schema.names
            with spilling(data, inputs, resolve(self.engine)) as parsed:
                written = self._fit_and_write(workflow, parsed, place, True)
        return self._result(workflow, data, place, written, time.perf_counter() - started)

    def _fit_and_write(self, workflow: Workflow, data: Dataset, place: str | None, fits: bool) -> WriteReport:
        rows = workflow.fit_transform(data, progress=self.progress) if fits else workflow.transform(data)
        if fits:
            workflow.input = settled(workflow.input, data, workflow.input_schema.names)
        local = [p for p in (self.output, self.held_out_output, place) if p is not None and not is_remote(p)]
        with staged_together([Path(local_path(p)) for p in local], self.overwrite) as folders:
            staging: dict[str, Any] = dict(zip(local, folders, strict=True))
            outputs = [(rows, staging.get(self.output, self.output))]
            if self.held_out is not None and self.held_out_output is not None:
                held_out = workflow.transform(self._opened(self.held_out, workflow))
                outputs.append((held_out, staging.get(self.held_out_output, self.held_out_output)))
            with Lane("workflow") as beside:  # counts of many values take a thread as long as rows take all of them
                if place is not None:
                    beside.hand(workflow.save, staging[place])
                return self._write(outputs)[0]

    def _result(
        self, workflow: Workflow, data: Dataset, place: str | None, written: WriteReport, seconds: float
    ) -> EtlResult:
        bad = max(workflow.bad_lines, written.bad_lines, key=lambda found: found.count)
        assumed = assumed_line(data)
        return EtlResult(self.output, place, written.num_rows, len(written.files), seconds, bad, workflow, assumed)

    def _check(self, workflow: str | None) -> None:
        """Refuse before any work what would be refused at the end."""
        if self.recipe is None and self.apply is None:
            raise ParameterError("an ETL job needs a recipe to fit, or a fitted workflow to apply")
        if (self.held_out is None) != (self.held_out_output is None):
            raise ParameterError("held_out and held_out_output go together: rows to hold out, and where they go")
        for target in (self.output, self.held_out_output, workflow):
            if target is not None and not is_remote(target):
                check_free(Path(local_path(target)), self.overwrite)
        if not is_remote(self.output) and are_paths(self.inputs):
            check_outside(self.inputs, local_path(self.output))

    def _opened(self, source: DataLike, workflow: Workflow) -> Dataset:
        section = workflow.input if self.recipe is None else self.recipe.get("input")
        options: dict[str, Any] = {"part_size": self.part_size, "on_error": self.on_error}
        return open_input(source, section, may_lack=self.apply is not None, **options)

    def _write(self, outputs: Sequence[tuple[Dataset, str | Path]]) -> list[WriteReport]:
        settings = ParquetSettings(
            shuffle=self.shuffle, seed=self.seed, row_group_size=self.row_group_size, num_files=self.num_files,
            overwrite=self.overwrite,
        )  # fmt: skip
        return write_side_by_side(outputs, settings, self.engine, self.progress)

    def _workflow_place(self) -> str | None:
        if self.apply is not None:
            if self.workflow is not None:
                raise ParameterError("a workflow that is applied is not saved again; leave out workflow or apply")
            return None
        if self.workflow is not None:
            return self.workflow
        if is_remote(self.output):
            raise ParameterError(f"{self.output} is remote; say where the fitted workflow goes, a local folder")
        return local_path(self.output).rstrip("/") + "-workflow"


def check_outside(inputs: Paths, output: str | Path) -> None:
    """Refuse an output folder that holds an input: writing it would take away what is read."""
    place = Path(output).resolve()
    for file in find(inputs):
        if not is_remote(file) and Path(file).resolve().is_relative_to(place):
            raise ParameterError(f"the input {file} lies inside the output {place}; choose another output")
