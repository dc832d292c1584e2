"""One row at a time: the plan flattened once into a list of plain functions, for online use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from penstock.core.errors import ColumnNotFoundError, GraphError
from penstock.core.times import series_of, values_of
from penstock.etl.cells import RowFunction
from penstock.etl.plan import Plan
from penstock.etl.raw_values import ROW, value_converter
from penstock.etl.settled import Settle, settlers

Values = list[dict[str, Any]]  # node number → its values


class RowPlan:
    """Calls a plan on a dict. Operators without a row function run on a frame of one row."""

    def __init__(self, plan: Plan) -> None:
        if not plan.keeps_rows:
            raise GraphError("transform_row needs a workflow that keeps rows; this one filters, groups or lags them")
        self.plan = plan
        self.names = plan.schemas[plan.output].names
        self.checks = [(c.name, value_converter(c)) for c in plan.input_schema]
        self.steps = [(self._step(i), list(self.settlers(i).items())) for i in range(len(plan.nodes))]

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        raw = {}
        for name, convert in self.checks:
            try:
                value = row[name]
            except KeyError:
                raise ColumnNotFoundError(name, row, ROW) from None
            raw[name] = None if value is None else convert(value)
        values: Values = [raw]
        for step, settling in self.steps:
            out = step(values)
            for name, settle in settling:
                value = out[name]
                if value is not None:
                    out[name] = settle(value)
            values.append(out)
        return values[-1]

    def settlers(self, i: int) -> dict[str, Settle]:
        """What brings a node's values into the dtypes it declares, for the columns that may need it."""
        node = self.plan.nodes[i]
        return {} if node.operator is None else settlers(node.operator, self.plan.schemas[i])

    def _step(self, i: int) -> Callable[[Values], dict[str, Any]]:
        plan, node = self.plan, self.plan.nodes[i]
        origins = self.origins(i)
        if node.kind != "apply":
            return chooser(origins, plan.schemas[i].names)
        assert node.operator is not None
        slow = self._through_frame(i)
        function = _for_lists(node.operator.row_function(plan.columns[i]) or slow, slow, self.lists(i))
        if len(origins) == 1:
            origin = origins[0]
            return lambda values: function(values[origin])
        gather = gatherer(origins[::-1])  # parents last: they win over a raw column of the same name
        return lambda values: function(gather(values))

    def origins(self, i: int) -> list[int]:
        """Where a node's inputs stand: 0 is the raw row, so those of node i are at i + 1."""
        plan = self.plan
        return [0] if plan.nodes[i].kind == "source" else [p + 1 for p in (*plan.parents[i], *plan.dependencies[i])]

    def lists(self, i: int) -> list[str]:
        """The list columns among a node's inputs."""
        return [c.name for p in self.plan.parents[i] for c in self.plan.schemas[p] if c.is_list]

    def input_dtypes(self, i: int) -> dict[str, pl.DataType]:
        """The dtypes of a node's inputs."""
        plan = self.plan
        return {c.name: c.polars_dtype for p in (*plan.parents[i], *plan.dependencies[i]) for c in plan.schemas[p]}

    def _through_frame(self, i: int) -> RowFunction:
        plan, schema, names = self.plan, self.input_dtypes(i), self.plan.schemas[i].names

        def run(values: dict[str, Any]) -> dict[str, Any]:
            frame = pl.DataFrame([series_of([values[n]], dtype, n) for n, dtype in schema.items()])
            done = plan.computed(i, frame)
            return {name: values_of(done[name])[0] for name in names}

        return run


def _for_lists(function: RowFunction, slow: RowFunction, lists: list[str]) -> RowFunction:
    """A missing list is no missing element, and a row function cannot tell them apart: such rows take the frame."""
    if not lists:
        return function
    return lambda values: slow(values) if any(values[n] is None for n in lists) else function(values)


def chooser(origins: list[int], names: list[str]) -> Callable[[Values], dict[str, Any]]:
    """The columns of that name among a node's inputs."""
    if len(origins) == 1:
        origin = origins[0]

        def choose(values: Values) -> dict[str, Any]:
            source = values[origin]
            return {name: source[name] for name in names}

        return choose
    gather = gatherer(origins)

    def choose_joined(values: Values) -> dict[str, Any]:
        return gather(values)

    return choose_joined


def gatherer(origins: list[int]) -> Callable[[Values], dict[str, Any]]:
    """A node's inputs, side by side."""

    def gather(values: Values) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for origin in origins:
            out.update(values[origin])
        return out

    return gather
