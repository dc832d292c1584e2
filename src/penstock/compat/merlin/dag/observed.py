"""Operators that run a user's pandas code: what they give is seen on the first rows, not declared.

`pandas` decides dtypes by the values it meets, so running a function on no rows says little. Before a workflow is
fitted, each such operator is run on the first rows as they come out of the nodes before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import polars as pl

from penstock.core.dtypes import canonical, split_list
from penstock.core.schema import ColumnSchema, Schema
from penstock.data.dataset import Dataset
from penstock.data.partition import FramePartition
from penstock.engine import resolve
from penstock.etl import execute
from penstock.etl.fitted_operator import FittedOperator
from penstock.etl.graph import Node
from penstock.etl.operator import Columns
from penstock.etl.plan import Plan

SAMPLE = 1000


class Observed:
    """Mixin: `outputs` says what comes out, `{column: dtype}`; None until it was seen."""

    outputs: dict[str, str] | None = None
    _looking = False
    _inputs: tuple[str, ...] | None = None  # the columns that `outputs` came of

    def left_of(self, inputs: Schema, columns: Columns) -> None:
        """Where columns that it was seen with are gone (`remove_inputs`), forget what came of them."""
        names = tuple(columns.names)
        if self.outputs is not None and self._inputs is not None and set(names) < set(self._inputs):
            made = self.compute(pl.DataFrame(schema=inputs.polars_schema), columns)
            self.outputs = {name: self.outputs.get(name, spelled(dtype)) for name, dtype in made.schema.items()}
        self._inputs = names

    def observe(self, frame: pl.DataFrame, columns: Columns) -> None:
        """Run on the first rows, and remember names and dtypes of what comes out."""
        made = self.compute(frame, columns)
        self.outputs = {name: spelled(dtype) for name, dtype in made.schema.items()}

    def compute(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        raise TypeError(f"{type(self).__name__} does not define compute")

    def cast(self, frame: pl.DataFrame) -> pl.DataFrame:
        """What a partition gave, in the dtypes seen: pandas makes floats of integers where one is missing."""
        if self.outputs is None:
            return frame
        return frame.select(pl.col(name).cast(read(dtype)) for name, dtype in self.outputs.items())

    def seen_schema(self, inputs: Schema) -> Schema | None:
        """The output columns by what was seen, like the inputs of the same name; None where nothing was."""
        if self.outputs is None:
            return None
        columns = []
        for name, text in self.outputs.items():
            dtype, is_list = split_list(read(text))
            like = inputs.get(name) or ColumnSchema(name, canonical(dtype))
            columns.append(like.with_(dtype=canonical(dtype), is_list=is_list, cardinality=None))
        return Schema(columns)


class FirstRows:
    """The first rows of a data set, read once and when they are asked for."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    @cached_property
    def rows(self) -> Dataset | None:
        sample = self.dataset.head(SAMPLE)
        return Dataset.from_partitions([FramePartition(sample)], self.dataset.schema) if sample.height else None


def look_at(node: Node, first: FirstRows) -> None:
    """Let a node's operator see the first rows, where it has to; the nodes before it have seen them already."""
    if isinstance(node.operator, Observed) and node.operator.outputs is None and first.rows is not None:
        _look(node, first.rows)


def _look(node: Node, data: Dataset) -> None:
    op: Any = node.operator
    fresh = isinstance(op, FittedOperator) and not op.is_fitted
    op._looking = True
    try:
        plan = Plan(node, data.schema)
        execute.fit(plan, data, resolve("local:1"), update=False, progress=False)
        stage = execute.first_stage(plan, data)
        environment, rows = execute.read_stage(plan, stage, stage.parts[0])
        number = plan.output
        plan.run(environment, (*plan.parents[number], *plan.dependencies[number]), rows)
        op.observe(plan.inputs_of(number, environment), plan.columns[number])
    finally:
        op._looking = False
        if fresh:
            op.clear()  # it has seen a few rows, and learned from none


def spelled(dtype: pl.DataType) -> str:
    """A dtype as text.

    >>> spelled(pl.List(pl.Int64())), spelled(pl.String())
    ('list[int64]', 'string')
    """
    inner, is_list = split_list(dtype)
    return f"list[{canonical(inner)}]" if is_list else canonical(inner)


def read(text: str) -> pl.DataType:
    """The dtype that `spelled` wrote."""
    from penstock.core.dtypes import to_polars

    if text.startswith("list["):
        return to_polars(text[len("list[") : -1], is_list=True)
    return to_polars(text)


def forget(nodes: Iterable[Node]) -> None:
    """Let go of what was seen, before other data is fitted on."""
    for node in nodes:
        if isinstance(node.operator, Observed):
            node.operator.outputs = None
