"""Single values in the dtype that an operator declares for its output, as a column of a frame would hold them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.core.dtypes import INTEGERS
from penstock.core.schema import ColumnSchema, Schema
from penstock.etl.operator import Operator
from penstock.etl.raw_values import held_value

Settle = Callable[[Any], Any]


def settlers(op: Operator, schema: Schema) -> dict[str, Settle]:
    """A function for each output column whose values may not have the column's dtype yet.

    Floats always: a Python float has more digits than float32, and a fill value may be an int. Anything else only
    where an operator puts values of its own in.
    """
    found = {}
    for column in schema:
        one = _settler(column, op.puts_values_in)
        if one is not None:
            found[column.name] = _in_lists(one) if column.is_list else one
    return found


def _in_lists(one: Settle) -> Settle:
    return lambda value: [None if v is None else one(v) for v in value]


def _settler(column: ColumnSchema, is_foreign: bool) -> Settle | None:
    dtype = column.dtype
    if dtype == "float32":
        number = ctypes.c_float
        if is_foreign:
            return lambda value: _held(value, column)
        return lambda value: number(value).value
    if dtype == "float64":
        return lambda value: value if type(value) is float else _held(value, column)
    if not is_foreign:
        return None
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        low, high = int(limits.min), int(limits.max)
        return lambda value: value if type(value) is int and low <= value <= high else _held(value, column)
    return lambda value: _held(value, column)


def _held(value: Any, column: ColumnSchema) -> Any:
    return held_value(value, column.dtype, column.name)
