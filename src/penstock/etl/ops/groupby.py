"""Groupby: one row a key, over the whole data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import polars as pl

from penstock.core.conversion import convert
from penstock.core.dtypes import NUMERIC
from penstock.core.errors import ColumnNotFoundError, ParameterError, SchemaError
from penstock.core.params import BOOL, NONE, STR, ListOf, OneOf, PerColumn
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.etl.operator import Columns, Operator
from penstock.etl.ops.grouped_sums import GroupedSums, key_frame, numbers, totals
from penstock.etl.ops.join_groupby import statistic_of

AGGREGATIONS = ("list", "first", "last", "count", "nunique", "sum", "mean", "std", "var", "min", "max", "median")
_MOMENTS = ("sum", "mean", "std", "var")
_ON_LISTS = ("first", "last", "count")
_NAMES = STR | ListOf(STR)


class Groupby(Operator):
    """One row for each key of the whole data set: rows of a key meet, wherever they lie.

    Inside a group, rows stand in the order of `sort_cols` (ties in the order of the data), which is what `list`,
    `first` and `last` go by. Keys come sorted within a partition; a missing key is a key of its own.

    Args:
        groupby_cols: the key columns; among the inputs.
        sort_cols: columns to sort each group by; among the inputs.
        aggs: one of list, first, last, count, nunique, sum, mean, std, var, min, max, median; a list of them; or
            `{column: aggregation or list}`. Missing values count for none but list, first and last.
        name_sep: joins the names: `<column>_<aggregation>`.
        ascending: the direction of the sort; one, or one for each of `sort_cols`.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"user": [2, 1, 2], "time": [9, 5, 3], "item": ["c", "a", "b"]})
    >>> sessions = ["user", "time", "item"] >> Groupby("user", "time", {"item": ["list", "count"]})
    >>> Workflow(sessions).transform(frame).to_dict(as_series=False)
    {'user': [1, 2], 'item_list': [['a'], ['b', 'c']], 'item_count': [1, 2]}
    """

    changes_rows = True
    missing_last: ClassVar[bool] = False  # rows whose `sort_cols` are missing: first, or last in either direction
    constraints = {
        "groupby_cols": _NAMES,
        "sort_cols": _NAMES | NONE,
        "aggs": PerColumn(OneOf(AGGREGATIONS) | ListOf(OneOf(AGGREGATIONS))),
        "name_sep": STR,
        "ascending": BOOL | ListOf(BOOL),
    }

    def __init__(
        self,
        groupby_cols: str | Sequence[str],
        sort_cols: str | Sequence[str] | None = None,
        aggs: str | Sequence[str] | Mapping[str, Any] = "list",
        name_sep: str = "_",
        ascending: bool | Sequence[bool] = True,
    ) -> None:
        self.groupby_cols = groupby_cols
        self.sort_cols = sort_cols
        self.aggs = aggs
        self.name_sep = name_sep
        self.ascending = ascending

    def check_params(self) -> None:
        super().check_params()
        if not self.keys:
            raise ParameterError("Groupby.groupby_cols must name at least one column")
        if isinstance(self.ascending, (list, tuple)) and len(self.ascending) != len(_listed(self.sort_cols)):
            raise ParameterError("Groupby.ascending must be one bool, or one for each of sort_cols")

    @property
    def keys(self) -> list[str]:
        return _listed(self.groupby_cols)

    def exchange_keys(self, columns: Columns) -> tuple[str, ...]:
        for name in (*self.keys, *_listed(self.sort_cols)):
            if name not in columns.names:
                raise ColumnNotFoundError(name, columns.names, "Groupby's inputs; put it through Groupby too")
        return tuple(self.keys)

    def _plan(self, columns: Columns) -> list[tuple[str, str, str]]:
        """`(output, column, aggregation)` for each output besides the keys."""
        aggs = self.aggs
        if not isinstance(aggs, Mapping):
            aggs = {name: aggs for name in columns.names if name not in self.keys}
        out = []
        for column, wanted in aggs.items():
            if column not in columns.names:
                raise ColumnNotFoundError(column, columns.names, "Groupby's inputs (aggs)")
            out += [(self.name_sep.join((column, agg)), column, agg) for agg in _listed(wanted)]
        return out

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        self.exchange_keys(columns)
        for name in self.keys:
            if inputs[name].is_list:
                raise SchemaError(f"Groupby.groupby_cols must hold single values; column {name!r} holds lists")
        return inputs.select(self.keys) + Schema(_column(inputs[c], name, agg) for name, c, agg in self._plan(columns))

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        order = _listed(self.sort_cols)
        if order:
            down = [not a for a in (self.ascending if isinstance(self.ascending, (list, tuple)) else [self.ascending])]
            down = down * len(order) if len(down) == 1 else down
            frame = frame.sort(order, descending=down, nulls_last=self.missing_last, maintain_order=True)
        keys = key_frame(frame, self.keys, "Groupby").rename(lambda k: self.keys[int(k[1:])])
        plan = self._plan(columns)
        exact = [entry for entry in plan if _needs_exact_sums(frame.schema[entry[1]], entry[2])]
        plain = [entry for entry in plan if entry not in exact]
        values = frame.select(pl.col(c).alias(f"v:{c}") for c in dict.fromkeys(c for _, c, _ in plain))
        grouped = (
            keys.hstack(values.get_columns())
            .group_by(self.keys, maintain_order=True)
            .agg(
                _aggregation(f"v:{column}", values.schema[f"v:{column}"], agg).alias(name)
                for name, column, agg in plain
            )
            .sort(self.keys)
        )
        # 64-bit integers add up in 128 bits; a sum that is no int64 is refused.
        wide = [name for name in grouped.columns if grouped.schema[name] == pl.Int128]
        grouped = grouped.with_columns(convert(grouped[name], "int64", column=name, where="Groupby") for name in wide)
        return grouped.hstack(self._moments(frame, exact))

    def _moments(self, frame: pl.DataFrame, plan: list[tuple[str, str, str]]) -> list[pl.Series]:
        """Sums, means and spreads by exact addition: the same bits whatever the order of a group's rows."""
        if not plan:
            return []
        values: dict[str, pl.Series] = {}
        for column in dict.fromkeys(column for _, column, _ in plan):
            squares = any(c == column and agg in ("std", "var") for _, c, agg in plan)
            values |= totals(column, numbers(frame[column], "Groupby"), squares)
        keys = key_frame(frame, self.keys, "Groupby")
        sums = GroupedSums(keys.columns)
        sums.add(keys.hstack(pl.DataFrame(values)))
        totalled = sums.frame()
        out = []
        for name, column, agg in plan:
            result = pl.Series(name, statistic_of(totalled, agg, column)).fill_nan(None)
            out.append(result.cast(pl.Float32) if frame.schema[column] == pl.Float32 else result)
        return out


def _needs_exact_sums(dtype: pl.DataType, agg: str) -> bool:
    return agg in _MOMENTS and not (agg == "sum" and not dtype.is_float())  # integers add up exactly as they are


def _aggregation(column: str, dtype: pl.DataType, agg: str) -> pl.Expr:
    values = pl.col(column)
    if agg == "list":
        return values
    if agg == "first":
        return values.first()
    if agg == "last":
        return values.last()
    if agg == "count":
        return (values.drop_nans() if dtype.is_float() else values).count().cast(pl.Int32)
    if agg == "sum":
        return values.cast(_sum_dtype(dtype)).sum()
    present = values.drop_nans().drop_nulls() if dtype.is_float() else values.drop_nulls()
    if agg == "nunique":
        return present.n_unique().cast(pl.Int32)
    return _median(present, dtype) if agg == "median" else present.min() if agg == "min" else present.max()


def _median(present: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """The mean of the two in the middle: polars' own is NaN beside an infinity, and rounds large integers first."""
    is_long = dtype in (pl.Int64, pl.UInt64)
    ordered, count = present.sort().cast(pl.Int128 if is_long else pl.Float64), present.len().cast(pl.Int64)
    low, high = (ordered.get((count + half) // 2 - half, null_on_oob=True) for half in (1, 0))
    median = (low + high).cast(pl.Float64) / 2 if is_long else (low / 2 + high / 2).fill_nan(None)
    return median.cast(pl.Float32) if dtype == pl.Float32 else median


def _sum_dtype(dtype: pl.DataType) -> pl.DataType:
    return pl.Int128() if dtype in (pl.Int64, pl.UInt64) else pl.Int64()


def _column(column: ColumnSchema, name: str, agg: str) -> ColumnSchema:
    """The schema of an aggregated column."""
    if column.is_list and agg not in _ON_LISTS:
        raise SchemaError(f"Groupby cannot take {agg!r} of column {column.name!r}: it holds lists already")
    if agg in ("list", "first", "last"):
        return column.with_(name=name, is_list=column.is_list or agg == "list")
    if agg in ("count", "nunique"):
        return ColumnSchema(name, "int32", Role.CONTINUOUS, nullable=False)
    if agg in ("min", "max"):
        return column.with_(name=name)
    if column.dtype not in NUMERIC:
        raise SchemaError(f"Groupby cannot take {agg!r} of column {column.name!r}: it is {column.dtype}, not numbers")
    dtype = "float32" if column.dtype == "float32" else "float64"
    if agg == "sum" and dtype == "float64" and column.dtype != "float64":
        dtype = "int64"
    return ColumnSchema(name, dtype, Role.CONTINUOUS, tags=column.tags)


def _listed(names: Any) -> list[Any]:
    if names is None:
        return []
    return [names] if isinstance(names, str) else list(names)
