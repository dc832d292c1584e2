"""Running a plan over a data set: passes that fit, boundaries where rows move, and the lazy result.

Tasks are small picklable callables, so the same code runs on threads, Dask and Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from penstock.core.progress import bar
from penstock.core.runtime.forks import require_polars
from penstock.core.schema import Schema
from penstock.data.bad_lines import BadLines, collecting
from penstock.data.dataset import Dataset
from penstock.data.exchange import by_key, exchange
from penstock.data.naming import naming
from penstock.data.partition import (
    FramePartition,
    MappedPartition,
    Partition,
    SlicedPartition,
    WrappedPartition,
    in_order,
)
from penstock.data.sharing import is_wanted_whole, made_of_all
from penstock.engine import Engine
from penstock.etl.operator import ROW_NUMBER
from penstock.etl.plan import Environment, Plan


@dataclass(frozen=True)
class RowNumberedPartition(WrappedPartition):
    """A raw partition with its row numbers, for plans that need them."""

    source: Partition
    first: int
    keeps_rows: bool = True

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        wanted = None if columns is None else [c for c in columns if c != ROW_NUMBER]
        frame = self.source.read(wanted)
        numbers = pl.Series(ROW_NUMBER, np.arange(self.first, self.first + frame.height, dtype=np.int64))
        return frame.with_columns(numbers)


@dataclass(frozen=True)
class ComputedPartition(WrappedPartition):
    """What a stage makes of a partition, computed when it is read.

    Where the `plan` treats rows alike, several that are parts of the same rows are made together.
    """

    source: Partition
    compute: Callable[[Partition], pl.DataFrame]
    keeps_rows: bool
    plan: Plan | None = field(default=None, repr=False, compare=False)  # of raw rows

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        require_polars("a workflow's transform")
        with naming(self.source):
            if self.plan is not None and is_wanted_whole(self.source) and self.plan.treats_rows_alike:
                frame = made_of_all(self.source, id(self.plan), self.compute)
            else:
                frame = self.compute(self.source)
        return frame if columns is None else in_order(frame, columns)


@dataclass
class Stage:
    """The data as it enters a stage: raw columns in stage 0, node columns (`"3:price"`) in later ones."""

    parts: Sequence[Partition]
    carried: tuple[int, ...] | None = None  # nodes whose columns the partitions hold; None: raw data


def single_partition(frame: pl.DataFrame) -> list[Partition]:
    """A frame as the single partition of a data set, however large: it is in memory already."""
    return [FramePartition(frame)]


def first_stage(plan: Plan, dataset: Dataset) -> Stage:
    parts: Sequence[Partition] = dataset.partitions
    if plan.needs_rows:
        starts = np.concatenate([[0], np.cumsum(dataset._row_counts())])
        parts = [RowNumberedPartition(part, int(first)) for part, first in zip(parts, starts, strict=False)]
    return Stage(parts)


def read_stage(plan: Plan, stage: Stage, part: Partition) -> tuple[Environment, pl.Series | None]:
    """Read a partition of a stage into an environment and its row numbers."""
    if stage.carried is None:
        names = [*plan.inputs, ROW_NUMBER] if plan.needs_rows else plan.inputs
        frame = part.read(names)
        rows = frame[ROW_NUMBER] if plan.needs_rows else None
        return plan.start(frame), rows
    frame = part.read()
    return _unpacked(frame, plan, stage.carried), frame[ROW_NUMBER]


def _unpacked(frame: pl.DataFrame, plan: Plan, carried: Sequence[int]) -> Environment:
    environment = {}
    for i in carried:
        names = plan.schemas[i].names
        environment[i] = frame.select(pl.col(f"{i}:{name}").alias(name) for name in names)
    return environment


def _packed(environment: Environment, carried: Sequence[int], rows: pl.Series) -> pl.DataFrame:
    columns = [s.alias(f"{i}:{s.name}") for i in carried for s in environment[i]]
    return pl.DataFrame([*columns, rows])


@dataclass(frozen=True)
class _Fit:
    """Folds one partition into the states of the operators of a pass."""

    plan: Plan
    stage: Stage
    numbers: tuple[int, ...]

    def __call__(self, state: dict[Any, Any] | None, part: Partition) -> dict[Any, Any]:
        with naming(part):
            return self._folded({"bad": BadLines()} if state is None else state, part)

    def _folded(self, state: dict[Any, Any], part: Partition) -> dict[Any, Any]:
        with collecting() as bad:
            environment, rows = read_stage(self.plan, self.stage, part)
        state["bad"].add(bad)
        quickly = {i: found for i in self.numbers if (found := self.plan.learned(i, environment)) is not None}
        others = [i for i in self.numbers if i not in quickly]
        parents = [p for i in others for p in (*self.plan.parents[i], *self.plan.dependencies[i])]
        rows = self.plan.run(environment, parents, rows)
        for i in self.numbers:
            op = self.plan.nodes[i].fitted_op
            assert op is not None
            if i in quickly:
                state[i] = quickly[i] if i not in state else op.merge(state[i], quickly[i])
                continue
            frame = self.plan.inputs_of(i, environment)
            if op.needs_row_numbers and rows is not None:
                frame = frame.with_columns(rows)
            state[i] = op.accumulate(state.get(i), frame, self.plan.columns[i])
        return state


@dataclass(frozen=True)
class _Merge:
    plan: Plan

    def __call__(self, left: dict[Any, Any], right: dict[Any, Any]) -> dict[Any, Any]:
        return self.merge_all([dict(left), dict(right)])

    def merge_all(self, states: Sequence[dict[Any, Any]]) -> dict[Any, Any]:
        """The states of all threads, operator by operator; they are empty then."""
        merged: dict[Any, Any] = {"bad": BadLines()}
        for state in states:
            merged["bad"].add(state.pop("bad"))
        for i in list(states[0]):
            op = self.plan.nodes[i].fitted_op
            assert op is not None
            merged[i] = op.merge_all([state.pop(i) for state in states])
        return merged


def fit(plan: Plan, dataset: Dataset, engine: Engine, update: bool, progress: bool | None) -> BadLines:
    """Fit every operator of the plan, in as few passes as their order allows."""
    found = BadLines()
    stage = first_stage(plan, dataset)
    num_stages = 1 + max(plan.stages)
    passes = sum(len(plan.fits(s)) for s in range(num_stages))
    done = 0
    for number in range(num_stages):
        for numbers in plan.fits(number):
            done += 1
            for i in numbers:
                plan.check_fittable(i)
            label = f"fit {done}/{passes}" if passes > 1 else "fit"
            states = _one_pass(plan, stage, numbers, engine, label, progress)
            if not found.count:  # later passes read the same bad lines again
                found = states["bad"]
            for i in numbers:
                op = plan.nodes[i].fitted_op
                assert op is not None
                state = states[i] if not (update and op.is_fitted) else op.merge(op.state_, states[i])
                op.finish(state, plan.columns[i])
            plan.refresh()
        if number + 1 < num_stages and any(plan.fits(s) for s in range(number + 1, num_stages)):
            stage = cross(plan, stage, number, engine)
    plan.refresh()
    return found


def _one_pass(
    plan: Plan, stage: Stage, numbers: list[int], engine: Engine, label: str, progress: bool | None
) -> dict[Any, Any]:
    parts = list(stage.parts)
    with bar(label, sum(p.estimated_rows for p in parts), show=progress) as drawn:
        state = engine.reduce(
            _Fit(plan, _shell(stage), tuple(numbers)),
            _Merge(plan),
            parts,
            lambda i: drawn.advance(parts[i].estimated_rows),
        )
    assert state is not None
    return state


def _shell(stage: Stage) -> Stage:
    """The stage without its partitions: tasks carry the description only."""
    return Stage((), stage.carried)


@dataclass(frozen=True)
class _Leave:
    """Evaluates a partition up to the columns that the next stage needs."""

    plan: Plan
    stage: Stage
    carried: tuple[int, ...]
    training: bool

    def __call__(self, part: Partition) -> pl.DataFrame:
        environment, rows = read_stage(self.plan, self.stage, part)
        rows = self.plan.run(environment, self.carried, rows, self.training)
        assert rows is not None
        return _packed(environment, self.carried, rows)


@dataclass(frozen=True)
class _Enter:
    """Runs the exchanging operator on one bucket, where all rows of a key have met, in the order of the data."""

    plan: Plan
    node: int
    carried: tuple[int, ...]
    kept: tuple[int, ...]
    bucket: int

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        environment = _unpacked(frame, self.plan, self.carried)
        rows: pl.Series | None = frame[ROW_NUMBER]
        rows = self.plan.run(environment, [self.node], rows)
        if rows is None:  # new rows: number them by bucket
            height = environment[self.node].height
            rows = pl.Series(ROW_NUMBER, (self.bucket << 40) + np.arange(height, dtype=np.int64))
        return _packed(environment, self.kept, rows)


def cross(plan: Plan, stage: Stage, number: int, engine: Engine, training: bool = False) -> Stage:
    """Move the rows as the exchanging operator that begins the next stage asks, and run it."""
    node = next(i for i in plan.exchanges if plan.stages[i] == number + 1)
    op = plan.nodes[node].operator
    assert op is not None
    keys = plan.exchange_keys(node) or ()
    later = [i for i in range(len(plan.nodes)) if plan.stages[i] > number and i != node]
    used_later = {p for i in later for p in (*plan.parents[i], *plan.dependencies[i])} | {plan.output}
    inputs = (*plan.parents[node], *plan.dependencies[node])
    earlier = () if op.changes_rows else (i for i in used_later if plan.stages[i] <= number)
    carried = tuple(sorted({*inputs, *earlier}))
    kept = tuple(sorted({node} | {i for i in used_later if i in carried}))
    owner = {name: p for p in reversed(inputs) for name in plan.schemas[p].names}  # parents before dependencies
    key_columns = tuple(f"{owner[key]}:{key}" for key in keys)
    leave = _Leave(plan, _shell(stage), carried, training)
    parts = [ComputedPartition(part, leave, False) for part in stage.parts]
    count = len(parts)
    buckets: Sequence[Partition] = parts
    if count > 1:
        buckets = exchange(parts, _ByKey(key_columns, count), count, engine)
        if (total := sum(bucket.count() for bucket in buckets)) <= op.gathered_rows:
            buckets = [SlicedPartition(tuple(buckets), 0, total)]
    entered: list[Partition] = [
        MappedPartition(bucket, _Enter(plan, node, carried, kept, i), None, False) for i, bucket in enumerate(buckets)
    ]
    if not op.changes_rows and count > 1:
        # Back into the order of the data: each row to its range of row numbers, then sorted.
        total = sum(p.num_rows or 0 for p in buckets)
        ranges = exchange(entered, _ByRow(count, total), count, engine)
        entered = [MappedPartition(part, _sorted_rows, None, True) for part in ranges]
    return Stage(entered, kept)


@dataclass(frozen=True)
class _ByKey:
    keys: tuple[str, ...]
    num_buckets: int

    def __call__(self, index: int, frame: pl.DataFrame) -> np.ndarray:
        return by_key(index, frame, self.keys, self.num_buckets)


@dataclass(frozen=True)
class _ByRow:
    num_buckets: int
    num_rows: int

    def __call__(self, index: int, frame: pl.DataFrame) -> np.ndarray:
        rows = frame[ROW_NUMBER].to_numpy()
        bucket: np.ndarray = np.minimum(rows * self.num_buckets // max(1, self.num_rows), self.num_buckets - 1)
        return bucket


def _sorted_rows(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sort(ROW_NUMBER)


@dataclass(frozen=True)
class _Transform:
    """The output columns of one partition of the last stage."""

    plan: Plan
    stage: Stage
    training: bool

    def __call__(self, part: Partition) -> pl.DataFrame:
        environment, rows = read_stage(self.plan, self.stage, part)
        self.plan.run(environment, [self.plan.output], rows, self.training)
        return environment[self.plan.output]


def transform(plan: Plan, dataset: Dataset, engine: Engine, training: bool, schema: Schema) -> Dataset:
    """The transformed data set: lazy, but for operators that move rows, which spill to scratch now."""
    stage = first_stage(plan, dataset)
    last = plan.stages[plan.output]
    for number in range(last):
        stage = cross(plan, stage, number, engine, training)
    task = _Transform(plan, _shell(stage), training)
    whole = plan if stage.carried is None else None
    parts = [ComputedPartition(part, task, plan.keeps_rows, whole) for part in stage.parts]
    return Dataset.from_partitions(parts, schema)
