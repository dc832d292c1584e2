"""Chains of element-wise steps over columns of 32-bit integers, all columns in one call, a block at a time.

Formula of a column: `x`, or `fill` where it is missing; then, step by step, `max(low, min(x, high))`, `log(1 + x)` as
float32, `(x - offset) / scale` in float64 and stored as float32. The bits are those of the operators one by one.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels.cpu_elementwise import TABLE_SIZE, _log1p, _table
from penstock.kernels.cpu_intrinsics import KERNEL, LOG2_4, load8, load32
from penstock.kernels.kernel_cache import njit

FILL, CLIP, LOG, SCALE = range(4)
BLOCK = 4096  # rows that stay in the first-level cache from step to step
U64 = np.uint64
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
    out = np.empty((len(places), num_rows), np.float32 if is_float else np.int32)
    has_logarithm = bool((kinds == LOG).any())
    # What no table has is left to NumPy; memory that is not written to costs nothing.
    size = len(places) * num_rows + 1 if has_logarithm else 0  # a row is put down before it is known to be one
    rows, values = np.empty(size, np.int32), np.empty(size, np.int32)
    found = np.zeros(len(places), np.int64)
    _chain(places, num_rows, kinds, steps, _table(), out.view(np.int32), rows, values, found)
    after = steps[:, int(np.flatnonzero(kinds == LOG)[0]) + 1 :] if has_logarithm else steps
    for column in np.flatnonzero(found).tolist():
        own = slice(column * num_rows, column * num_rows + int(found[column]))
        logarithms = _log1p(values[own])
        for _, offset, scale in after[column].tolist():
            with np.errstate(all="ignore"):
                logarithms = ((logarithms.astype(np.float64) - offset) / scale).astype(np.float32)
        out[column, rows[own]] = logarithms
    return out


@njit(**KERNEL)
def _chain(places, num_rows, kinds, steps, table, out, rows, values, found):
    """`out` holds the bits of the results; see `run_chain`."""
    whole, real = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.float32)
    real_bits = real.view(np.int32)
    for column in range(places.shape[0]):
        address, bits, first_bit = U64(places[column, 0]), U64(places[column, 1]), U64(places[column, 2])
        for first in range(0, num_rows, BLOCK):
            count = min(BLOCK, num_rows - first)
            for k in range(count):
                whole[k] = np.int32(load32(address + (U64(first + k) << LOG2_4)))
            is_whole = True
            for step in range(kinds.shape[0]):
                kind, low, high = kinds[step], steps[column, step, 1], steps[column, step, 2]
                if kind == FILL:
                    if bits != U64(0):
                        value = np.int32(low)
                        for k in range(count):
                            bit = first_bit + U64(first + k)
                            there = (load8(bits + (bit >> U64(3))) >> (bit & U64(7))) & U64(1)
                            whole[k] = whole[k] if there != U64(0) else value
                elif kind == CLIP:
                    least, most = np.int32(low), np.int32(high)
                    for k in range(count):
                        whole[k] = max(least, min(whole[k], most))
                elif kind == LOG:
                    for k in range(count):
                        entry = U64(whole[k])  # negative numbers become huge
                        inside = entry < U64(TABLE_SIZE)
                        real[k] = table[entry if inside else U64(0)]
                        place = column * num_rows + found[column]
                        rows[place], values[place] = first + k, whole[k]
                        found[column] += np.int64(not inside)
                    is_whole = False
                else:
                    for k in range(count):
                        before = np.float64(whole[k]) if is_whole else np.float64(real[k])
                        real[k] = (before - low) / high
                    is_whole = False
            for k in range(count):
                out[column, first + k] = whole[k] if is_whole else real_bits[k]
