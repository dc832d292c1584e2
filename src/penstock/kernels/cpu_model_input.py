"""Features as a model takes them, all columns of a batch in one call: ids column by column, numbers row by row."""

from __future__ import annotations

import numpy as np

from penstock.kernels.cpu_intrinsics import KERNEL, LOG2_4, load32
from penstock.kernels.kernel_cache import njit

U64 = np.uint64
BLOCK = 256  # rows whose numbers are put side by side while the cache holds them


@njit(**KERNEL)
def fill_input(
    ids: np.ndarray, numbers: np.ndarray, first: int, bounds: np.ndarray, matrix: np.ndarray, continuous: np.ndarray,
    outside: np.ndarray,
) -> None:  # fmt: skip
    """Fill in a batch from columns of 32 bits that lie anywhere.

    Args:
        ids: where the ids of each column lie, signed.
        numbers: where the numbers of each column lie.
        first: the batch's first row in them.
        bounds: `(columns, 3)`: ids in `[low, high)`, below 0 or from `size` on are ones that training has not seen.
        matrix: `(columns, rows)`, filled in with ids.
        continuous: `(rows, columns)`, filled in with the bits of the numbers.
        outside: filled in: how many ids of each column training has not seen.
    """
    for column in range(ids.shape[0]):
        address, count = U64(ids[column]) + (U64(first) << LOG2_4), np.int64(0)
        low, high, size = bounds[column, 0], bounds[column, 1], bounds[column, 2]
        for row in range(matrix.shape[1]):
            number = np.int64(np.int32(load32(address + (U64(row) << LOG2_4))))
            matrix[column, row] = number
            count += np.int64((number >= low) & (number < high) | (number < 0) | (number >= size))
        outside[column] = count
    for begin in range(0, continuous.shape[0], BLOCK):
        end = min(begin + BLOCK, continuous.shape[0])
        for column in range(numbers.shape[0]):
            address = U64(numbers[column]) + (U64(first) << LOG2_4)
            for row in range(begin, end):
                continuous[row, column] = np.int32(load32(address + (U64(row) << LOG2_4)))
