"""Arrow's C data interface, read by address: where the columns of an exported frame lie.

An `ArrowArray` is ten words: length, number of nulls, offset, numbers of buffers and children, where the lists of
buffers, of children and the dictionary lie, the function that releases it, and what that knows. A frame is an array
whose children are its columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_intrinsics import KERNEL, LOG2_8, load8, load64, population_count
from penstock.kernels.kernel_cache import njit

WORDS = 10  # of an ArrowArray
LENGTH, NULLS, OFFSET, _, NUM_CHILDREN, BUFFERS, CHILDREN, _, RELEASE, _ = range(WORDS)
VALUES, BITS, FIRST_BIT, FIELDS = 0, 1, 2, 3  # of a column: where values lie; bits 0: all are valid
U64, I64 = np.uint64, np.int64


@njit(**KERNEL)
def _word(address: Any, number: int) -> Any:
    return load64(U64(address) + (U64(number) << LOG2_8))


@njit(**KERNEL)
def _count_missing(bits: Any, first: Any, count: Any) -> Any:
    """How many of the validity bits from the first on are 0."""
    bit, end, valid = U64(first), U64(first) + U64(count), U64(0)
    while bit + U64(64) < end:  # nine bytes have 64 bits, and one more bit is there
        place, shift = bits + (bit >> U64(3)), bit & U64(7)
        word = (load64(place) >> shift) | (load8(place + U64(8)) << U64(1) << (U64(63) - shift))
        valid += population_count(word)
        bit += U64(64)
    while bit < end:
        valid += (load8(bits + (bit >> U64(3))) >> (bit & U64(7))) & U64(1)
        bit += U64(1)
    return I64(count) - I64(valid)


@njit(**{**KERNEL, "nogil": False})  # it takes less time than to get the interpreter's lock back
def find_columns(array: int, itemsizes: np.ndarray, table: np.ndarray, null_counts: np.ndarray) -> Any:
    """Where the columns of numbers in an exported frame lie, and how many values each lacks.

    Args:
        array: where the frame's array lies.
        itemsizes: of each column.
        table: `(columns, FIELDS)`, filled in.
        null_counts: one a column, filled in.
    """
    children = _word(array, CHILDREN)
    for column in range(table.shape[0]):
        child = _word(children, column)
        buffers, offset = _word(child, BUFFERS), I64(_word(child, OFFSET))
        bits, missing = _word(buffers, 0), I64(_word(child, NULLS))
        if bits == U64(0):
            missing = I64(0)
        elif missing < 0:  # not counted
            missing = _count_missing(bits, offset, I64(_word(child, LENGTH)))
        table[column, VALUES] = I64(_word(buffers, 1)) + offset * itemsizes[column]
        table[column, BITS] = I64(bits) if missing else 0
        table[column, FIRST_BIT] = offset if missing else 0
        null_counts[column] = missing


@njit(**KERNEL)
def cut_columns(table: np.ndarray, itemsizes: np.ndarray, first: int, count: int, out: np.ndarray) -> None:
    """The same columns from a row on, for so many rows: no bits where none of these is missing."""
    for column in range(table.shape[0]):
        out[column, VALUES] = table[column, VALUES] + first * itemsizes[column]
        bits, bit = table[column, BITS], table[column, FIRST_BIT] + first
        has_nulls = bits != 0 and _count_missing(U64(bits), bit, count) > 0
        out[column, BITS] = bits if has_nulls else 0
        out[column, FIRST_BIT] = bit if has_nulls else 0
