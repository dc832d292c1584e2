"""The way back: from a column of a workflow's output to the raw values behind it."""

from __future__ import annotations

import polars as pl

from penstock.data.lists import flatten
from penstock.etl.operator import Columns, Invertible
from penstock.etl.plan import Plan


def inverted(plan: Plan, column: pl.Series) -> pl.Series:
    """A column of the plan's output, turned back by every invertible operator on the way it came."""
    place: tuple[int, str] | None = (plan.output, column.name)
    out = column
    while place is not None:
        number, name = place
        op = plan.nodes[number].operator
        if isinstance(op, Invertible):
            out = _turned_back(op, out.alias(name), plan.columns[number])
        place = _before(plan, number, name)
    return out.alias(column.name)


def _before(plan: Plan, number: int, name: str) -> tuple[int, str] | None:
    """The node and column that a column came from; None at the source, and where something else was made of it."""
    op = plan.nodes[number].operator
    origin = name if op is None else op.origins(plan.columns[number]).get(name)
    for parent in plan.parents[number]:
        if origin is not None and origin in plan.schemas[parent]:
            return parent, origin
    return None


def _turned_back(op: Invertible, series: pl.Series, columns: Columns) -> pl.Series:
    if isinstance(series.dtype, (pl.List, pl.Array)):
        values, lists = flatten(series)
        return lists.rebuild(op.inverse(values.to_frame(), columns).to_series())
    return op.inverse(series.to_frame(), columns).to_series()
