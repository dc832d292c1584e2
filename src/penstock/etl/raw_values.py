"""Raw values into the input schema's dtypes: the same rules for frames, for one row and for a few.

Integers and text must be what the column holds; a float column takes the nearest float of its width. Missing text may
come as NaN, a missing time as NaT: what pandas makes of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl

from penstock.core.conversion import (
    HEXADECIMAL,
    NO_HEXADECIMAL,
    Policy,
    convert,
    is_missing,
    parse_hexadecimal,
)
from penstock.core.dtypes import FLOATS, INTEGERS, split_list
from penstock.core.errors import ConversionError, SchemaError
from penstock.core.schema import ColumnSchema
from penstock.core.times import duration_counts, time_series

ROW = "the row given to the workflow"
FRAME = "the data given to the workflow"

Convert = Callable[[Any], Any]
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


def is_hexadecimal(column: ColumnSchema) -> bool:
    """Whether a column's raw form is hexadecimal text."""
    return column.properties.get("text") == "hex"


def policy_of(dtype: str) -> Policy:
    """What may be lost of a raw value: digits that a float column does not have, nothing else."""
    return "round" if dtype in FLOATS else "exact"


def held_value(value: Any, dtype: str, column: str, where: str | None = None) -> Any:
    """A value that an operator puts into a column: integers as they are, floats as near as the dtype has them."""
    policy: Policy = "exact" if isinstance(value, int) else policy_of(dtype)
    held = convert(value, dtype, column=column, where=where, policy=policy)
    if held is None:
        raise ConversionError(value, dtype, "it means missing", column, where=where)
    return held


def converted_column(series: pl.Series, column: ColumnSchema) -> pl.Series:
    """A frame's column in the dtype that the workflow was fitted on."""
    if series.dtype == column.polars_dtype:
        return series
    if series.dtype == pl.Null:
        return series.cast(column.polars_dtype)
    inner, is_list = split_list(series.dtype)
    if is_list != column.is_list:
        found, wanted = ("lists", "single values") if is_list else ("single values", "lists")
        raise SchemaError(f"column {column.name!r} holds {found}; the workflow was fitted on {wanted}")
    if is_hexadecimal(column) and inner == pl.String:
        return parse_hexadecimal(series, column.dtype, column=column.name, where=FRAME)
    if isinstance(inner, pl.Duration) and "duration" in column.properties:
        return duration_counts(series, column.properties["duration"], column.name, FRAME)
    return convert(series, column.dtype, column=column.name, where=FRAME, policy=policy_of(column.dtype))


def value_converter(column: ColumnSchema) -> Convert:
    """What turns one raw value that is not None into the Python value of the column's dtype, or None."""
    one = _element_converter(column)
    return _list_converter(column, one) if column.is_list else one


def _list_converter(column: ColumnSchema, one: Convert) -> Convert:
    def convert_list(value: Any) -> list[Any] | None:
        if isinstance(value, (np.ndarray, pl.Series)):
            value = value.tolist() if isinstance(value, np.ndarray) else value.to_list()
        if isinstance(value, (list, tuple)):
            return [None if v is None else one(v) for v in value]
        if is_missing(value):
            return None
        raise ConversionError(value, f"list of {column.dtype}", "it is no list", column.name, where=ROW)

    return convert_list


def _element_converter(column: ColumnSchema) -> Convert:
    # One function a column and no call inside for values that come as they should: this runs for every value.
    name, dtype = column.name, column.dtype

    def slow(value: Any) -> Any:
        return convert(value, dtype, column=name, where=ROW, policy=policy_of(dtype))

    if "duration" in column.properties:
        return _span_converter(column, slow)
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        low, high = int(limits.min), int(limits.max)
        if is_hexadecimal(column):
            return _hexadecimal_converter(column, high, slow)
        return lambda value: value if type(value) is int and low <= value <= high else slow(value)
    if dtype == "float32":  # a Python float has more digits than the column would keep
        number = ctypes.c_float

        def nearest(value: Any) -> Any:
            if type(value) is float:
                near = number(value).value
                if -_LARGEST_FLOAT32 <= near <= _LARGEST_FLOAT32:
                    return near
            return slow(value)

        return nearest
    python = {"float64": float, "string": str, "bool": bool}.get(dtype)
    return slow if python is None else lambda value: value if type(value) is python else slow(value)


def _span_converter(column: ColumnSchema, slow: Convert) -> Convert:
    """Spans of time as whole numbers of the column's unit; numbers are such already."""
    unit, name = column.properties["duration"], column.name

    def span(value: Any) -> Any:
        if isinstance(value, (timedelta, np.timedelta64)) and not is_missing(value):
            series = time_series(value, column.dtype, name, ROW)
            return duration_counts(pl.Series([value]) if series is None else series, unit, name, ROW)[0]
        return slow(value)

    return span


def _hexadecimal_converter(column: ColumnSchema, high: int, slow: Convert) -> Convert:
    is_spelled = HEXADECIMAL.fullmatch

    def hexadecimal(value: Any) -> Any:
        if type(value) is str:
            if is_spelled(value):
                number = int(value, 16)
                if number <= high:
                    return number
            reason = "it is beyond its range" if is_spelled(value) else NO_HEXADECIMAL
            raise ConversionError(value, column.dtype, reason, column.name, where=ROW)
        return value if type(value) is int and 0 <= value <= high else slow(value)

    return hexadecimal
