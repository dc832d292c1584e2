"""Chains of element-wise steps over columns of numbers of any kind, all columns in one call, a block at a time.

Formula of a column: `x` in float64, or `fill` where it is missing (null or NaN); then, step by step,
`max(low, min(x, high))`, `log(1 + x)` as float32, `(x - offset) / scale` in float64 and stored as float32. The bits are
those of the operators one by one. Columns that are all int32 have a quicker way: `cpu_numbers`.
"""

from __future__ import annotations

import numpy as np

from penstock.core.runtime.buffers import SpareBuffers
from penstock.kernels.cpu_intrinsics import KERNEL, LOG2_4, LOG2_8, load32, load64
from penstock.kernels.cpu_log1p import BLOCK, log1p_block, log1p_by_numpy, unsure
from penstock.kernels.cpu_numbers import CLIP, FILL, LOG, SCALE, put_where_missing
from penstock.kernels.cpu_stats import (
    BINS_FLOAT32,
    BINS_FLOAT64,
    CHUNK,
    NO_FLOAT32,
    NO_FLOAT64,
    SPECIAL_FLOAT32,
    Moments,
    bin_block32,
    bin_block64,
    exact_moments,
    moments_of_keys,
)
from penstock.kernels.kernel_cache import njit

DTYPES = ("float64", "float32", "int64", "int32")  # by number, as `kinds_of` gives them
_numbers = SpareBuffers()
U64, I64 = np.uint64, np.int64


def run_float_chain(places: np.ndarray, dtypes: np.ndarray, num_rows: int, steps: np.ndarray) -> np.ndarray:
    """What the steps make of columns, `(columns, rows)` of float32; one of them is a logarithm or scales.

    Args:
        places: `(columns, 3)`: where a column's values lie, their validity bits (0: none), and the first bit.
        dtypes: of each column, its number in `DTYPES`.
        num_rows: of each column.
        steps: `(columns, steps, 3)`, the same kinds of steps in every column, in the order of their numbers.

    >>> values = np.array([-3, 0, 70_000.5])
    >>> place, dtypes = np.array([[values.ctypes.data, 0, 0]]), np.zeros(1, np.int64)
    >>> steps = np.array([[(CLIP, 0, np.inf), (LOG, 0, 0), (SCALE, 1.0, 2.0)]], float)
    >>> run_float_chain(place, dtypes, 3, steps).astype(float).round(3).tolist()
    [[-0.5, -0.5, 5.078]]
    """
    out = _numbers.array((len(places), num_rows), np.float32)
    rows, values, found = _left_to_numpy(len(places), num_rows, steps)
    _chain(places, dtypes, num_rows, steps, out, rows, values, found)
    for column in np.flatnonzero(found).tolist():
        own = slice(column * num_rows, column * num_rows + int(found[column]))
        made = log1p_by_numpy(values[own])
        for kind, offset, scale in steps[column].tolist():
            if kind == SCALE:
                with np.errstate(all="ignore"):
                    made = ((made.astype(np.float64) - offset) / scale).astype(np.float32)
        out[column, rows[own]] = made
    return out


def moments_of_chain(places: np.ndarray, dtypes: np.ndarray, num_rows: int, steps: np.ndarray) -> list[Moments] | None:
    """The exact moments of what steps without scaling make of each column; None where a number is not finite.

    >>> values, steps = np.array([0.5, 1.5, -2.0]), np.array([[(CLIP, 0.0, np.inf)]])
    >>> place, dtypes = np.array([[values.ctypes.data, 0, 0]]), np.zeros(1, np.int64)
    >>> moments_of_chain(place, dtypes, 3, steps) == [exact_moments(np.array([0.5, 1.5, 0.0]))]
    True
    """
    found = [Moments()] * len(places)
    for begin in range(0, num_rows, CHUNK):
        part = _moments_of_rows(places, dtypes, begin, min(begin + CHUNK, num_rows), steps)
        if part is None:
            return None
        found = [one.merge(other) for one, other in zip(found, part, strict=True)]
    return found


def _moments_of_rows(
    places: np.ndarray, dtypes: np.ndarray, begin: int, end: int, steps: np.ndarray
) -> list[Moments] | None:
    """`moments_of_chain` of as many rows as the bins can take."""
    has_logarithm, size = bool((steps[0, :, 0] == LOG).any()), end - begin
    rows, values, found = _left_to_numpy(len(places), size, steps)
    extremes, out = np.zeros((len(places), 3), np.int64), []
    narrow = np.zeros((len(places) if has_logarithm else 0, *BINS_FLOAT32), np.int64)
    wide = np.zeros((0 if has_logarithm else len(places), *BINS_FLOAT64), np.int64)
    _bin_chain(places, dtypes, begin, end, steps, narrow, wide, extremes, rows, values, found)
    for column, (count, least, greatest) in enumerate(extremes.tolist()):
        others = values[column * size : column * size + int(found[column])]
        if count + len(others) < size:
            return None
        moments = moments_of_keys(narrow[column] if has_logarithm else wide[column], count, least, greatest)
        out.append(moments.merge(exact_moments(log1p_by_numpy(others))) if len(others) else moments)
    return out


def _left_to_numpy(num_columns: int, num_rows: int, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Room for rows whose logarithms NumPy must say, their numbers, and how many there are of each column.

    Memory that is not written to costs nothing.
    """
    size = num_columns * num_rows if (steps[0, :, 0] == LOG).any() else 0
    return np.empty(size, np.int32), np.empty(size, np.float64), np.zeros(num_columns, np.int64)


@njit(**KERNEL)
def _read_block(place: np.ndarray, dtype: int, first: int, count: int, fills: bool, fill: float, x: np.ndarray) -> None:
    """A column's numbers from a row on, `fill` where one is missing."""
    address, bits, first_bit = U64(place[0]), U64(place[1]), U64(place[2])
    if dtype == 0:
        words = x.view(np.int64)
        for k in range(count):
            words[k] = I64(load64(address + (U64(first + k) << LOG2_8)))
    elif dtype == 1:
        halves = np.empty(BLOCK, np.int32)
        for k in range(count):
            halves[k] = np.int32(load32(address + (U64(first + k) << LOG2_4)))
        floats = halves.view(np.float32)
        for k in range(count):
            x[k] = np.float64(floats[k])
    elif dtype == 2:
        for k in range(count):
            x[k] = np.float64(I64(load64(address + (U64(first + k) << LOG2_8))))
    else:
        for k in range(count):
            x[k] = np.float64(np.int32(load32(address + (U64(first + k) << LOG2_4))))
    if fills:
        for k in range(count):
            x[k] = fill if x[k] != x[k] else x[k]
        if bits != U64(0):
            put_where_missing(bits, first_bit + U64(first), count, fill, x)


@njit(**KERNEL)
def _before_logarithm(place, dtype, first, count, steps, x):
    """A block of a column, filled and clipped."""
    fills = steps.shape[0] > 0 and steps[0, 0] == FILL
    _read_block(place, dtype, first, count, fills, steps[0, 1] if fills else 0.0, x)
    for step in range(steps.shape[0]):
        if steps[step, 0] == CLIP:
            low, high = steps[step, 1], steps[step, 2]
            for k in range(count):
                above = low if x[k] < low else x[k]
                x[k] = high if above > high else above


@njit(**KERNEL)
def _list_unsure(x, m, real, first, count, rows, values, place):
    """Put down the rows of a block that NumPy must be asked of, from a place on; how many they are."""
    added = 0
    for k in range(count):
        if unsure(x, m, real, k):
            rows[place + added], values[place + added] = first + k, x[k]
            added += 1
    return added


@njit(**KERNEL)
def _chain(places, dtypes, num_rows, steps, out, rows, values, found):
    """See `run_float_chain`; rows that NumPy must be asked of get anything."""
    x, u, m, real = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK, np.float32)
    for column in range(places.shape[0]):
        own = steps[column]
        for first in range(0, num_rows, BLOCK):
            count = min(BLOCK, num_rows - first)
            _before_logarithm(places[column], dtypes[column], first, count, own, x)
            for step in range(own.shape[0]):
                if own[step, 0] == LOG:
                    if not log1p_block(x, count, u, m, real):
                        place = column * num_rows + found[column]
                        found[column] += _list_unsure(x, m, real, first, count, rows, values, place)
                    for k in range(count):
                        x[k] = np.float64(real[k])
                elif own[step, 0] == SCALE:
                    offset, scale = own[step, 1], own[step, 2]
                    for k in range(count):
                        real[k] = np.float32((x[k] - offset) / scale)
                    for k in range(count):
                        x[k] = np.float64(real[k])
            for k in range(count):
                out[column, first + k] = real[k]


@njit(**KERNEL)
def _bin_chain(places, dtypes, begin, end, steps, narrow, wide, extremes, rows, values, found):
    """See `moments_of_chain`: sums of logarithms in `narrow`, of other numbers in `wide`."""
    x, u, m, real = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK, np.float32)
    words, wide_words = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.int64)
    for column in range(places.shape[0]):
        own, of_logarithms, of_numbers = steps[column], NO_FLOAT32, NO_FLOAT64
        has_logarithm = own[own.shape[0] - 1, 0] == LOG
        for first in range(begin, end, BLOCK):
            count = min(BLOCK, end - first)
            _before_logarithm(places[column], dtypes[column], first, count, own, x)
            if has_logarithm:
                is_sure = log1p_block(x, count, u, m, real)
                for k in range(count):
                    words[k] = real.view(np.int32)[k]
                if not is_sure:
                    place = column * (end - begin) + found[column]
                    added = _list_unsure(x, m, real, first, count, rows, values, place)
                    for k in range(added):
                        words[rows[place + k] - first] = SPECIAL_FLOAT32
                    found[column] += added
                of_logarithms = bin_block32(words, count, narrow[column], of_logarithms)
            else:
                for k in range(count):
                    wide_words[k] = x.view(np.int64)[k]
                of_numbers = bin_block64(wide_words, count, wide[column], of_numbers)
        if has_logarithm:
            extremes[column, 0], extremes[column, 1], extremes[column, 2] = of_logarithms
        else:
            extremes[column, 0], extremes[column, 1], extremes[column, 2] = of_numbers
