"""Missing values: replaced by a value that is given, or by the median."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from datetime import date
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from penstock.core.conversion import convert
from penstock.core.dtypes import INTEGERS, canonical, same_dtype, to_polars
from penstock.core.errors import ConversionError
from penstock.core.params import BOOL
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.etl.cells import BulkFunction, RowFunction
from penstock.etl.fitted_operator import FittedOperator
from penstock.etl.operator import Columns, same_names
from penstock.etl.ops.elementwise import (
    Block,
    Elementwise,
    numeric,
    require_numbers,
    setting_of,
)
from penstock.etl.raw_values import held_value

Filling: TypeAlias = bool | int | float | str | bytes | date | None  # None stays missing


class _Filler(Elementwise):
    """Replaces missing values (null and NaN); optionally adds `<column>_filled` flags."""

    puts_values_in = True

    add_binary_cols: bool

    def fill_value(self, name: str) -> Any:
        """What missing values of a column become.

        Args:
            name: of the column.

        Returns:
            The value.

        Raises:
            TypeError: a subclass does not define it.
        """
        raise TypeError(f"{type(self).__name__} does not define fill_value")

    def expression(self, series: pl.Series, name: str) -> pl.Expr:
        column, dtype = pl.col(series.name), self.filled_dtype(canonical(series.dtype))
        if series.dtype.is_float():
            try:
                return column.fill_nan(None).fill_null(self._literal(name, dtype))
            except ConversionError:  # no matter where nothing is missing
                if _missing(series).any():
                    raise
                return column
        if not same_dtype(to_polars(dtype), series.dtype):
            column = pl.lit(convert(series, dtype, column=name))
        return column.fill_null(self._literal(name, dtype)) if series.null_count() else column

    def _literal(self, name: str, dtype: str) -> pl.Expr:
        value, where = self.fill_value(name), type(self).__name__
        make = _literal_of if isinstance(value, Hashable) else _literal_of.__wrapped__
        return make(value, repr(value), dtype, name, where)

    def _held(self, name: str, dtype: str) -> Any:
        """The fill value as the column's dtype has it."""
        return held_value(self.fill_value(name), dtype, name, type(self).__name__)

    def filled_dtype(self, dtype: str) -> str:
        """The dtype of the result; a column of which nothing is known but that it is empty is one of numbers.

        Args:
            dtype: of the column.

        Returns:
            Its dtype when filled.
        """
        return "float32" if dtype == "null" else dtype

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        filled = super().transform(frame, columns)
        if not self.add_binary_cols:
            return filled
        flags = [_missing(frame[n]).cast(pl.Int8).alias(f"{n}_filled") for n in columns.names]
        return filled.hstack(flags)

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        filled = Schema(
            inputs[n].with_(nullable=False, dtype=self.filled_dtype(inputs[n].dtype)) for n in columns.names
        )
        if not self.add_binary_cols:
            return filled
        return filled + Schema(
            ColumnSchema(f"{n}_filled", "int8", Role.CATEGORICAL, nullable=False, cardinality=2) for n in columns.names
        )

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def apply_one(self, value: Any, name: str) -> Any:
        return self.fill_value(name) if value != value else value

    def apply_null(self, name: str) -> Any:
        return self.fill_value(name)

    def row_function(self, columns: Columns) -> RowFunction | None:
        return None if self.add_binary_cols else super().row_function(columns)

    def bulk_function(self, columns: Columns) -> BulkFunction | None:
        return None if self.add_binary_cols else super().bulk_function(columns)

    def apply_block(self, names: list[str], values: np.ndarray, valid: np.ndarray | None) -> Block | None:
        if values.dtype.kind == "f":
            there = ~np.isnan(values)
            valid = there if valid is None else valid & there
        if valid is None or valid.all():
            return values, None
        fills = [
            self._held(name, values.dtype.name) if not there.all() else 0
            for name, there in zip(names, valid, strict=True)
        ]
        return np.where(valid, values, np.array(fills, values.dtype)[:, None]), None


@lru_cache(maxsize=1024, typed=True)
def _literal_of(value: Any, spelled: str, dtype: str, column: str, where: str) -> pl.Expr:
    """A value as a column's dtype has it; made once, not for each partition. `spelled` tells -0.0 from 0.0."""
    return pl.lit(held_value(value, dtype, column, where), dtype=to_polars(dtype))


def _missing(series: pl.Series) -> pl.Series:
    return series.is_null() | series.is_nan() if series.dtype.is_float() else series.is_null()


class FillMissing(_Filler):
    """Missing values become `fill_val` (one, or `{column: value}`).

    Args:
        fill_val: for all columns, or by column.
        add_binary_cols: also say which values were missing, in `<column>_filled`.

    >>> from penstock import Workflow
    >>> Workflow(["x"] >> FillMissing(7)).transform(pl.DataFrame({"x": [1, None]}))["x"].to_list()
    [1, 7]
    """

    constraints = {"add_binary_cols": BOOL}

    def __init__(self, fill_val: Filling | Mapping[str, Filling] = 0, add_binary_cols: bool = False) -> None:
        self.fill_val = fill_val
        self.add_binary_cols = add_binary_cols

    def fill_value(self, name: str) -> Any:
        return setting_of(self.fill_val, name, "FillMissing.fill_val")


class FillMedian(_Filler, FittedOperator):
    """Missing values become the column's median over all data (exact up to 100,000 distinct values).

    Args:
        add_binary_cols: also say which values were missing, in `<column>_filled`.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"price": [1.0, None, 3.0, 9.0]})
    >>> Workflow(["price"] >> FillMedian()).fit_transform(frame)["price"].to_list()
    [1.0, 3.0, 3.0, 9.0]
    """

    learns_by_column = True

    constraints = {"add_binary_cols": BOOL}

    def __init__(self, add_binary_cols: bool = False) -> None:
        self.add_binary_cols = add_binary_cols

    def partial(self, frame: pl.DataFrame, columns: Columns) -> dict[str, Any]:
        from penstock.kernels.cpu_histogram import ValueHistogram

        state = {}
        for name in columns.names:
            values, valid = numeric(frame[name], "FillMedian")
            histogram = ValueHistogram()
            histogram.add(values, valid)
            state[name] = histogram.to_dict()
        return state

    def merge(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        from penstock.kernels.cpu_histogram import ValueHistogram

        out = {}
        for name in left:
            merged = ValueHistogram.from_dict(left[name])
            merged.merge(ValueHistogram.from_dict(right[name]))
            out[name] = merged.to_dict()
        return out

    def finish(self, state: dict[str, Any], columns: Columns) -> None:
        from penstock.kernels.cpu_histogram import ValueHistogram

        self.state_ = state
        medians = {n: ValueHistogram.from_dict(s).median() for n, s in state.items()}
        self.medians_ = {n: 0.0 if math.isnan(m) else m for n, m in medians.items()}

    def fill_value(self, name: str) -> float:
        return self.medians_[name]

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        for name in columns.names:
            require_numbers(inputs[name], "FillMedian")
        return super().output_schema(inputs, columns)

    def filled_dtype(self, dtype: str) -> str:
        """The median of integers may lie between two of them; float64 where float32 does not hold them all."""
        if dtype in INTEGERS:
            return "float32" if np.iinfo(dtype).bits <= 16 else "float64"
        return "float32" if dtype == "bool" else super().filled_dtype(dtype)

    def apply_block(self, names: list[str], values: np.ndarray, valid: np.ndarray | None) -> Block | None:
        dtype = self.filled_dtype(values.dtype.name)
        if dtype != values.dtype.name:
            there = values if valid is None else np.where(valid, values, 0)
            values = convert(there, dtype, column=names[0])
        return super().apply_block(names, values, valid)
