"""Columns as keys: every dtype reduced to 32-bit, 64-bit or byte-string keys that hash tables and hashes take.

Null slots come as a mask. NaN counts as missing; -0.0 and 0.0 are one value.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

_OLDEST = pl.CompatLevel.oldest()
_KEY_DTYPES = {"uint32": (pl.UInt32, pl.Int32), "uint64": (pl.UInt64, pl.Int64)}  # unsigned, signed


class Keys(NamedTuple):
    """`kind` is `uint32`, `uint64` or `bytes`; byte strings come as `(data, offsets)`; `valid` None: no nulls."""

    kind: str
    values: np.ndarray | tuple[np.ndarray, np.ndarray]
    valid: np.ndarray | None


def key_kind(dtype: pl.DataType) -> str:
    """The kind of key that columns of a dtype become.

    >>> key_kind(pl.Int8()), key_kind(pl.Datetime()), key_kind(pl.String())
    ('uint32', 'uint64', 'bytes')
    """
    if isinstance(dtype, (pl.String, pl.Binary, pl.Categorical, pl.Enum, pl.Decimal)):  # decimals have up to 128 bits
        return "bytes"
    narrow = (pl.Boolean, pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32, pl.Null, pl.Date)
    return "uint32" if isinstance(dtype, narrow) else "uint64"


def to_keys(series: pl.Series) -> Keys:
    """The keys of a column."""
    dtype = series.dtype
    if dtype.is_float():
        series = one_zero(series.cast(pl.Float64).fill_nan(None))
    valid = valid_mask(series)
    kind = key_kind(dtype)
    if kind == "bytes":
        return Keys(kind, _byte_strings(series), valid)
    if isinstance(dtype, pl.Null):
        return Keys(kind, np.zeros(len(series), np.uint32), valid)
    return Keys(kind, integers(series, kind), valid)


def one_zero(series: pl.Series) -> pl.Series:
    """A float column with -0.0 as 0.0 (polars takes `+ 0.0` for nothing to do).

    >>> one_zero(pl.Series([-0.0, 1.5, None])).to_list()
    [0.0, 1.5, None]
    """
    zero = series == 0.0
    return series.set(zero, 0.0) if zero.any() else series


def integers(series: pl.Series, kind: str) -> np.ndarray:
    """The integers behind a column (whatever stands in null slots) as `uint32` or `uint64`, signs extended."""
    physical = series if series.dtype.is_numeric() else series.to_physical()
    dtype = physical.dtype
    if dtype.is_float():
        return raw_values(physical).view(np.uint64)
    wanted = _KEY_DTYPES[kind][dtype.is_signed_integer()]
    if type(dtype) is not wanted:
        physical = physical.cast(wanted)
    return raw_values(physical).view(kind)


def valid_mask(series: pl.Series) -> np.ndarray | None:
    """One boolean a row, False for null; None for a column without nulls.

    Read from the column's own bits: polars' methods on a column plan and run a query each, which takes longer than the
    work on a few thousand rows, and holds the interpreter's lock.

    >>> valid_mask(pl.Series([1, None, 3])).tolist(), valid_mask(pl.Series([1, 3]))
    ([True, False, True], None)
    """
    if not series.null_count():
        return None
    array = _in_one_piece(series).to_arrow()
    bits = array.buffers()[0]
    if bits is None:  # of the null type, which has no memory at all
        return np.zeros(len(series), np.bool_)
    skipped = array.offset % 8
    packed = np.frombuffer(bits, np.uint8)[array.offset // 8 :]
    return np.unpackbits(packed, count=skipped + len(array), bitorder="little").view(np.bool_)[skipped:]


def raw_values(series: pl.Series) -> np.ndarray:
    """The buffer of a numeric column without a copy; null slots hold anything."""
    series = _in_one_piece(series)
    if not series.null_count():
        return series.to_numpy()  # a quarter of what the way through Arrow takes
    array = series.to_arrow()
    buffer, dtype = array.buffers()[1], _numpy_dtype(type(series.dtype))
    if buffer is None or not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array)]


@cache
def _numpy_dtype(kind: type[pl.DataType]) -> np.dtype:
    return np.dtype(kind.__name__.lower())


def _in_one_piece(series: pl.Series) -> pl.Series:
    return series if series.n_chunks() == 1 else series.rechunk()


def as_texts(series: pl.Series) -> pl.Series:
    """A column whose keys are byte strings, as texts or bytes."""
    return series if isinstance(series.dtype, (pl.String, pl.Binary)) else series.cast(pl.String)


def _byte_strings(series: pl.Series) -> tuple[np.ndarray, np.ndarray]:
    array = as_texts(series).rechunk().to_arrow(compat_level=_OLDEST)
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    if not len(starts):
        starts = np.zeros(1, np.int64)
    return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), starts


def from_keys(keys: np.ndarray | tuple[np.ndarray, np.ndarray], dtype: pl.DataType) -> pl.Series:
    """The column that distinct keys came from."""
    if isinstance(keys, tuple):
        data, offsets = keys
        buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int64)), pa.py_buffer(data)]
        kind = pa.large_binary() if dtype == pl.Binary else pa.large_string()
        series = pl.Series(pa.Array.from_buffers(kind, len(offsets) - 1, buffers))
        return series if series.dtype == dtype else series.cast(dtype)
    if dtype.is_float():
        return pl.Series(keys.view(np.float64)).cast(dtype)
    signed = dtype.is_signed_integer() or dtype.is_temporal()
    return pl.Series(keys.view(np.dtype(f"int{8 * keys.itemsize}")) if signed else keys).cast(dtype)


def stable_hashes(series: pl.Series) -> np.ndarray:
    """A 64-bit hash of each value: the same on every machine and release; null hashes as a value of its own."""
    from penstock.kernels.cpu_hash import hash64

    keys = to_keys(series)
    hashes = hash64(keys.values)
    if keys.valid is not None:
        hashes = np.where(keys.valid, hashes, np.uint64(0x9E3779B97F4A7C15))
    return hashes
