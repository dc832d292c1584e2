"""The first stage of a training run: rows to features on disk, with some held out.

torch takes seconds to import, and text can be read meanwhile: what needs torch here is in `check`, which imports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from penstock.core.dtypes import FLOATS
from penstock.core.errors import ColumnNotFoundError, DataError, PenstockError, SchemaError
from penstock.core.schema import Role
from penstock.data import Dataset
from penstock.data.dataset import as_dataset
from penstock.data.files import is_remote
from penstock.data.reading_ahead import ReadingAhead
from penstock.data.side_by_side import ParquetSettings, write_side_by_side
from penstock.data.sources import DataLike, are_paths, paths_of
from penstock.data.spill import spilling
from penstock.engine import resolve
from penstock.etl import Workflow
from penstock.etl.input_section import open_input, settled
from penstock.etl.trust import modules_in
from penstock.jobs.etl import EtlJob
from penstock.jobs.events import DataOpened, DataPrepared, Listener
from penstock.jobs.holding_out import check_way, hold_out, way_of
from penstock.jobs.labels import check_label, check_label_values, check_raw_label
from penstock.jobs.run_folder import RunFolder
from penstock.jobs.settings import ON_DEVICE, TrainSettings

_FEW_ROWS = 100
_LOOK_PARTS = 2  # partitions of features that are looked at for NaN


@dataclass
class Prepared:
    """What training reads, and what was held out."""

    features: DataLike
    valid: DataLike | None
    workflow: Workflow | None
    label: str
    examples: Dataset | None  # held-out rows, to show predictions of
    is_raw: bool  # whether they are as a service would send them


class RawRows:
    """Raw rows and the recipe that turns them into features.

    Whoever lets reading begin closes it: text that was read is in memory or in scratch until then.
    """

    def __init__(
        self, source: DataLike, valid: DataLike | None, recipe: Mapping[str, Any], settings: TrainSettings
    ) -> None:
        self.recipe, self.settings = recipe, settings
        engine = settings.etl.get("engine")
        self.engine = None if engine is None else resolve(engine)
        self.data = self._opened(source)
        self.unfitted = Workflow.from_recipe(recipe).fit_schema(self.data.schema)
        self.inputs, self.learns = self.unfitted.input_schema.names, self.unfitted.learns
        self._settle(self.inputs)
        check_way(settings.valid_by, self.data)
        self.valid = None if valid is None else self._opened(valid)
        self.label = check_label(self.unfitted.output_schema, "what the recipe makes")
        check_raw_label(self.data, self.unfitted, self.label)
        _check_columns(self.inputs, self.valid)
        self.has_work = True
        self._text = ExitStack()
        self._rows: Dataset | None = None  # with their text parsed once, while that lasts
        self._ahead: ReadingAhead | None = None

    def check(self) -> None:
        """Refuse what cannot be trained on them, before the work."""
        from penstock.jobs import building  # brings torch

        building.check(self.settings, self.unfitted.output_schema, self.unfitted, is_fitted=False)
        if self.settings.tables in ON_DEVICE:
            self._check_sizes()

    def check_test(self, source: DataLike) -> None:
        """Refuse rows to test on that cannot be read, before the work."""
        data = self._opened(source)
        _check_columns(self.inputs, data)
        data.head(_FEW_ROWS)  # what is in the columns, too

    def _opened(self, source: DataLike) -> Dataset:
        options = {name: value for name in ("part_size", "on_error") if (value := self.settings.etl.get(name))}
        return open_input(source, self.recipe.get("input"), **options)

    def _settle(self, names: list[str]) -> None:
        """From now on text is read with the dtypes that were found in the rows to train on."""
        section = settled(self.recipe.get("input"), self.data, names)
        if section is not None:
            self.recipe = {**self.recipe, "input": section}

    def _check_sizes(self) -> None:
        """Whether every category will have a cardinality: a workflow that has seen a few rows can tell."""
        few = Dataset(self.data.head(_FEW_ROWS), schema=self.data.schema)
        try:
            fitted = Workflow.from_recipe(self.recipe).fit(few)
        except PenstockError:  # too few for an operator, say; the whole data will tell
            return
        from penstock.jobs.embeddings import check_embeddings  # brings torch

        check_embeddings(self.settings, fitted.output_schema, is_fitted=True)

    def resume(self, folder: RunFolder) -> None:
        """Take what an earlier run has made; the workflow is written last."""
        self.has_work = not folder.workflow.is_dir()

    def begin_reading(self) -> None:
        """Let threads parse text from now on, what rows are split by along with what the recipe needs."""
        if self._rows is not None or not (self.has_work and self.learns):
            return
        way, engine = way_of(self.settings.valid_by), resolve(self.engine)
        columns = [*self.inputs, *([] if way is None else [way[1]])]
        self._rows = self._text.enter_context(spilling(self.data, columns, engine))
        self._ahead = ReadingAhead(self._rows, engine)
        self._text.callback(self._ahead.stop)
        self._ahead.begin()

    def close(self) -> None:
        """Let go of the text that was read, and read no more of it."""
        self._text.close()
        self._rows = self._ahead = None

    def run(self, folder: RunFolder, listener: Listener, progress: bool | None) -> Prepared:
        listener(DataOpened(self.data))
        with self._parsed(progress) as data:
            train, valid = split(data, self.valid, self.settings)
            workflow = self._features(folder, train, valid, progress)
        features = Dataset(folder.features)
        check_rows(features, self.label, self.data)
        listener(DataPrepared(features, workflow))
        held_out = None if valid is None else folder.valid
        return Prepared(folder.features, held_out, workflow, self.label, valid, is_raw=True)

    @contextmanager
    def _parsed(self, progress: bool | None) -> Iterator[Dataset]:
        """The rows, text parsed once, for as long as the block lasts."""
        try:
            self.begin_reading()
            if self._ahead is not None and self._are_counted():
                self._ahead.wait(progress)
            elif self._ahead is not None:
                self._ahead.stop()  # who needs the rest reads it
            yield self.data if self._rows is None else self._rows
        finally:
            self.close()

    def _are_counted(self) -> bool:
        """Whether it takes the number of rows to hold some out."""
        is_share = self.valid is None and self.settings.valid_share > 0
        return is_share and way_of(self.settings.valid_by) is None

    def _features(self, folder: RunFolder, train: Dataset, valid: Dataset | None, progress: bool | None) -> Workflow:
        if not self.has_work:
            return Workflow.load(folder.workflow, engine=self.engine, trust=modules_in(self.recipe))
        held_out_output = None if valid is None else str(folder.valid)
        job = EtlJob(
            train, str(folder.features), recipe=self.recipe, workflow=str(folder.workflow), engine=self.engine,
            overwrite=True, progress=progress, held_out=valid, held_out_output=held_out_output,
        )  # fmt: skip
        return job.run().fitted


class ReadyFeatures:
    """Features that are there already, such as `penstock etl` writes."""

    def __init__(self, source: DataLike, valid: DataLike | None, workflow: Any, settings: TrainSettings) -> None:
        self.settings = settings
        self.source, self.valid_source = source, valid
        self.data = _features_at(self.source)
        self.valid = None if valid is None else _features_at(valid)
        self.label = check_label(self.data.schema, "the data")
        self.workflow = _workflow(workflow, self.source)
        _check_columns([c.name for c in self.data.schema if c.role is not Role.OTHER], self.valid)
        check_way(settings.valid_by, self.data)
        self.has_work = valid is None and settings.valid_share > 0

    def check(self) -> None:
        """Refuse what cannot be trained on them, before the work."""
        from penstock.jobs import building  # brings torch

        building.check(self.settings, self.data.schema, self.workflow)

    def begin_reading(self) -> None:
        """Nothing is read before it is needed."""

    def close(self) -> None:
        """Nothing is held."""

    def check_test(self, source: DataLike) -> None:
        """Refuse rows to test on that cannot be read, before the work."""
        _check_columns([c.name for c in self.data.schema if c.role is not Role.OTHER], _features_at(source))

    def resume(self, folder: RunFolder) -> None:
        """Take what an earlier run has made; the rows held out are written last."""
        self.has_work = self.has_work and not folder.valid.is_dir()

    def run(self, folder: RunFolder, listener: Listener, progress: bool | None) -> Prepared:
        is_split = self.valid is None and self.settings.valid_share > 0
        if self.has_work:
            train, held_out = split(self.data, None, self.settings)
            assert held_out is not None
            outputs = [(train, folder.features), (held_out, folder.valid)]
            write_side_by_side(outputs, ParquetSettings(overwrite=True), progress=progress)
        features, valid = (folder.features, folder.valid) if is_split else (self.source, self.valid_source)
        opened = as_dataset(features)
        check_rows(opened, self.label)
        listener(DataPrepared(opened, self.workflow))
        examples = None if valid is None else as_dataset(valid)
        return Prepared(features, valid, self.workflow, self.label, examples, is_raw=False)


def split(data: Dataset, valid: Dataset | None, settings: TrainSettings) -> tuple[Dataset, Dataset | None]:
    """Rows to train on and rows to hold out."""
    if valid is not None or not settings.valid_share:
        return data, valid
    return hold_out(data, settings.valid_share, settings.valid_by, settings.seed)


def check_rows(features: DataLike, label: str, raw: Dataset | None = None) -> None:
    data = as_dataset(features)
    if not data.num_rows:
        raise DataError("there are no rows to train on")
    check_label_values(data, label, raw)
    _check_numbers(data)


def _check_numbers(data: Dataset) -> None:
    """NaN or infinity in a number makes NaN of everything; the first rows tell where it is common."""
    names = [c.name for c in data.schema.select(roles=Role.CONTINUOUS) if c.dtype in FLOATS and not c.is_list]
    for part in data.partitions[:_LOOK_PARTS] if names else ():
        frame = part.read(names)
        missing = frame.select(pl.col(name).is_nan().sum() for name in names).row(0)
        endless = frame.select(pl.col(name).is_infinite().sum() for name in names).row(0)
        for name, nans, infinite in zip(names, missing, endless, strict=True):
            if nans:
                raise DataError(
                    f"the feature {name!r} is NaN in {nans:,} of the first rows; fill it in the recipe (FillMissing "
                    f"or FillMedian before other operators), or leave the column out"
                )
            if infinite:
                raise DataError(
                    f"the feature {name!r} is infinite in {infinite:,} of the first rows; bound it in the recipe "
                    f"(Clip: {{min_value: …, max_value: …}} before other operators), or leave the column out"
                )


def _features_at(source: DataLike) -> Dataset:
    """Ready features, or a hint that these may be raw rows."""
    hint = (
        "raw rows need a recipe (recipe=…; penstock.jobs.draft_recipe(data, label).recipe makes one); features need a "
        "schema with roles, as penstock etl writes"
    )
    data = as_dataset(source)
    if all(column.role is Role.OTHER for column in data.schema):
        names = ", ".join(data.schema.names[:40])
        raise SchemaError(f"{data.place} says of no column what it is for; {hint}. Columns: {names}")
    return data


def _check_columns(names: list[str], valid: Dataset | None) -> None:
    """Found out now, and not when the first epoch is over."""
    if valid is None:
        return
    for name in names:
        if name not in valid.schema:
            raise ColumnNotFoundError(name, valid.schema.names, f"{valid.place} (rows to evaluate on)")


def _workflow(given: Any, source: DataLike) -> Workflow | None:
    """The workflow that made the features: the one given, or the one that `penstock etl` wrote beside them."""
    place = paths_of(source) if are_paths(source) else None
    if given is None and isinstance(place, str) and not is_remote(place):
        beside = Path(f"{place.rstrip('/')}-workflow")
        given = beside if beside.is_dir() else None
    return given if given is None or isinstance(given, Workflow) else Workflow.load(given)
