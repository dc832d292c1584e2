"""Numbers: ranges, logarithms, buckets."""

from __future__ import annotations

import ctypes
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from penstock.core.dtypes import FLOATS, INTEGERS, canonical
from penstock.core.errors import ParameterError, SchemaError
from penstock.core.params import NONE, PerColumn, Real, Satisfies
from penstock.core.schema import ColumnSchema, Role
from penstock.etl.operator import Columns, Invertible, same_names
from penstock.etl.ops.elementwise import (
    Block,
    Elementwise,
    as_continuous,
    from_values,
    numeric,
    require_numbers,
    setting_of,
)

_LAST_BITS = 2.0**-48  # more than two good logarithms differ by, relative to their value


class Clip(Elementwise):
    """Values below `min_value` become it, values above `max_value` become that; dtypes stay.

    Args:
        min_value: the lower bound.
        max_value: the upper bound.

    >>> from penstock import Workflow
    >>> Workflow(["price"] >> Clip(0, 10)).transform(pl.DataFrame({"price": [-3, 4, 99]}))["price"].to_list()
    [0, 4, 10]
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
        bounds = self._bounds(canonical(series.dtype), name)
        return _clipped(series.name, bounds, repr(bounds))

    def apply_block(self, names: list[str], values: np.ndarray, valid: np.ndarray | None) -> Block | None:
        low, high = self._bounds(values.dtype.name, names[0])
        if low is not None:  # not np.clip, which makes 0.0 of -0.0
            values = np.where(values < low, values.dtype.type(low), values)
        return values if high is None else np.where(values > high, values.dtype.type(high), values), valid

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


@lru_cache(maxsize=1024, typed=True)
def _clipped(name: str, bounds: tuple[Any, Any], spelled: str) -> pl.Expr:
    """Made once, not for each partition; `spelled` tells -0.0 from 0.0."""
    return pl.col(name).clip(*bounds)


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
            logarithm = math.log1p(value)
            near = ctypes.c_float(logarithm * (1 + _LAST_BITS)).value
            if near == ctypes.c_float(logarithm * (1 - _LAST_BITS)).value:
                return near
            return float(np.log1p(float(value)))  # NumPy's last bits decide, as they do in a column
        return -math.inf if value == -1 else math.nan

    def output_column(self, column: ColumnSchema) -> ColumnSchema:
        return as_continuous(require_numbers(column, "LogOp"))

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def inverse(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        return frame.select(pl.all().cast(pl.Float64).exp() - 1.0)


class Bucketize(Elementwise):
    """The number of the bucket that a value falls in (`np.digitize`), as int32.

    `boundaries` is one rising list, or `{column: list}`.

    Args:
        boundaries: in ascending order, for all columns or by column.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"age": [15, 18, 42, 70]})
    >>> Workflow(["age"] >> Bucketize([18, 35, 65])).transform(frame)["age"].to_list()
    [0, 1, 2, 3]
    """

    constraints = {"boundaries": PerColumn(Satisfies(lambda b: _rising(b), "a rising list of numbers"))}

    def __init__(self, boundaries: Sequence[float] | Mapping[str, Sequence[float]]) -> None:
        self.boundaries = boundaries

    def _of(self, name: str) -> list[int | float]:
        bounds = setting_of(self.boundaries, name, "Bucketize.boundaries")
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
