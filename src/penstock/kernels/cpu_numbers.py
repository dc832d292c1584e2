"""Chains of element-wise steps over columns of 32-bit integers, all columns in one call, a block at a time.

Formula of a column: `x`, or `fill` where it is missing; then, step by step, `max(low, min(x, high))`, `log(1 + x)` as
float32, `(x - offset) / scale` in float64 and stored as float32. The bits are those of the operators one by one.

Behind the integers a logarithm comes from a table, and what is scaled then from one that is scaled already. So are the
moments of logarithms: how often each integer occurs says all about them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from penstock.core.runtime.buffers import SpareBuffers
from penstock.kernels.cpu_elementwise import TABLE_SIZE, _table
from penstock.kernels.cpu_intrinsics import KERNEL, LOG2_4, load8, load32, load64
from penstock.kernels.cpu_log1p import log1p_by_numpy
from penstock.kernels.cpu_stats import LOW, Moments, exact_moments, moments_of_columns
from penstock.kernels.kernel_cache import njit

FILL, CLIP, LOG, SCALE = range(4)
BLOCK = 4096  # rows that stay in the first-level cache from step to step
WORTH_TABLES = 1 << 14  # rows for which tables of scaled logarithms are made
_numbers = SpareBuffers()
U64, U32, I64 = np.uint64, np.uint32, np.int64
Step = tuple[int, float, float]  # what is done, and with what


def run_chain(places: np.ndarray, num_rows: int, steps: np.ndarray) -> np.ndarray:
    """What the steps make of columns, `(columns, rows)`: int32, or float32 behind a logarithm or scaling.

    Args:
        places: `(columns, 3)`: where a column's int32 lie, their validity bits (0: none), and the first bit.
        num_rows: of each column.
        steps: `(columns, steps, 3)`, the same kinds of steps in every column; a fill comes first if at all.

    >>> values = np.array([-3, 0, 70_000], np.int32)
    >>> place = np.array([[values.ctypes.data, 0, 0]])
    >>> steps = np.array([[(CLIP, 0, 2**31 - 1), (LOG, 0, 0), (SCALE, 1.0, 2.0)]], float)
    >>> run_chain(place, 3, steps).astype(float).round(3).tolist()
    [[-0.5, -0.5, 5.078]]
    """
    kinds = steps[0, :, 0].astype(np.int64)
    is_float = bool((kinds >= LOG).any())
    out = _numbers.array((len(places), num_rows), np.float32 if is_float else np.int32)
    has_logarithm = bool((kinds == LOG).any())
    # What no table has is left to NumPy; memory that is not written to costs nothing.
    size = len(places) * num_rows + 1 if has_logarithm else 0  # a row is put down before it is known to be one
    rows, values = np.empty(size, np.int32), np.empty(size, np.int32)
    found = np.zeros(len(places), np.int64)
    after = steps[:, int(np.flatnonzero(kinds == LOG)[0]) + 1 :] if has_logarithm else steps
    tables, todo = _table()[None], kinds
    if has_logarithm and num_rows >= WORTH_TABLES:
        tables, todo = _scaled_tables(after.tobytes(), len(places)), kinds[: len(kinds) - after.shape[1]]
    _chain(places, num_rows, todo, steps, tables, out.view(np.int32), rows, values, found)
    for column in np.flatnonzero(found).tolist():
        own = slice(column * num_rows, column * num_rows + int(found[column]))
        out[column, rows[own]] = _scaled(log1p_by_numpy(values[own]), after[column])
    return out


def moments_of_logarithms(places: np.ndarray, num_rows: int, steps: np.ndarray) -> list[Moments]:
    """The exact moments of what `run_chain` makes of each column, for steps of which the last is a logarithm.

    >>> values = np.array([0, 1, 1, -1], np.int32)
    >>> [moments] = moments_of_logarithms(np.array([[values.ctypes.data, 0, 0]]), 4, np.array([[(LOG, 0.0, 0.0)]]))
    >>> moments == exact_moments(log1p_by_numpy(values)), moments.negative_infinities
    (True, 1)
    """
    kinds = steps[0, :-1, 0].astype(np.int64)
    bins, extremes = np.zeros((len(places), 256, 3), np.int64), np.zeros((len(places), 3), np.int64)
    others, found = np.empty(len(places) * num_rows + 1, np.int32), np.zeros(len(places) + 1, np.int64)
    table, counts = _table(), np.zeros(TABLE_SIZE, np.int64)
    _count_logarithms(places, num_rows, kinds, steps, table.view(np.int32), counts, bins, extremes, others, found[1:])
    out = moments_of_columns(bins, extremes[:, 0].tolist(), table[extremes[:, 1:]].astype(np.float64).tolist())
    for column in np.flatnonzero(np.diff(found)).tolist():
        outside = others[found[column] : found[column + 1]]
        out[column] = out[column].merge(exact_moments(log1p_by_numpy(outside)))
    return out


@functools.lru_cache(maxsize=4)
def _scaled_tables(steps: bytes, num_columns: int) -> np.ndarray:
    """The logarithms of the table, scaled as each column's are; a single line where they are not."""
    after = np.frombuffer(steps, np.float64).reshape(num_columns, -1, 3)
    return np.stack([_scaled(_table(), own) for own in after]) if after.shape[1] else _table()[None]


def _scaled(logarithms: np.ndarray, steps: np.ndarray) -> np.ndarray:
    for _, offset, scale in steps.tolist():
        with np.errstate(all="ignore"):
            logarithms = ((logarithms.astype(np.float64) - offset) / scale).astype(np.float32)
    return logarithms


@njit(**KERNEL)
def _read_block(places: np.ndarray, column: int, first: int, count: int, fill: Any, whole: np.ndarray) -> None:
    """A column's integers from a row on, `fill` where one is missing."""
    address, bits, first_bit = U64(places[column, 0]), U64(places[column, 1]), U64(places[column, 2])
    for k in range(count):
        whole[k] = np.int32(load32(address + (U64(first + k) << LOG2_4)))
    if bits != U64(0):
        put_where_missing(bits, first_bit + U64(first), count, fill, whole)


@njit(**KERNEL)
def put_where_missing(bits: Any, first_bit: Any, count: int, fill: Any, block: np.ndarray) -> None:
    """`fill` in a block where its validity bits, from `first_bit` on, are 0."""
    begin: Any = U64(0)
    while begin + U64(64) < U64(count):  # nine bytes have the bits of 64 rows, and those of one more row are there
        bit = first_bit + begin
        place, shift = bits + (bit >> U64(3)), bit & U64(7)
        valid = (load64(place) >> shift) | (load8(place + U64(8)) << U64(1) << (U64(63) - shift))
        if valid != ~U64(0):
            for k in range(64):
                there = (valid >> U64(k)) & U64(1) != U64(0)
                block[begin + U64(k)] = block[begin + U64(k)] if there else fill
        begin += U64(64)
    for k in range(begin, count):
        bit = first_bit + U64(k)
        there = (load8(bits + (bit >> U64(3))) >> (bit & U64(7))) & U64(1) != U64(0)
        block[k] = block[k] if there else fill


@njit(**KERNEL)
def _clip_block(whole: np.ndarray, count: int, low: float, high: float) -> None:
    least, most = np.int32(low), np.int32(high)
    for k in range(count):
        whole[k] = max(least, min(whole[k], most))


@njit(**KERNEL)
def _are_inside(whole: np.ndarray, count: int) -> Any:
    """Whether the table has all of them; negative numbers have the highest bit."""
    together = U32(0)
    for k in range(count):
        together |= U32(whole[k])
    return together < U32(TABLE_SIZE)


@njit(**KERNEL)
def _chain(places, num_rows, kinds, steps, tables, out, rows, values, found):
    """`out` holds the bits of the results; `tables` has a line of logarithms, or one a column. See `run_chain`."""
    whole, real = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.float32)
    real_bits = real.view(np.int32)
    for column in range(places.shape[0]):
        table = tables[column if tables.shape[0] > 1 else 0]
        fill = np.int32(steps[column, 0, 1]) if kinds[0] == FILL else np.int32(0)
        for first in range(0, num_rows, BLOCK):
            count = min(BLOCK, num_rows - first)
            _read_block(places, column, first, count, fill, whole)
            is_whole = True
            for step in range(kinds.shape[0]):
                kind, low, high = kinds[step], steps[column, step, 1], steps[column, step, 2]
                if kind == CLIP:
                    _clip_block(whole, count, low, high)
                elif kind == LOG and _are_inside(whole, count):
                    for k in range(count):
                        real[k] = table[U64(whole[k])]
                    is_whole = False
                elif kind == LOG:
                    for k in range(count):
                        entry = U64(whole[k])  # negative numbers become huge
                        inside = entry < U64(TABLE_SIZE)
                        real[k] = table[entry if inside else U64(0)]
                        place = column * num_rows + found[column]
                        rows[place], values[place] = first + k, whole[k]
                        found[column] += I64(not inside)
                    is_whole = False
                elif kind == SCALE:
                    for k in range(count):
                        before = np.float64(whole[k]) if is_whole else np.float64(real[k])
                        real[k] = (before - low) / high
                    is_whole = False
            for k in range(count):
                out[column, first + k] = whole[k] if is_whole else real_bits[k]


@njit(**KERNEL)
def _count_logarithms(places, num_rows, kinds, steps, table, counts, bins, extremes, others, found):
    """Integers of each column, as the steps leave them, counted, and what their logarithms add up to in `bins`.

    `table` has the bits of the logarithms; `counts` is zeros, and is so again. `extremes` gets how many the table has,
    the least and the greatest of them; `others` those it has not, column behind column, `found` where they end.
    """
    whole, num_others = np.empty(BLOCK, np.int32), U64(0)
    for column in range(places.shape[0]):
        fill = np.int32(steps[column, 0, 1]) if kinds.shape[0] and kinds[0] == FILL else np.int32(0)
        highest, before = U64(0), num_others
        for first in range(0, num_rows, BLOCK):
            count = min(BLOCK, num_rows - first)
            _read_block(places, column, first, count, fill, whole)
            for step in range(kinds.shape[0]):
                if kinds[step] == CLIP:
                    _clip_block(whole, count, steps[column, step, 1], steps[column, step, 2])
            if _are_inside(whole, count):
                top = np.int32(0)
                for k in range(count):
                    top = max(top, whole[k])
                highest = max(highest, U64(top))
                for k in range(count):
                    counts[U64(whole[k])] += 1
            else:
                for k in range(count):
                    entry = U64(whole[k])
                    inside = entry < U64(TABLE_SIZE)
                    counts[entry if inside else U64(0)] += I64(inside)
                    highest = max(highest, entry if inside else U64(0))
                    others[num_others] = whole[k]
                    num_others += U64(not inside)
        found[column] = num_others
        extremes[column, 0] = num_rows - I64(num_others - before)
        extremes[column, 1], extremes[column, 2] = highest, highest
        for number in range(I64(highest), -1, -1):
            amount = counts[U64(number)]
            if amount == 0:
                continue
            counts[U64(number)] = 0
            extremes[column, 1] = number
            word = U32(table[U64(number)])  # of a number that is not negative
            exponent = U64(word >> U32(23))
            mantissa = U64(word & U32(0x7FFFFF)) | (U64(exponent != U64(0)) << U64(23))
            square = mantissa * mantissa
            bins[column, exponent, 0] += I64(mantissa) * amount
            bins[column, exponent, 1] += I64(square & LOW) * amount
            bins[column, exponent, 2] += I64(square >> U64(32)) * amount
