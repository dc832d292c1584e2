"""The one place where a value changes its dtype: exactly, or not at all.

A value is either the same value in the new dtype or it is refused, with column, row and value. Widening always works.
Whatever loses something has a name, which the caller gives as `policy`:

- `"exact"`: nothing is lost;
- `"round"`: the nearest value that the dtype has, ties to even; beyond its range is refused;
- `"truncate"`: fractions are cut off for an integer dtype; beyond its range is refused;
- `"wrap"`: integers modulo 2**bits; fractions are refused;
- `"saturate"`: beyond the range becomes its nearest bound; fractions are refused.

Missing stays missing: null is null in every dtype, and NaN, which means missing wherever Penstock reads numbers,
becomes null in a dtype that has none. A NumPy array has no place for null, so there it is refused.

>>> convert(np.array([1.0, 2.0]), "int8", column="age")
array([1, 2], dtype=int8)
>>> convert(pl.Series([1.0, float("nan")]), "int32", column="age").to_list()
[1, None]
>>> convert(1.9, "int64", column="age")
Traceback (most recent call last):
...
penstock.core.errors.ConversionError: column 'age': 1.9 is no int64 (it has a fraction)
"""

from __future__ import annotations

import numbers
import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.core.arrow_arrays import arrow_of
from penstock.core.conversion_rules import BadValue, Policy, converted, reason_against, widens
from penstock.core.dtypes import (
    INTEGERS,
    NUMERIC,
    canonical,
    inner_of,
    is_nested,
    split_list,
    to_numpy,
    to_polars,
)
from penstock.core.errors import ConversionError
from penstock.core.times import time_series, values_of

__all__ = ["HEXADECIMAL", "NO_HEXADECIMAL", "Policy", "convert", "held", "is_missing", "parse_hexadecimal"]

Values = TypeVar("Values")
HEXADECIMAL = re.compile("[0-9A-Fa-f]{1,16}")
NO_HEXADECIMAL = "it is no hexadecimal number of up to 16 digits"
_OLDEST = pl.CompatLevel.oldest()


def convert(values: Values, dtype: str, *, column: str, where: str | None = None, policy: Policy = "exact") -> Values:
    """`values` in another dtype.

    Args:
        values: a NumPy array, a polars Series (of lists: their elements change), or a Python scalar.
        dtype: the dtype's canonical name.
        column: the column's name, for the message.
        where: the file or data set, for the message.
        policy: what may be lost; nothing by default.

    Returns:
        The same kind of thing: an array, a Series or a Python value.

    Raises:
        ConversionError: for a value that the dtype does not hold; it names column, row and value.
    """
    name = canonical(dtype)
    if isinstance(values, np.ndarray):
        return cast(Values, _array(values, name, column, where, policy))
    if isinstance(values, pl.Series):
        return cast(Values, _series(values, name, column, where, policy))
    return cast(Values, _scalar(values, name, column, where, policy))


def is_missing(value: object) -> bool:
    """Whether a Python value says that there is none: None, NaN, pandas' NaT and NA.

    >>> is_missing(None), is_missing(float("nan")), is_missing(np.datetime64("NaT")), is_missing(0)
    (True, True, True, False)
    """
    if value is None or type(value).__name__ == "NAType":
        return True
    if isinstance(value, (str, bytes, int, list, tuple, np.ndarray, pl.Series)):
        return False
    return bool(value != value)


def parse_hexadecimal(values: pl.Series, dtype: str, *, column: str, where: str | None = None) -> pl.Series:
    """The integers that hexadecimal text spells (`68fd1e64`), all 64 bits of them; of lists, those of their elements.

    >>> parse_hexadecimal(pl.Series(["ff", None, "ffffffffffffffff"]), "uint64", column="id").to_list()
    [255, None, 18446744073709551615]
    >>> parse_hexadecimal(pl.Series([["ff", "0"], []]), "uint32", column="id").to_list()
    [[255, 0], []]
    """
    if split_list(values.dtype)[1]:
        return by_element(values, dtype, column, where, partial(parse_hexadecimal, column=column, where=where))
    spelled = values.str.contains(f"^(?:{HEXADECIMAL.pattern})$")
    if not spelled.all():
        row = int((~spelled.fill_null(True)).arg_max() or 0)
        raise refused(values[row], dtype, NO_HEXADECIMAL, column, row, where)
    wide = values.str.zfill(16).str.decode("hex").bin.reinterpret(dtype=pl.UInt64, endianness="big")
    return _series(wide, canonical(dtype), column, where, "exact")


def held(values: pl.Series, dtype: str) -> tuple[pl.Series, pl.Series | None]:
    """The values that `dtype` holds, null for the others, and which those are (None: there are none).

    For looking values up: what the dtype does not hold is certainly not there.

    >>> done, lost = held(pl.Series([1.0, 1.9, None]), "int64")
    >>> done.to_list(), lost.to_list()
    ([1, None, None], [False, True, False])
    """
    wanted = to_polars(dtype)
    if values.dtype == wanted or _is_lossless(values.dtype, wanted):
        return values.cast(wanted), None
    if values.dtype.is_float():
        values = values.fill_nan(None)
    done = (
        values.cast(wanted, strict=False)
        if wanted != pl.String
        else values.clear().cast(wanted).extend_constant(None, len(values))
    )
    back = done.cast(values.dtype, strict=False) if values.dtype != pl.String or wanted.is_integer() else values
    kept = done.is_not_null() & back.eq_missing(values)
    lost = values.is_not_null() & ~kept
    if not lost.any():
        return done, None
    return done.set(lost, None), lost


# Arrays.


def _array(values: np.ndarray, dtype: str, column: str, where: str | None, policy: Policy) -> np.ndarray:
    target = to_numpy(dtype)
    if values.dtype == target:
        return values
    if values.dtype.kind not in "biuf":
        series = pl.Series(column, values, strict=False)
        done = _series(series, dtype, column, where, policy)
        if done.null_count():
            first = int(done.is_null().arg_max() or 0)
            raise refused(series[first], dtype, "an array has no place for a missing value", column, first, where)
        return done.to_numpy()
    flat = values.reshape(-1)
    try:
        return converted(flat, target, policy).reshape(values.shape)
    except BadValue as bad:
        row = bad.place // max(1, flat.size // len(values)) if values.ndim else None
        raise refused(flat[bad.place].item(), dtype, bad.reason, column, row, where) from None


# Series.


def _series(series: pl.Series, dtype: str, column: str, where: str | None, policy: Policy) -> pl.Series:
    inner, is_list = split_list(series.dtype)
    wanted = to_polars(dtype)
    if is_nested(dtype) or isinstance(inner, (pl.List, pl.Array)):
        return _nested(series, to_polars(dtype, is_list), dtype, column, where)
    if is_list:
        return (
            series
            if inner == wanted and isinstance(series.dtype, pl.List)
            else _lists(series, inner, dtype, column, where, policy)
        )
    if inner == wanted:
        return series
    if _is_lossless(inner, wanted):
        return series.cast(wanted)
    if inner.is_float() and not wanted.is_float():
        series = series.fill_nan(None)
        if series.null_count() == len(series):
            return series.cast(wanted)
    if inner == pl.Int128 and _fits(series, dtype):
        return series.cast(wanted)
    if inner.is_decimal() or inner == pl.Int128:
        return _value_by_value(series, wanted, dtype, column, where, policy)
    if (inner.is_numeric() or inner == pl.Boolean) and dtype in NUMERIC:
        return _numbers(series, dtype, column, where, policy)
    reason = reason_against(inner, wanted)
    if reason is not None:
        if series.null_count() == len(series):
            return pl.Series(series.name, [None] * len(series), dtype=wanted)
        row = int(series.is_not_null().arg_max() or 0)
        raise refused(series[row], dtype, reason, column, row, where)
    return _parsed(series, wanted, dtype, column, where)


def _nested(series: pl.Series, wanted: pl.DataType, dtype: str, column: str, where: str | None) -> pl.Series:
    """Lists of lists, which change only where polars finds every value again."""
    if series.dtype == wanted:
        return series
    reason = "lists of lists stay what they are"
    try:
        done = series.cast(wanted)
        if done.cast(series.dtype).eq_missing(series).all():
            return done
    except pl.exceptions.PolarsError:
        pass
    row = int(series.is_not_null().arg_max() or 0) if len(series) else None
    raise refused(series[row] if row is not None else None, dtype, reason, column, row, where)


def _fits(series: pl.Series, dtype: str) -> bool:
    """Whether all integers lie in an integer dtype's range."""
    if dtype not in INTEGERS or series.null_count() == len(series):
        return False
    limits = np.iinfo(dtype)
    return int(limits.min) <= cast(int, series.min()) and cast(int, series.max()) <= int(limits.max)


def _is_lossless(source: pl.DataType, wanted: pl.DataType) -> bool:
    if source == pl.Null or (isinstance(source, (pl.Categorical, pl.Enum)) and wanted == pl.String):
        return True
    if isinstance(source, pl.Duration) and wanted == pl.Int64:  # a count of its units, which is what schemas call it
        return True
    if isinstance(source, pl.Datetime) and isinstance(wanted, pl.Datetime) and source.time_unit == wanted.time_unit:
        return True  # only the time zone's name goes: the moments are the same
    return widens(source, wanted)


def _numbers(series: pl.Series, dtype: str, column: str, where: str | None, policy: Policy) -> pl.Series:
    """Numbers through NumPy; null slots hold zeros on the way, which every dtype has."""
    has_nulls = bool(series.null_count())
    values = series.fill_null(False if series.dtype == pl.Boolean else 0).to_numpy() if has_nulls else series.to_numpy()
    try:
        done = pl.Series(series.name, converted(values, to_numpy(dtype), policy))
    except BadValue as bad:
        raise refused(series[bad.place], dtype, bad.reason, column, bad.place, where) from None
    return done.set(series.is_null(), None) if has_nulls else done


def _value_by_value(
    series: pl.Series, wanted: pl.DataType, dtype: str, column: str, where: str | None, policy: Policy
) -> pl.Series:
    """Decimals and 128-bit integers, which NumPy does not have."""
    out = []
    for row, value in enumerate(series.to_list()):
        try:
            out.append(_scalar(value, dtype, column, where, policy))
        except ConversionError as error:
            raise refused(value, dtype, error.reason, column, row, where) from None
    return pl.Series(series.name, out, dtype=wanted)


def _parsed(series: pl.Series, wanted: pl.DataType, dtype: str, column: str, where: str | None) -> pl.Series:
    """Text to what it spells, and times to other units: whatever polars can, and what it gives must lead back."""
    done = series.cast(wanted, strict=False)
    back = done.cast(series.dtype, strict=False) if series.dtype.is_temporal() else series
    bad = (done.is_null() & series.is_not_null()) | ~back.eq_missing(series)
    if bad.any():
        row = int(bad.arg_max() or 0)
        raise refused(series[row], dtype, "it does not spell one" if series.dtype == pl.String else "it would be cut",
                       column, row, where)  # fmt: skip
    return done


def _lists(
    series: pl.Series, inner: pl.DataType, dtype: str, column: str, where: str | None, policy: Policy
) -> pl.Series:
    if isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    if inner == to_polars(dtype) or _is_lossless(inner, to_polars(dtype)):
        return series.cast(to_polars(dtype, is_list=True))
    return by_element(series, dtype, column, where, lambda flat, dtype: _series(flat, dtype, column, where, policy))


def by_element(
    series: pl.Series,
    dtype: str,
    column: str,
    where: str | None,
    convert_flat: Callable[[pl.Series, str], pl.Series],
) -> pl.Series:
    """Lists whose elements, end to end, another function converts; what it refuses gets the row of its list."""
    if isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    array = series.rechunk().to_arrow(compat_level=_OLDEST)
    offsets = np.concatenate([[0], np.cumsum(series.list.len().fill_null(0).to_numpy(), dtype=np.int64)])
    flat = pl.Series(series.name, array.flatten(), dtype=split_list(series.dtype)[0])
    try:
        done = convert_flat(flat, dtype)
    except ConversionError as error:
        place = 0 if error.row is None else error.row
        row = int(np.searchsorted(offsets, place, side="right")) - 1
        raise refused(error.value, dtype, error.reason, column, row, where) from None
    mask = series.is_null().rechunk().to_arrow() if series.null_count() else None
    elements = done.rechunk().to_arrow(compat_level=_OLDEST)
    rebuilt = pa.LargeListArray.from_arrays(arrow_of(offsets), elements, mask=mask)
    return pl.Series(series.name, rebuilt, dtype=to_polars(dtype, is_list=True))


# Single values.


def _scalar(value: Any, dtype: str, column: str, where: str | None, policy: Policy) -> Any:
    if is_missing(value):
        return value if type(value) is float and dtype in ("float32", "float64") else None
    if isinstance(value, (list, tuple)):
        inner = inner_of(dtype) if is_nested(dtype) else dtype
        return [_scalar(v, inner, column, where, policy) for v in value]
    if isinstance(value, np.generic) and value.dtype.kind in "biufSU":
        value = value.item()
    if dtype in NUMERIC and (isinstance(value, numbers.Real) or type(value).__name__ == "Decimal"):
        return _number(value, dtype, column, where, policy)
    if dtype == "string" and type(value) is str:
        return value
    try:
        series = time_series(value, dtype, column, where)
        if series is None:
            series = pl.Series(column, [value])
        if series.dtype == pl.Object:
            raise TypeError
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        raise refused(value, dtype, f"it is a {type(value).__name__}", column, None, where) from None
    try:
        return values_of(_series(series, dtype, column, where, policy))[0]
    except ConversionError as error:
        raise refused(value, dtype, error.reason, column, None, where) from None


def _number(value: Any, dtype: str, column: str, where: str | None, policy: Policy) -> int | float | bool:
    """A Python number by the rules of arrays; an integer that no array holds is beyond every dtype's range."""
    if not isinstance(value, (int, float)):  # fractions and decimals, by their nearest float where that is the same
        whole = int(value)
        nearest: int | float = whole if whole == value else float(value)
        if nearest != value and not (
            policy == "round" or (policy == "truncate" and dtype not in ("float32", "float64"))
        ):
            raise refused(value, dtype, "it has digits that would be lost", column, None, where)
        value = nearest
    try:
        array = np.array([value])
        if array.dtype == object:  # beyond 64 bits
            if policy == "wrap" and dtype in NUMERIC and np.dtype(dtype).kind in "iu":
                array = np.array([value % 2**64], np.uint64)
            elif policy == "saturate" or np.dtype(dtype).kind == "f":
                array = np.array([value], np.float64)
                if policy == "exact" and int(array[0]) != value:
                    raise BadValue(0, "it has digits that would be lost")
            else:
                raise BadValue(0, "it is beyond its range")
        return cast("int | float | bool", converted(array, np.dtype(dtype), policy)[0].item())
    except OverflowError:
        raise refused(value, dtype, "it is beyond its range", column, None, where) from None
    except BadValue as bad:
        raise refused(value, dtype, bad.reason, column, None, where) from None


def refused(value: object, dtype: str, reason: str, column: str, row: int | None, where: str | None) -> ConversionError:
    """The error for a value that a dtype does not hold."""
    return ConversionError(value, dtype, reason, column, row, where)
