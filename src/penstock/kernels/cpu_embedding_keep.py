"""Rows as they were before an update: kept for a copy of the table that has not come to them yet.

A kept row is `bytes_kept` bytes: the row with its optimizer state, then its scalar and its count, whether the table
has them or not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_embedding_batch import AHEAD, START, UNIQUE
from penstock.kernels.cpu_embedding_index import (
    COUNT_OFFSET,
    SCALAR_OFFSET,
    STRIDE,
    find_entry,
    first_place,
    row_address,
    side_address,
)
from penstock.kernels.cpu_intrinsics import ROW_KERNEL, load8, load64, prefetch
from penstock.kernels.cpu_vector import copy_row, fetch_add, load_u32, store_u8, store_u32
from penstock.kernels.kernel_cache import njit

COPIED, GIVEN_OUT, FLAGS, PLACE, NUM_BOUNDS = range(5)  # columns of `bounds`
_LOW32 = np.uint64(0xFFFFFFFF)
_SIDES = 8  # bytes of a scalar and a count


def bytes_kept(stride: int) -> int:
    """Bytes of a kept row, for rows of so many bytes."""
    return stride + _SIDES


@njit(**ROW_KERNEL)
def _exchange(header: np.ndarray, row: Any, place: Any, out: bool) -> None:
    """Copy a row out to a place, or in from it."""
    address, floats = row_address(header, row), np.int64(header[STRIDE] >> np.uint64(2))
    if out:
        copy_row(place, address, floats)
    else:
        copy_row(address, place, floats)
    beside = place + header[STRIDE]
    for offset in (header[SCALAR_OFFSET], header[COUNT_OFFSET]):
        if offset > 0:
            inside = side_address(header, row, offset)
            if out:
                store_u32(beside, load_u32(inside))
            else:
                store_u32(inside, load_u32(beside))
        beside += np.uint64(4)


@njit(**ROW_KERNEL)
def keep_rows(
    counter: np.ndarray, order: np.ndarray, headers: np.ndarray, groups: np.ndarray, signs: np.ndarray,
    bounds: np.ndarray, numbers: np.ndarray, counts: np.ndarray,
) -> None:  # fmt: skip
    """Draw groups: keep the rows of their signs that a copy wants and has not copied, each once.

    `bounds` has a line for each table: rows below `COPIED` are copied, `GIVEN_OUT` were there when the copy was begun;
    `FLAGS` is the address of a byte for each of them, and kept rows go to the address `PLACE`. `numbers` takes the
    numbers of a group's rows from its `START` on, and `counts` how many they are.
    """
    while True:
        task = fetch_add(np.uint64(counter.ctypes.data), 1)
        if task >= order.shape[0]:
            return
        group = order[task]
        header, start, end = headers[group], groups[group, START], groups[group, START] + groups[group, UNIQUE]
        place, size, kept = bounds[group, PLACE], header[STRIDE] + np.uint64(_SIDES), 0
        for u in range(start, end):
            prefetch(first_place(header, signs[min(np.int64(u + AHEAD), end - 1)]))
            entry = find_entry(header, signs[u])
            row = load64(entry + np.uint64(8)) & _LOW32
            if load64(entry) != signs[u] or row >= bounds[group, GIVEN_OUT] or row < bounds[group, COPIED]:
                continue  # an entry that only counts has the highest number of all
            flag = bounds[group, FLAGS] + row
            if load8(flag) == 0:
                store_u8(flag, np.uint8(1))
                _exchange(header, row, place, True)
                numbers[start + kept] = row
                place += size
                kept += 1
        counts[group] = kept


@njit(**ROW_KERNEL)
def put_rows(header: np.ndarray, numbers: np.ndarray, place: Any) -> None:
    """Write rows that were kept at a place where they belong."""
    size = header[STRIDE] + np.uint64(_SIDES)
    for i in range(numbers.shape[0]):
        _exchange(header, np.uint64(numbers[i]), place + np.uint64(i) * size, False)
