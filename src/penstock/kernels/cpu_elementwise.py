"""Element-wise kernels: `log1p_float32` and `digitize`, equal to NumPy's results bit for bit."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from penstock.core.errors import ParameterError
from penstock.kernels.cpu_intrinsics import KERNEL, kernel_input
from penstock.kernels.cpu_log1p import BLOCK, log1p_block, log1p_by_numpy, unsure
from penstock.kernels.kernel_cache import njit

__all__ = ["digitize", "log1p_float32"]

TABLE_SIZE = 1 << 16
CHUNK = 1 << 20  # rows at a time


def log1p_float32(values: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """`np.log1p(x.astype(float64)).astype(float32)`, integers below 65,536 by table.

    -1 gives -inf, anything below and NaN give NaN, without warnings.

    >>> log1p_float32(np.array([0, 1, 70_000, -1, -2], np.int32)).tolist()
    [0.0, 0.6931471824645996, 11.156265258789062, -inf, nan]
    """
    values = np.asarray(values)
    if values.dtype.kind not in "iufb" or values.ndim != 1 or values.dtype.itemsize > 8:
        raise ParameterError(f"log1p takes a 1-D array of numbers, got {values.ndim}-D {values.dtype}")
    values = kernel_input(values, np.float32 if values.dtype == np.float16 else None)
    out = np.empty(len(values), np.float32) if out is None else out
    if out.dtype != np.float32 or out.shape != values.shape:
        raise ParameterError(f"out must be float32 of shape {values.shape}, got {out.dtype} of shape {out.shape}")
    others = np.empty(min(CHUNK, len(values)) + 1, np.int32)
    for start in range(0, len(values), CHUNK):
        part, target = values[start : start + CHUNK], out[start : start + CHUNK]
        if values.dtype.kind == "f":
            num_others = _float_logarithms(part, target, others)
        else:
            num_others = _table_integer(part, _table(), target, others)
        if num_others:
            rows = others[:num_others]
            target[rows] = log1p_by_numpy(part[rows])
    return out


def digitize(values: np.ndarray, boundaries: Any, out: np.ndarray | None = None) -> np.ndarray:
    """`np.digitize` as int32: how many of the ascending `boundaries` are not above each value; NaN is above all.

    >>> digitize(np.array([0.5, 1.0, 7.0, np.nan]), [1, 5]).tolist()
    [0, 1, 2, 2]
    """
    values, limits = np.asarray(values), np.asarray(boundaries)
    if limits.ndim != 1 or limits.dtype.kind not in "iuf" or not (limits[1:] >= limits[:-1]).all():
        raise ParameterError(f"boundaries must be numbers in ascending order, got {boundaries!r}")
    if limits.dtype.kind == "f" and np.isnan(limits).any():
        raise ParameterError(f"boundaries must not hold NaN, got {boundaries!r}")
    if values.ndim != 1 or values.dtype.kind not in "iufb":
        raise ParameterError(f"digitize takes a 1-D array of numbers, got {values.ndim}-D {values.dtype}")
    common = np.result_type(values, limits)  # NumPy compares in this type, rounding included
    common = np.dtype(np.float32) if common == np.float16 else common
    values = kernel_input(values, np.float32 if values.dtype == np.float16 else None)
    out = np.empty(len(values), np.int32) if out is None else out
    if out.dtype != np.int32 or out.shape != values.shape:
        raise ParameterError(f"out must be int32 of shape {values.shape}, got {out.dtype} of shape {out.shape}")
    _digitize(values, kernel_input(limits, common), out)
    return out


@functools.cache
def _table() -> np.ndarray:
    return np.log1p(np.arange(TABLE_SIZE, dtype=np.float64)).astype(np.float32)


@njit(**KERNEL)
def _table_integer(values: np.ndarray, table: np.ndarray, out: np.ndarray, others: np.ndarray) -> Any:
    """Fill in what the table holds; list the other rows and return how many they are."""
    num_others = np.uint64(0)
    for row in range(values.shape[0]):
        value = np.uint64(values[row])  # negative numbers become huge
        inside = value < np.uint64(TABLE_SIZE)
        out[row] = table[value if inside else np.uint64(0)]
        others[num_others] = row
        num_others += np.uint64(not inside)
    return np.int64(num_others)


@njit(**KERNEL)
def _float_logarithms(values: np.ndarray, out: np.ndarray, others: np.ndarray) -> Any:
    """`_table_integer` for floats, which no table has."""
    x, u, m, num_others = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.int64(0)
    for first in range(0, values.shape[0], BLOCK):
        count = min(BLOCK, values.shape[0] - first)
        for k in range(count):
            x[k] = np.float64(values[first + k])
        real = out[first : first + count]
        if not log1p_block(x, count, u, m, real):
            for k in range(count):
                others[num_others] = first + k
                num_others += np.int64(unsure(x, m, real, k))
    return num_others


@njit(**KERNEL)
def _digitize(values: np.ndarray, boundaries: np.ndarray, out: np.ndarray) -> None:
    """A binary search whose steps depend on the number of boundaries alone, so that no branch is mispredicted."""
    one = np.uint64(1)
    for row in range(values.shape[0]):
        value, passed, length = values[row], np.uint64(0), np.uint64(boundaries.shape[0])
        while length > one:
            half = length >> one
            passed += half * np.uint64(not (value < boundaries[passed + half - one]))  # NaN is not below anything
            length -= half
        if length == one:
            passed += np.uint64(not (value < boundaries[passed]))
        out[row] = passed
