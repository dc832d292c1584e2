"""Numbers: missing values, ranges, logarithms, scales, buckets."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from penstock.core.dtypes import FLOATS, INTEGERS, canonical
from penstock.core.errors import ColumnNotFoundError, ParameterError
from penstock.core.params import BOOL, NONE, PerColumn, Real, Satisfies
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.etl.operator import BulkFunction, Columns, FittedOperator, Invertible, RowFunction
from penstock.etl.ops.elementwise import Block, Elementwise, as_continuous, from_values, numeric, rounded

FLOAT_DTYPE = Satisfies(lambda d: canonical(d) in FLOATS, "float32 or float64")


class _Filler(Elementwise):
    """Replaces missing values (null and NaN); optionally adds `<column>_filled` flags."""

    add_binary_cols: bool

    def fill_value(self, name: str) -> Any:
        raise TypeError(f"{type(self).__name__} does not define fill_value")

    def expression(self, series: pl.Series, name: str) -> pl.Expr:
        column, dtype, value = pl.col(series.name), self.filled_dtype(series.dtype), self.fill_value(name)
        if dtype != series.dtype:
            column = column.cast(dtype)
        if dtype.is_float():
            return column.fill_nan(None).fill_null(pl.lit(value, dtype=dtype))
        if not series.null_count():
            return column
        if dtype.is_integer() and isinstance(value, float):
            if not value.is_integer():
                raise ParameterError(
                    f"{type(self).__name__} cannot put {value} into integer column {name!r}; cast it first"
                )
            value = int(value)
        return column.fill_null(pl.lit(value, dtype=dtype))

    def filled_dtype(self, dtype: pl.DataType) -> pl.DataType:
        return pl.Float32() if dtype == pl.Null else dtype

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        filled = super().transform(frame, columns)
        if not self.add_binary_cols:
            return filled
        flags = [_missing(frame[n]).cast(pl.Int8).alias(f"{n}_filled") for n in columns.names]
        return filled.hstack(flags)

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        filled = Schema(inputs[n].with_(nullable=False) for n in columns.names)
        if not self.add_binary_cols:
            return filled
        return filled + Schema(
            ColumnSchema(f"{n}_filled", "int8", Role.CATEGORICAL, nullable=False, cardinality=2) for n in columns.names
        )

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
        fills = [self.fill_value(name) for name in names]
        if values.dtype.kind != "f" and not all(type(fill) is int for fill in fills):
            return None
        return np.where(valid, values, np.array(fills, values.dtype)[:, None]), None


def _missing(series: pl.Series) -> pl.Series:
    return series.is_null() | series.is_nan() if series.dtype.is_float() else series.is_null()


class FillMissing(_Filler):
    """Missing values become `fill_val` (one, or `{column: value}`).

    >>> from penstock import Workflow
    >>> Workflow(["x"] >> FillMissing(7)).transform(pl.DataFrame({"x": [1, None]}))["x"].to_list()
    [1, 7]
    """

    constraints = {"add_binary_cols": BOOL}

    def __init__(self, fill_val: Any = 0, add_binary_cols: bool = False) -> None:
        self.fill_val = fill_val
        self.add_binary_cols = add_binary_cols

    def fill_value(self, name: str) -> Any:
        return _of_column(self.fill_val, name, "FillMissing.fill_val")


class FillMedian(_Filler, FittedOperator):
    """Missing values become the column's median over all data (exact up to 100,000 distinct values)."""

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

    def filled_dtype(self, dtype: pl.DataType) -> pl.DataType:
        """The median of integers may lie between two of them."""
        return pl.Float32() if dtype.is_integer() else super().filled_dtype(dtype)

    def apply_block(self, names: list[str], values: np.ndarray, valid: np.ndarray | None) -> Block | None:
        return super().apply_block(names, values if values.dtype.kind == "f" else values.astype(np.float32), valid)

    def apply_one(self, value: Any, name: str) -> Any:
        return (
            rounded(super().apply_one(value, name), "float32")
            if isinstance(value, int)
            else super().apply_one(value, name)
        )

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        schema = super().output_schema(inputs, columns)
        return Schema(c if c.name not in inputs or c.dtype in FLOATS else c.with_(dtype="float32") for c in schema)


class Clip(Elementwise):
    """Values below `min_value` become it, values above `max_value` become that; dtypes stay."""

    constraints = {"min_value": Real() | NONE, "max_value": Real() | NONE}

    def __init__(self, min_value: float | None = None, max_value: float | None = None) -> None:
        self.min_value = min_value
        self.max_value = max_value

    def check_params(self) -> None:
        super().check_params()
        if self.min_value is None and self.max_value is None:
            raise ParameterError("Clip needs min_value, max_value or both")
        if self.min_value is not None and self.max_value is not None and self.min_value > self.max_value:
            raise ParameterError(f"Clip.min_value {self.min_value} is above max_value {self.max_value}")

    def expression(self, series: pl.Series, name: str) -> pl.Expr:
        return pl.col(series.name).clip(*self._bounds(str(series.dtype).lower()))

    def apply_block(self, names: list[str], values: np.ndarray, valid: np.ndarray | None) -> Block | None:
        return np.clip(values, *self._bounds(values.dtype.name)), valid

    def _bounds(self, dtype: str) -> tuple[Any, Any]:
        if dtype not in INTEGERS:
            return self.min_value, self.max_value
        # An integer column stays integer: bounds move inwards to the next integers of its range.
        limits = np.iinfo(dtype)
        low = None if self.min_value is None else max(math.ceil(self.min_value), limits.min)
        high = None if self.max_value is None else min(math.floor(self.max_value), limits.max)
        return low, high

    def apply_one(self, value: Any, name: str) -> Any:
        low, high = self.min_value, self.max_value
        if isinstance(value, int):
            low = None if low is None else math.ceil(low)
            high = None if high is None else math.floor(high)
        if low is not None and value < low:
            return type(value)(low)
        return type(value)(high) if high is not None and value > high else value


class LogOp(Elementwise, Invertible):
    """`log(1 + x)` as float32.

    >>> from penstock import Workflow
    >>> Workflow(["x"] >> LogOp()).transform(pl.DataFrame({"x": [0, 1]}))["x"].to_list()
    [0.0, 0.6931471824645996]
    """

    def __init__(self) -> None:
        pass

    def apply(self, series: pl.Series, name: str) -> pl.Series:
        from penstock.kernels.cpu_elementwise import log1p_float32

        values, valid = numeric(series, "LogOp")
        return from_values(series.name, log1p_float32(values), valid)

    def apply_block(self, names: list[str], values: np.ndarray, valid: np.ndarray | None) -> Block | None:
        from penstock.kernels.cpu_elementwise import log1p_float32

        return log1p_float32(values.reshape(-1)).reshape(values.shape), valid

    def apply_one(self, value: Any, name: str) -> Any:
        if value > -1:
            return rounded(math.log1p(value), "float32")
        return -math.inf if value == -1 else math.nan

    def output_column(self, column: ColumnSchema) -> ColumnSchema:
        return as_continuous(column)

    def inverse(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        return frame.select(pl.all().cast(pl.Float64).exp() - 1.0)


class _Scale(Elementwise, FittedOperator, Invertible):
    """`(x - offset) / scale` with numbers learned from exact, order-independent moments."""

    def __init__(self, out_dtype: Any = "float32") -> None:
        self.out_dtype = out_dtype

    def partial(self, frame: pl.DataFrame, columns: Columns) -> dict[str, Any]:
        from penstock.data.lists import flatten
        from penstock.kernels.cpu_stats import exact_moments

        state = {}
        for name in columns.names:
            series = frame[name]
            if isinstance(series.dtype, pl.List):
                series = flatten(series)[0]
            state[name] = exact_moments(*numeric(series, type(self).__name__))
        return state

    def merge(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        return {name: left[name].merge(right[name]) for name in left}

    def finish(self, state: dict[str, Any], columns: Columns) -> None:
        self.state_ = state
        self.offsets_, self.scales_ = {}, {}
        for name, moments in state.items():
            offset, scale = self.offset_and_scale(moments)
            self.offsets_[name] = offset if math.isfinite(offset) else 0.0
            self.scales_[name] = scale if math.isfinite(scale) and scale > 0 else 1.0

    def offset_and_scale(self, moments: Any) -> tuple[float, float]:
        raise TypeError(f"{type(self).__name__} does not define offset_and_scale")

    def save_state(self, folder: Any) -> None:
        import json

        plain = {name: moments.to_dict() for name, moments in self.state_.items()}
        (folder / "state.json").write_text(json.dumps(plain))

    def load_state(self, folder: Any, columns: Columns) -> None:
        import json

        from penstock.kernels.cpu_stats import Moments

        plain = json.loads((folder / "state.json").read_text())
        self.finish({name: Moments.from_dict(m) for name, m in plain.items()}, columns)

    def apply(self, series: pl.Series, name: str) -> pl.Series:
        from penstock.kernels.cpu_scale import scaled

        values, valid = numeric(series, type(self).__name__)
        out = scaled(values, self.offsets_[name], self.scales_[name], np.dtype(canonical(self.out_dtype)))
        return from_values(series.name, out, valid)

    def apply_block(self, names: list[str], values: np.ndarray, valid: np.ndarray | None) -> Block | None:
        offsets, scales = (np.array([of[name] for name in names])[:, None] for of in (self.offsets_, self.scales_))
        with np.errstate(all="ignore"):
            return ((values - offsets) / scales).astype(canonical(self.out_dtype)), valid

    def apply_one(self, value: Any, name: str) -> float:
        return rounded((value - self.offsets_[name]) / self.scales_[name], canonical(self.out_dtype))

    def output_column(self, column: ColumnSchema) -> ColumnSchema:
        return as_continuous(column, canonical(self.out_dtype))

    def inverse(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        return frame.select(pl.col(n).cast(pl.Float64) * self.scales_[n] + self.offsets_[n] for n in frame.columns)


class Normalize(_Scale):
    """Subtract the mean, divide by the standard deviation (of the sample; a constant column is only centred).

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"x": [1.0, 2.0, 3.0]})
    >>> Workflow(["x"] >> Normalize()).fit_transform(frame)["x"].to_list()
    [-1.0, 0.0, 1.0]
    """

    constraints = {"out_dtype": FLOAT_DTYPE}

    def __init__(self, out_dtype: Any = "float32") -> None:
        super().__init__(out_dtype)

    def offset_and_scale(self, moments: Any) -> tuple[float, float]:
        return moments.mean(), moments.std(ddof=1)

    @property
    def means_(self) -> dict[str, float]:
        return self.offsets_

    @property
    def stds_(self) -> dict[str, float]:
        return {name: 0.0 if m.count < 2 else m.std(ddof=1) for name, m in self.state_.items()}


class NormalizeMinMax(_Scale):
    """Map the range seen in fitting to [0, 1] (a constant column to 0)."""

    constraints = {"out_dtype": FLOAT_DTYPE}

    def __init__(self, out_dtype: Any = "float32") -> None:
        super().__init__(out_dtype)

    def offset_and_scale(self, moments: Any) -> tuple[float, float]:
        if moments.minimum is None:
            return math.nan, math.nan
        return float(moments.minimum), float(moments.maximum) - float(moments.minimum)


class Bucketize(Elementwise):
    """The number of the bucket that a value falls in (`np.digitize`), as int32.

    `boundaries` is one rising list, or `{column: list}`.
    """

    constraints = {"boundaries": PerColumn(Satisfies(lambda b: _rising(b), "a rising list of numbers"))}

    def __init__(self, boundaries: Sequence[float] | Mapping[str, Sequence[float]]) -> None:
        self.boundaries = boundaries

    def _of(self, name: str) -> list[float]:
        return [float(b) for b in _of_column(self.boundaries, name, "Bucketize.boundaries")]

    def apply(self, series: pl.Series, name: str) -> pl.Series:
        from penstock.kernels.cpu_elementwise import digitize

        values, valid = numeric(series, "Bucketize")
        return from_values(series.name, digitize(values, np.asarray(self._of(name))), valid)

    def apply_one(self, value: Any, name: str) -> int:
        bounds = self._of(name)
        return len(bounds) if value != value else bisect_right(bounds, value)

    def output_column(self, column: ColumnSchema) -> ColumnSchema:
        size = len(self._of(column.name)) + 1
        return column.with_(dtype="int32", role=Role.CATEGORICAL, cardinality=size)


def _rising(bounds: Any) -> bool:
    if isinstance(bounds, (str, bytes)) or not hasattr(bounds, "__len__") or len(bounds) == 0:
        return False
    return all(isinstance(b, (int, float, np.number)) for b in bounds) and all(a < b for a, b in pairwise(bounds))


def _of_column(value: Any, name: str, where: str) -> Any:
    """A setting for one column: the value itself, or its entry in a `{column: value}`."""
    if not isinstance(value, Mapping):
        return value
    if name not in value:
        raise ColumnNotFoundError(name, value, where)
    return value[name]


__all__ = [
    "Bucketize", "Clip", "FillMedian", "FillMissing", "LogOp", "Normalize", "NormalizeMinMax",
]  # fmt: skip
