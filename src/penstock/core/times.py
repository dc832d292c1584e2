"""Moments and spans of time among Python values, to the nanosecond.

polars takes NumPy's times among Python values for microseconds whatever their unit, and gives back Python's own times,
which end at microseconds. So columns of such values are made here, and taken apart here: a moment with nanoseconds
that Python's `datetime` cannot hold comes as NumPy's `datetime64`.

>>> moment = np.datetime64("2026-01-01T00:00:00.000000123")
>>> values_of(series_of([moment, None], pl.Datetime("ns")))
[np.datetime64('2026-01-01T00:00:00.000000123'), None]
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

from penstock.core.dtypes import split_list
from penstock.core.errors import ConversionError

_EPOCH = datetime(1970, 1, 1)
_KNOWN_UNITS = ("D", "ms", "us", "ns")  # those that polars has columns of


def series_of(values: Sequence[Any], dtype: pl.DataType | None = None, name: str = "") -> pl.Series:
    """A column of Python values, NumPy's times among them.

    Args:
        values: None where one is missing; lists for a column of lists.
        dtype: of the column; found from the values when left out.
        name: of the column.

    Returns:
        The column.
    """
    if dtype is not None and split_list(dtype)[0] != pl.Datetime("ns"):
        return pl.Series(name, values, dtype=dtype)
    if isinstance(dtype, pl.List):
        inner = split_list(dtype)[0]
        counts = [None if v is None else series_of(v, inner).to_physical().to_list() for v in values]
        return pl.Series(name, counts, dtype=pl.List(pl.Int64)).cast(dtype)
    if not any(type(value) is np.datetime64 for value in values):
        return pl.Series(name, values, dtype=dtype)
    missing = np.datetime64("NaT", "ns")
    series = pl.Series(name, np.array([missing if v is None else v for v in values], "datetime64[ns]"))
    return series if dtype is None else series.cast(dtype)


def values_of(series: pl.Series) -> list[Any]:
    """A column's Python values; moments keep their nanoseconds.

    Args:
        series: a column.

    Returns:
        Its values, None where one is missing.
    """
    inner, is_list = split_list(series.dtype)
    if inner != pl.Datetime("ns"):
        return series.to_list()
    counts = series.cast(pl.List(pl.Int64) if is_list else pl.Int64).to_list()
    if not is_list:
        return [None if count is None else _moment(count) for count in counts]
    return [None if row is None else [None if c is None else _moment(c) for c in row] for row in counts]


def _moment(nanoseconds: int) -> datetime | np.datetime64:
    microseconds, rest = divmod(nanoseconds, 1000)
    return np.datetime64(nanoseconds, "ns") if rest else _EPOCH + timedelta(microseconds=microseconds)


def time_series(value: Any, dtype: str, column: str, where: str | None) -> pl.Series | None:
    """NumPy's or pandas' moment or span of time as a column of one row; None for values of another kind.

    Args:
        value: any scalar.
        dtype: what it is wanted as, for the message.
        column: its column's name, for the message.
        where: where it comes from, for the message.

    Returns:
        A column of one row in the value's own unit, or the next finer one that polars has.

    Raises:
        ConversionError: it is too far away, or finer than a nanosecond.
    """
    for name in ("to_datetime64", "to_timedelta64"):  # pandas, whose classes are also Python's, less the nanoseconds
        if hasattr(value, name):
            value = getattr(value, name)()
    if not isinstance(value, (np.datetime64, np.timedelta64)):
        return None
    unit, kind = np.datetime_data(value.dtype)[0], value.dtype.kind
    if unit not in _KNOWN_UNITS or (kind == "m" and unit == "D"):
        finer = value.astype(f"{kind}8[{'ns' if unit in ('ps', 'fs', 'as') else 'us'}]")
        if finer != value or finer.astype(value.dtype) != value:
            raise ConversionError(value, dtype, "nanoseconds do not hold it", column, where=where)
        value = finer
    return pl.Series(column, np.array([value]))


def duration_counts(series: pl.Series, unit: str, column: str, where: str | None) -> pl.Series:
    """Spans of time as whole numbers of a unit, exactly.

    Args:
        series: a column of durations, or of lists of them.
        unit: `"ms"`, `"us"` or `"ns"`.
        column: its name, for the message.
        where: where it comes from, for the message.

    Returns:
        Integers.

    Raises:
        ConversionError: a span is no whole number of the unit, or too long for it.

    >>> duration_counts(pl.Series([timedelta(seconds=2), None]), "ms", "gap", None).to_list()
    [2000, None]
    """
    inner, is_list = split_list(series.dtype)
    whole = pl.Int64 if not is_list else pl.List(pl.Int64)
    wanted: pl.DataType = pl.Duration(unit)  # type: ignore[arg-type]
    if inner != wanted:
        done = series.cast(pl.List(wanted) if is_list else wanted, strict=False)
        bad = ~done.cast(series.dtype, strict=False).eq_missing(series)
        if bad.any():
            row = int(bad.arg_max() or 0)
            raise ConversionError(series[row], f"whole number of {unit}", "it would be cut", column, row, where)
        series = done
    return series.cast(whole)
