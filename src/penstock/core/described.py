"""Columns in the dtypes that a schema has names for, whatever the frame or file has them in."""

from __future__ import annotations

from typing import Any, cast

import polars as pl

from penstock.core.conversion import by_element, convert, refused
from penstock.core.dtypes import canonical, is_canonical, split_list, to_polars


def described(values: pl.Series, *, where: str | None = None) -> pl.Series:
    """A column in the dtype that a schema names it by: text for categories, counts for spans, numbers for decimals.

    Decimals with places behind the point become the nearest float64, as long as no whole unit of them is lost.

    Raises:
        ConversionError: an integer beyond 64 bits, or a decimal beyond 2^53 that float64 does not hold.

    >>> from decimal import Decimal
    >>> described(pl.Series([Decimal("0.10"), None])).to_list(), described(pl.Series([Decimal(2**53 + 1)])).to_list()
    ([0.1, None], [9007199254740993])
    """
    inner, is_list = split_list(values.dtype)
    dtype = canonical(inner)
    if values.dtype == to_polars(dtype, is_list):
        return values
    if inner.is_decimal() and dtype == "float64":
        return _as_floats(values, is_list, where)
    return convert(values, dtype, column=values.name, where=where)


def described_frame(frame: pl.DataFrame, where: str | None = None) -> pl.DataFrame:
    """A frame in the dtypes that its schema names, which partitions share whatever dictionaries their columns have.

    >>> described_frame(pl.DataFrame({"x": pl.Series(["a"], dtype=pl.Categorical)})).dtypes
    [String]
    """
    if all(map(is_canonical, frame.dtypes)):
        return frame
    before = frame.get_columns()
    after = [described(column, where=where) for column in before]
    return frame if all(one is other for one, other in zip(before, after, strict=True)) else pl.DataFrame(after)


def _as_floats(values: pl.Series, is_list: bool, where: str | None) -> pl.Series:
    """Decimals as the nearest floats; where polars would round twice, one by one."""
    if is_list:
        return by_element(values, "float64", values.name, where, lambda flat, _: _as_floats(flat, False, where))
    scale = cast(pl.Decimal, values.dtype).scale
    largest = values.abs().max()
    if largest is None or (scale <= 22 and int(cast(Any, largest).scaleb(scale)) < 2**53):
        return values.cast(pl.Float64)  # an exact integer divided by an exact power of ten
    for row, value in enumerate(values):
        if value is not None and abs(value) >= 2**53 and float(value) != value:
            raise refused(value, "float64", "it has digits that would be lost", values.name, row, where)
    return pl.Series(values.name, [None if v is None else float(v) for v in values], dtype=pl.Float64)
