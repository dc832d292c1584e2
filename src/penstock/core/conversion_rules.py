"""What every dtype holds: the arithmetic of `core.conversion` on NumPy arrays, and which pairs of dtypes widen."""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl

Policy = Literal["exact", "round", "truncate", "wrap", "saturate"]

FRACTION, RANGE, DIGITS = "it has a fraction", "it is beyond its range", "it has digits that would be lost"
MISSING = "it is missing, and integers have no value for that"


class BadValue(Exception):
    """The first value that cannot be converted: its place and what is wrong with it."""

    def __init__(self, place: int, reason: str) -> None:
        self.place, self.reason = place, reason
        super().__init__(reason)


def widens(source: pl.DataType, wanted: pl.DataType) -> bool:
    """Whether every value of one dtype is a value of the other.

    >>> widens(pl.UInt8(), pl.Int16()), widens(pl.Int64(), pl.Float64()), widens(pl.Date(), pl.Datetime("us"))
    (True, False, False)
    """
    if not (source.is_numeric() or source == pl.Boolean) or source.is_decimal() or source == pl.Int128:
        return (source, wanted) == (pl.String(), pl.Binary())
    if not wanted.is_numeric() or wanted.is_decimal():
        return source.is_integer() and wanted == pl.String
    if source == pl.Boolean:
        return True
    return bool(np.can_cast(np.dtype(str(source).lower()), np.dtype(str(wanted).lower()), "safe")) and not (
        source in (pl.Int64, pl.UInt64) and wanted.is_float()  # NumPy calls that safe; beyond 2**53 it rounds
    )


def reason_against(source: pl.DataType, wanted: pl.DataType) -> str | None:
    """Why values of one dtype never become values of another; None where some do."""
    if source == wanted or source == pl.Null:
        return None
    if source == pl.String:
        return None if wanted.is_numeric() or wanted == pl.Binary else "it is text"
    if source.is_temporal() and wanted.is_temporal():
        times = pl.Time in (source, wanted) or isinstance(source, pl.Duration)
        return "a time of day is no moment" if times else None
    return f"it is {'a time' if source.is_temporal() else str(source).lower()}, not {str(wanted).lower()}"


def converted(values: np.ndarray, target: np.dtype, policy: Policy) -> np.ndarray:
    """One-dimensional numbers in another dtype; raises `BadValue` for the first that the policy refuses."""
    source = values.dtype
    if source == target:
        return values
    if target.kind == "b":
        _refuse(~((values == 0) | (values == 1)), values, RANGE)
        return values.astype(target)
    if source.kind == "b" or (np.can_cast(source, target, "safe") and not _rounds(source, target)):
        return values.astype(target)
    if target.kind == "f":
        return _to_float(values, target, policy)
    return _to_integer(values, target, policy)


def _rounds(source: np.dtype, target: np.dtype) -> bool:
    return source.kind in "iu" and source.itemsize == 8 and target.kind == "f"


def _to_float(values: np.ndarray, target: np.dtype, policy: Policy) -> np.ndarray:
    with np.errstate(over="ignore"):
        out = values.astype(target)
    if values.dtype.kind == "f":
        overflow = np.isinf(out) & np.isfinite(values)
        if policy == "saturate" and overflow.any():
            out[overflow] = np.copysign(np.finfo(target).max, out[overflow])
            return out
        _refuse(overflow, values, RANGE)
        if policy != "round":
            _refuse((out != values) & ~np.isnan(values), values, DIGITS)
        return out
    if policy != "round" and len(values) and not _all_within(values, 2 ** (np.finfo(target).nmant + 1)):
        _refuse(~_same_integer(values, out), values, DIGITS)
    return out


def _all_within(values: np.ndarray, bound: int) -> bool:
    return -bound <= int(values.min()) and int(values.max()) <= bound


def _same_integer(values: np.ndarray, floats: np.ndarray) -> np.ndarray:
    """Whether each float is the integer that it came from; the bound itself, 2**63 or 2**64, never is."""
    inside: np.ndarray = floats < np.float64(2.0 ** (8 * values.dtype.itemsize - (values.dtype.kind == "i")))
    same: np.ndarray = np.where(inside, floats, 0).astype(values.dtype) == values
    both: np.ndarray = inside & same
    return both


def _to_integer(values: np.ndarray, target: np.dtype, policy: Policy) -> np.ndarray:
    limits = np.iinfo(target)
    if values.dtype.kind == "f":
        _refuse(np.isnan(values), values, MISSING)
        whole = np.rint(values) if policy == "round" else np.trunc(values)
        if policy not in ("round", "truncate"):
            _refuse((whole != values) & np.isfinite(values), values, FRACTION)
        # 2**bits is a float; the largest integer below it need not be one.
        low, high = whole < float(limits.min), whole >= np.ldexp(1.0, limits.bits - (limits.min < 0))
    else:
        if not len(values) or (limits.min <= int(values.min()) and int(values.max()) <= limits.max):
            return values.astype(target)
        whole, low, high = values, values < int(limits.min), values > int(limits.max)
    return _into_range(values, whole, low, high, target, policy)


def _into_range(
    values: np.ndarray, whole: np.ndarray, low: np.ndarray, high: np.ndarray, target: np.dtype, policy: Policy
) -> np.ndarray:
    outside = low | high
    if policy == "saturate":
        limits = np.iinfo(target)
        out = np.where(outside, 0, whole).astype(target)
        out[low], out[high] = limits.min, limits.max
        return out
    if policy == "wrap" and values.dtype.kind in "iu":
        return values.astype(target)
    if policy == "wrap":
        _refuse(np.isinf(values), values, RANGE)
        bits = 8 * target.itemsize
        modulo = [int(value) % 2**bits for value in whole]
        return np.array(modulo, np.uint64).astype(f"uint{bits}").view(target)
    _refuse(outside, values, RANGE)
    return whole.astype(target)


def _refuse(bad: np.ndarray, values: np.ndarray, reason: str) -> None:
    if bad.any():
        raise BadValue(int(bad.argmax()), reason)
