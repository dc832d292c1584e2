"""Differences between a row and an earlier one of the same user, session or series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from penstock.core.dtypes import NUMERIC
from penstock.core.errors import ColumnNotFoundError, SchemaError
from penstock.core.params import STR, Int, ListOf
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.etl.operator import Columns, Operator
from penstock.etl.ops.grouped_sums import key_frame


class DifferenceLag(Operator):
    """`x` minus the `x` of the row `shift` earlier with the same `partition_cols`, over the whole data set.

    Rows keep their places. A negative `shift` looks at later rows; where there is no such row the result is null. Rows
    whose key is missing (null or NaN) are a series of their own.

    Args:
        partition_cols: the columns that tell series apart; they need not be among the inputs.
        shift: how many rows of the series back; an int or several.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"user": [1, 2, 1, 1], "time": [10, 11, 15, 35]})
    >>> Workflow(["time"] >> DifferenceLag("user")).transform(frame)["time_difference_lag_1"].to_list()
    [None, None, 5.0, 20.0]
    """

    constraints = {"partition_cols": STR | ListOf(STR), "shift": Int() | ListOf(Int())}

    def __init__(self, partition_cols: str | Sequence[str], shift: int | Sequence[int] = 1) -> None:
        self.partition_cols = partition_cols
        self.shift = shift

    @property
    def _keys(self) -> list[str]:
        return [self.partition_cols] if isinstance(self.partition_cols, str) else list(self.partition_cols)

    @property
    def _shifts(self) -> list[int]:
        return list(self.shift) if isinstance(self.shift, (list, tuple)) else [self.shift]  # type: ignore[list-item]

    def dependencies(self) -> list[str]:
        return self._keys

    def exchange_keys(self, columns: Columns) -> tuple[str, ...]:
        return tuple(self._keys)

    def _outputs(self, columns: Columns) -> list[tuple[str, str, int]]:
        """`(output, column, shift)`; partition columns among the inputs are not differenced."""
        names = [n for n in columns.names if n not in self._keys]
        return [(f"{n}_difference_lag_{shift}", n, shift) for shift in self._shifts for n in names]

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        for name in self._keys:
            if name not in inputs:
                raise ColumnNotFoundError(name, inputs.names, "DifferenceLag's inputs (partition_cols)")
        out = []
        for output, name, _ in self._outputs(columns):
            column = inputs[name]
            if column.is_list or (column.dtype not in NUMERIC and not _is_time(column.dtype)):
                raise SchemaError(f"DifferenceLag needs numbers or times; column {name!r} is {column.dtype}")
            dtype = "float32" if column.dtype == "float32" else "float64"
            out.append(ColumnSchema(output, dtype, Role.CONTINUOUS, tags=column.tags))
        return Schema(out)

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        keys = key_frame(frame, self._keys, "DifferenceLag")
        values = frame.select(pl.col(n).alias(f"v:{n}") for n in dict.fromkeys(n for _, n, _ in self._outputs(columns)))
        return keys.hstack(values.get_columns()).select(
            _difference(f"v:{name}", frame.schema[name], shift, keys.columns).alias(output)
            for output, name, shift in self._outputs(columns)
        )


def _is_time(dtype: str) -> bool:
    return dtype.startswith("datetime") or dtype in ("date", "time")


def _difference(name: str, dtype: Any, shift: int, keys: list[str]) -> pl.Expr:
    """Integers and times are subtracted as integers, so that large ones lose nothing; times in the column's unit."""
    values = pl.col(name)
    if dtype.is_temporal():
        values = values.to_physical()
    if not dtype.is_float():
        wide = dtype.is_temporal() or dtype in (pl.Int64, pl.UInt64)  # differences of 64 bits need 65
        values = values.cast(pl.Int128 if wide else pl.Int64)
    difference = values - values.shift(shift).over(keys)
    return difference.cast(pl.Float32 if dtype == pl.Float32 else pl.Float64)
