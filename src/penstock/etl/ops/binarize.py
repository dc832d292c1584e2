"""Zeros and ones of numbers or words: labels above all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from penstock.core.dtypes import NUMERIC
from penstock.core.errors import ParameterError, SchemaError
from penstock.core.params import NONE, ListOf, Real, Satisfies
from penstock.core.schema import ColumnSchema
from penstock.etl.operator import Columns, same_names
from penstock.etl.ops.elementwise import Elementwise, require_numbers

_VALUE = Satisfies(lambda v: isinstance(v, (str, int, float, bool)), "a text or a number")


class Binarize(Elementwise):
    """1 where a value is at least `threshold`, or one of `ones`; 0 elsewhere. What is missing or NaN is missing.

    A label keeps its role: `rating: {columns: [rating], ops: [{Binarize: {threshold: 4}}]}`.

    Args:
        threshold: the least number that becomes 1.
        ones: or the values that become 1, such as `["yes"]`; all others become 0.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"rating": [5, 3, 4, None], "bought": ["yes", "no", "yes", None]})
    >>> Workflow((["rating"] >> Binarize(4)) + (["bought"] >> Binarize(ones=["yes"]))).transform(frame).rows()
    [(1, 1), (0, 0), (1, 1), (None, None)]
    """

    constraints = {"threshold": Real() | NONE, "ones": ListOf(_VALUE) | NONE}

    def __init__(self, threshold: float | None = None, ones: Sequence[Any] | None = None) -> None:
        self.threshold = threshold
        self.ones = ones

    def check_params(self) -> None:
        super().check_params()
        if (self.threshold is None) == (not self.ones):
            raise ParameterError("Binarize takes either threshold, the least number that becomes 1, or ones, a list")

    def apply(self, series: pl.Series, name: str) -> pl.Series:
        if series.dtype == pl.Float32:  # compared as it is: not with a threshold rounded to 24 bits
            series = series.cast(pl.Float64)
        if series.dtype.is_float():  # NaN is missing: a label of it must not count as 0
            series = series.fill_nan(None)
        if self.ones:
            return series.is_in(_as(series, self.ones)).cast(pl.Int8).alias(series.name)
        assert self.threshold is not None
        numbers = series if series.dtype.is_numeric() else series.cast(pl.UInt8)  # booleans, or nothing but nulls
        if numbers.dtype.is_float():
            least = float(self.threshold)  # or the next above, where a large integer was rounded down
            least = math.nextafter(least, math.inf) if least < self.threshold else least
            found = numbers >= least
        elif math.isinf(self.threshold):
            found = numbers.cast(pl.Float64) >= self.threshold
        else:  # integers beyond 2**53 are no floats
            found = numbers.cast(pl.Int128) >= math.ceil(self.threshold)
        return found.cast(pl.Int8).alias(series.name)

    def apply_one(self, value: float | str, name: str) -> int | None:
        if value != value:
            return None
        if self.ones:
            return int(any(value == one and isinstance(value, str) == isinstance(one, str) for one in self.ones))
        assert self.threshold is not None and not isinstance(value, str)  # output_column wants numbers
        return int(value >= self.threshold)

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def output_column(self, column: ColumnSchema) -> ColumnSchema:
        """Whole numbers, 0 or 1.

        Args:
            column: that comes in.

        Returns:
            The column that comes out.

        Raises:
            SchemaError: it is neither text nor numbers.
        """
        if self.ones is None:
            require_numbers(column, "Binarize with a threshold")
        elif column.dtype not in (*NUMERIC, "string", "null"):
            raise SchemaError(f"Binarize needs text or numbers; column {column.name!r} is {column.dtype}")
        properties = {k: v for k, v in column.properties.items() if k != "text"}
        return column.with_(dtype="int8", cardinality=None, properties=properties)


def _as(series: pl.Series, ones: Sequence[Any]) -> pl.Series:
    """Those of the values that the column's dtype can hold."""
    is_text = series.dtype == pl.String
    fitting = [one for one in ones if isinstance(one, str) == is_text]
    if series.dtype == pl.Boolean:
        return pl.Series([bool(one) for one in fitting if one in (0, 1)], dtype=pl.Boolean)
    if series.dtype.is_integer():
        fitting = [int(one) for one in fitting if float(one).is_integer()]
        return pl.Series(fitting, dtype=pl.Int128).cast(series.dtype, strict=False).drop_nulls()
    if series.dtype.is_float():
        fitting = [float(one) for one in fitting if float(one) == one]
    return pl.Series(fitting, dtype=series.dtype, strict=False).drop_nulls()
