"""Numbers: missing values, ranges, logarithms, scales, buckets."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from penstock.core.artefact import SavedFolder
from penstock.core.conversion import convert
from penstock.core.dtypes import FLOATS, INTEGERS, DtypeLike, canonical, to_polars
from penstock.core.errors import ColumnNotFoundError, ConversionError, ParameterError, SchemaError
from penstock.core.params import BOOL, NONE, PerColumn, Real, Satisfies
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.etl.operator import BulkFunction, Columns, FittedOperator, Invertible, RowFunction, same_names
from penstock.etl.ops.elementwise import Block, Elementwise, as_continuous, from_values, numeric, require_numbers
from penstock.etl.raw_values import held_value

if TYPE_CHECKING:
    from penstock.kernels.cpu_stats import Moments

FLOAT_DTYPE = Satisfies(lambda d: canonical(d) in FLOATS, "float32 or float64")


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
        if to_polars(dtype) != series.dtype:
            column = pl.lit(convert(series, dtype, column=name))
        return column.fill_null(self._literal(name, dtype)) if series.null_count() else column

    def _literal(self, name: str, dtype: str) -> pl.Expr:
        return pl.lit(self._held(name, dtype), dtype=to_polars(dtype))

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

    def __init__(self, fill_val: Any = 0, add_binary_cols: bool = False) -> None:
        self.fill_val = fill_val
        self.add_binary_cols = add_binary_cols

    def fill_value(self, name: str) -> Any:
        return _of_column(self.fill_val, name, "FillMissing.fill_val")


class FillMedian(_Filler, FittedOperator):
    """Missing values become the column's median over all data (exact up to 100,000 distinct values).

    Args:
        add_binary_cols: also say which values were missing, in `<column>_filled`.
    """

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


class Clip(Elementwise):
    """Values below `min_value` become it, values above `max_value` become that; dtypes stay.

    Args:
        min_value: the lower bound.
        max_value: the upper bound.
    """

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
        return pl.col(series.name).clip(*self._bounds(canonical(series.dtype), name))

    def apply_block(self, names: list[str], values: np.ndarray, valid: np.ndarray | None) -> Block | None:
        return np.clip(values, *self._bounds(values.dtype.name, names[0])), valid

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def _bounds(self, dtype: str, name: str) -> tuple[Any, Any]:
        """The bounds in the column's dtype. An integer column stays integer: they move inwards to the next integers."""
        if dtype == "null":
            return None, None
        if dtype in FLOATS:
            bounds = (self.min_value, self.max_value)
            return tuple(None if b is None else _float_of(dtype, b) for b in bounds)  # type: ignore[return-value]
        if dtype not in INTEGERS:
            raise SchemaError(f"Clip needs numbers; column {name!r} is {dtype}")
        limits = np.iinfo(dtype)
        low = limits.min if self.min_value is None else max(math.ceil(self.min_value), limits.min)
        high = limits.max if self.max_value is None else min(math.floor(self.max_value), limits.max)
        if low > high:
            raise SchemaError(
                f"Clip: no {dtype} lies between {self.min_value} and {self.max_value} (column {name!r}); "
                f"choose other bounds, or make it a float first"
            )
        return low, high

    def output_column(self, column: ColumnSchema) -> ColumnSchema:
        self._bounds(column.dtype, column.name)
        return column

    def apply_one(self, value: Any, name: str) -> Any:
        low, high = self.min_value, self.max_value
        if isinstance(value, int):
            low = None if low is None else math.ceil(low)
            high = None if high is None else math.floor(high)
        if low is not None and value < low:
            return low if isinstance(value, int) else float(low)
        if high is not None and value > high:
            return high if isinstance(value, int) else float(high)
        return value


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
            return math.log1p(value)
        return -math.inf if value == -1 else math.nan

    def output_column(self, column: ColumnSchema) -> ColumnSchema:
        return as_continuous(require_numbers(column, "LogOp"))

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def inverse(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        return frame.select(pl.all().cast(pl.Float64).exp() - 1.0)


class _Scale(Elementwise, FittedOperator, Invertible):
    """`(x - offset) / scale` with numbers learned from exact, order-independent moments.

    Args:
        out_dtype: of the result, a float.
    """

    def __init__(self, out_dtype: DtypeLike = "float32") -> None:
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

    def offset_and_scale(self, moments: Moments) -> tuple[float, float]:
        """How a column is scaled.

        Args:
            moments: what was learned of a column.

        Returns:
            What is taken off, and what it is divided by then.

        Raises:
            TypeError: a subclass does not define it.
        """
        raise TypeError(f"{type(self).__name__} does not define offset_and_scale")

    def save_state(self, folder: Path) -> None:
        import json

        plain = {name: moments.to_dict() for name, moments in self.state_.items()}
        (folder / "state.json").write_text(json.dumps(plain))

    def load_state(self, folder: SavedFolder, columns: Columns) -> None:
        from penstock.kernels.cpu_stats import Moments

        plain = folder.json("state.json")
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
        scaled_value: float = (value - self.offsets_[name]) / self.scales_[name]
        return scaled_value

    def output_column(self, column: ColumnSchema) -> ColumnSchema:
        return as_continuous(require_numbers(column, type(self).__name__), canonical(self.out_dtype))

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def inverse(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        return frame.select(pl.col(n).cast(pl.Float64) * self.scales_[n] + self.offsets_[n] for n in frame.columns)


class Normalize(_Scale):
    """Subtract the mean, divide by the standard deviation (of the sample; a constant column is only centred).

    Args:
        out_dtype: of the result, a float.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"x": [1.0, 2.0, 3.0]})
    >>> Workflow(["x"] >> Normalize()).fit_transform(frame)["x"].to_list()
    [-1.0, 0.0, 1.0]
    """

    constraints = {"out_dtype": FLOAT_DTYPE}

    def __init__(self, out_dtype: DtypeLike = "float32") -> None:
        super().__init__(out_dtype)

    def offset_and_scale(self, moments: Moments) -> tuple[float, float]:
        return moments.mean(), moments.std(ddof=1)

    @property
    def means_(self) -> dict[str, float]:
        return self.offsets_

    @property
    def stds_(self) -> dict[str, float]:
        return {name: 0.0 if m.count < 2 else m.std(ddof=1) for name, m in self.state_.items()}


class NormalizeMinMax(_Scale):
    """Map the range seen in fitting to [0, 1] (a constant column to 0).

    Args:
        out_dtype: of the result, a float.
    """

    constraints = {"out_dtype": FLOAT_DTYPE}

    def __init__(self, out_dtype: DtypeLike = "float32") -> None:
        super().__init__(out_dtype)

    def offset_and_scale(self, moments: Moments) -> tuple[float, float]:
        if moments.minimum is None or moments.maximum is None:
            return math.nan, math.nan
        return float(moments.minimum), float(moments.maximum) - float(moments.minimum)


class Bucketize(Elementwise):
    """The number of the bucket that a value falls in (`np.digitize`), as int32.

    `boundaries` is one rising list, or `{column: list}`.

    Args:
        boundaries: in ascending order, for all columns or by column.
    """

    constraints = {"boundaries": PerColumn(Satisfies(lambda b: _rising(b), "a rising list of numbers"))}

    def __init__(self, boundaries: Sequence[float] | Mapping[str, Sequence[float]]) -> None:
        self.boundaries = boundaries

    def _of(self, name: str) -> list[int | float]:
        bounds = _of_column(self.boundaries, name, "Bucketize.boundaries")
        return [b.item() if isinstance(b, np.generic) else b for b in bounds]

    def apply(self, series: pl.Series, name: str) -> pl.Series:
        from penstock.kernels.cpu_elementwise import digitize

        values, valid = numeric(series, "Bucketize")
        return from_values(series.name, digitize(values, _limits(self._of(name), values.dtype)), valid)

    def apply_one(self, value: Any, name: str) -> int:
        bounds = self._of(name)
        return len(bounds) if value != value else bisect_right(bounds, value)

    def output_column(self, column: ColumnSchema) -> ColumnSchema:
        size = len(self._of(require_numbers(column, "Bucketize").name)) + 1
        return column.with_(dtype="int32", role=Role.CATEGORICAL, cardinality=size)


def _float_of(dtype: str, bound: float) -> float:
    """A bound as the column's dtype has it; one beyond its range bounds nothing but infinities."""
    with np.errstate(over="ignore"):
        return float(np.dtype(dtype).type(bound))


def _limits(bounds: list[int | float], dtype: np.dtype) -> np.ndarray:
    """Boundaries that values of `dtype` pass exactly where they pass `bounds`, compared without rounding.

    An integer is not below b where it is not below the next integer from b on; one that no value reaches goes. A float
    is not below b where it is not below the next float from b on.
    """
    if dtype.kind == "f":
        near = np.array([float(b) for b in bounds])
        return np.array([np.nextafter(f, np.inf) if f < b else f for f, b in zip(near.tolist(), bounds, strict=True)])
    limits = np.iinfo(dtype)
    whole = [b if isinstance(b, int) or math.isinf(b) else math.ceil(b) for b in bounds]
    reached = [int(max(b, limits.min)) for b in whole if b <= limits.max]
    return np.array(reached, np.uint64 if limits.min == 0 else np.int64)


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
