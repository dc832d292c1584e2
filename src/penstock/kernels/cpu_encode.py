"""Read-only look-ups in the tables of `cpu_table`: a whole column at a time, or one key at the lowest latency.

For 32-bit keys the slot holds the code itself (one memory access a row); for 64-bit keys it holds the key's number, and
`codes[number]` the code. Texts have tables of their own: `cpu_text_table`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_hash import splitmix64
from penstock.kernels.cpu_intrinsics import (
    KERNEL,
    LOG2_4,
    LOG2_8,
    load8,
    load32,
    load64,
    prefetch,
)
from penstock.kernels.cpu_table import (
    BLOCK,
    CACHED_SLOTS,
    LOW,
    U64,
    prefetch_entries,
    prefetch_slots,
    shift_of,
    tag32,
    tag_of_hash,
)
from penstock.kernels.kernel_cache import njit

NOT_FOUND = np.int64(-1)


@njit(inline="always", **KERNEL)
def _bucket(hashed: Any, num_buckets: Any) -> Any:
    return np.int64(hashed % U64(num_buckets))


@njit(**KERNEL)
def build32(keys: np.ndarray, codes: np.ndarray, slots: np.ndarray, placing: int) -> int:
    """Fill zeroed `slots` with `tag << 32 | code + 1`; the row of a key that was there before, or -1."""
    mask = U64(slots.shape[0] - 1)
    for row in range(keys.shape[0]):
        tag = tag32(keys[row], placing)
        position = tag >> shift_of(placing)
        while slots[position] != U64(0):
            if slots[position] >> U64(32) == tag:
                return row
            position = (position + U64(1)) & mask
        slots[position] = (tag << U64(32)) | (U64(codes[row]) + U64(1))
    return -1


@njit(inline="always", **KERNEL)
def _find32(slots: Any, shift: Any, mask: Any, tag: Any) -> Any:
    position = tag >> U64(shift)
    while True:
        slot = load64(U64(slots) + (position << U64(3)))
        number = (slot ^ (tag << U64(32))) - U64(1)
        if number < LOW:
            return np.int64(number)
        if slot == U64(0):
            return NOT_FOUND
        position = (position + U64(1)) & U64(mask)


@njit(inline="always", **KERNEL)
def _find64(slots: Any, shift: Any, mask: Any, keys: Any, tag: Any, key: Any) -> Any:
    position = tag >> U64(shift)
    while True:
        slot = load64(U64(slots) + (position << U64(3)))
        number = (slot ^ (tag << U64(32))) - U64(1)
        if number < LOW and load64(U64(keys) + (number << U64(3))) == key:
            return np.int64(number)
        if slot == U64(0):
            return NOT_FOUND
        position = (position + U64(1)) & U64(mask)


@njit(**KERNEL)
def build64(keys: np.ndarray, slots: np.ndarray, placing: int) -> int:
    """Number the keys by row in zeroed `slots`; the row of a key that was there before, or -1."""
    mask, base = U64(slots.shape[0] - 1), U64(slots.ctypes.data)
    for row in range(keys.shape[0]):
        tag = tag_of_hash(splitmix64(keys[row]), placing)
        if _find64(base, shift_of(placing), mask, keys.ctypes.data, tag, keys[row]) != NOT_FOUND:
            return row
        _insert(slots, placing, mask, tag, row)
    return -1


@njit(**KERNEL)
def _insert(slots: np.ndarray, placing: int, mask: Any, tag: Any, number: int) -> None:
    position = tag >> shift_of(placing)
    while slots[position] != U64(0):
        position = (position + U64(1)) & mask
    slots[position] = (tag << U64(32)) | U64(number + 1)


@njit(**KERNEL)
def encode32(
    keys: np.ndarray, valid: np.ndarray, slots: np.ndarray, placing: int, null_code: int, oov_code: int,
    num_buckets: int, out: np.ndarray,
) -> None:  # fmt: skip
    """`out[row]` = the key's code; unknown keys `oov_code + hash64(key) % num_buckets`, null rows `null_code`."""
    tags, home = np.empty(BLOCK, np.uint64), shift_of(placing)
    mask, base = U64(slots.shape[0] - 1), U64(slots.ctypes.data)
    for first in range(0, keys.shape[0], BLOCK):
        filled = min(BLOCK, keys.shape[0] - first)
        for index in range(filled):
            tags[index] = tag32(keys[first + index], placing)
        prefetch_slots(slots, tags, filled, home)
        for index in range(filled):
            code = _find32(base, home, mask, tags[index])
            if code == NOT_FOUND:
                code = oov_code
                if num_buckets > 1:
                    code += _bucket(splitmix64(keys[first + index]), num_buckets)
            out[first + index] = code if valid.shape[0] == 0 or valid[first + index] != 0 else null_code


@njit(**KERNEL)
def encode32_columns(
    keys: np.ndarray, valid: np.ndarray, tables: np.ndarray, layouts: np.ndarray, out: np.ndarray
) -> None:
    """`encode32` for the few rows of many columns in one call, which would cost more than the look-ups.

    `keys`, `valid` and `out` are `(columns, rows)`; a line of `tables` is (address of the slots, placing, mask), one of
    `layouts` (null code, oov code, number of buckets).
    """
    for column in range(keys.shape[0]):
        slots, placing, mask = tables[column, 0], tables[column, 1], tables[column, 2]
        null_code, oov_code, num_buckets = layouts[column, 0], layouts[column, 1], layouts[column, 2]
        for row in range(keys.shape[1]):
            if not valid[column, row]:
                out[column, row] = null_code
                continue
            code = _find32(slots, shift_of(placing), mask, tag32(keys[column, row], placing))
            if code == NOT_FOUND:
                code = oov_code
                if num_buckets > 1:
                    code += _bucket(splitmix64(keys[column, row]), num_buckets)
            out[column, row] = code


@njit(**KERNEL)
def encode32_places(
    places: np.ndarray, num_rows: int, tables: np.ndarray, layouts: np.ndarray, out: np.ndarray
) -> None:
    """`encode32` for many columns in one call: what holds threads up is the lock they take between calls.

    A line of `places` is (address of the keys, of their validity bits or 0, first bit); `out` is `(columns, rows)`.
    """
    tags = np.empty(BLOCK, np.uint64)
    for column in range(places.shape[0]):
        keys, bits, first_bit = U64(places[column, 0]), U64(places[column, 1]), U64(places[column, 2])
        slots, placing, mask = tables[column, 0], tables[column, 1], tables[column, 2]
        null_code, oov_code, num_buckets = layouts[column, 0], layouts[column, 1], layouts[column, 2]
        home = shift_of(placing)
        for first in range(0, num_rows, BLOCK):
            filled = min(BLOCK, num_rows - first)
            for index in range(filled):
                tags[index] = tag32(load32(keys + (U64(first + index) << LOG2_4)), placing)
            if mask >= CACHED_SLOTS:
                for index in range(filled):
                    prefetch(slots + ((tags[index] >> home) << LOG2_8))
            for index in range(filled):
                code = _find32(slots, home, mask, tags[index])
                if code == NOT_FOUND:
                    code = oov_code
                    if num_buckets > 1:
                        code += _bucket(splitmix64(load32(keys + (U64(first + index) << LOG2_4))), num_buckets)
                bit = first_bit + U64(first + index)
                if bits != U64(0) and (load8(bits + (bit >> U64(3))) >> (bit & U64(7))) & U64(1) == U64(0):
                    code = null_code
                out[column, first + index] = code


@njit(**KERNEL)
def encode64(
    keys: np.ndarray, valid: np.ndarray, slots: np.ndarray, placing: int, known: np.ndarray, codes: np.ndarray,
    null_code: int, oov_code: int, num_buckets: int, out: np.ndarray,
) -> None:  # fmt: skip
    """`encode32` for 64-bit keys."""
    tags, home = np.empty(BLOCK, np.uint64), shift_of(placing)
    mask, base, known_base = U64(slots.shape[0] - 1), U64(slots.ctypes.data), U64(known.ctypes.data)
    for first in range(0, keys.shape[0], BLOCK):
        filled = min(BLOCK, keys.shape[0] - first)
        for index in range(filled):
            tags[index] = tag_of_hash(splitmix64(keys[first + index]), placing)
        prefetch_slots(slots, tags, filled, home)
        prefetch_entries(slots, tags, filled, home, known_base, 3)
        prefetch_entries(slots, tags, filled, home, codes.ctypes.data, 3)
        for index in range(filled):
            row = first + index
            number = _find64(base, home, mask, known_base, tags[index], keys[row])
            code = codes[U64(number)] if number != NOT_FOUND else np.int64(oov_code)
            if number == NOT_FOUND and num_buckets > 1:
                code += _bucket(splitmix64(keys[row]), num_buckets)
            out[row] = code if valid.shape[0] == 0 or valid[row] != 0 else null_code


@njit(**KERNEL)
def get32(slots: int, placing: int, mask: int, key: int) -> Any:
    """The code of one 32-bit key, or -1. Plain integers come in: array arguments would cost more than the look-up."""
    return _find32(slots, shift_of(placing), mask, tag32(key, placing))


@njit(**KERNEL)
def get64(slots: int, placing: int, mask: int, keys: int, codes: int, key: int) -> Any:
    """The code of one 64-bit key, or -1."""
    unsigned = U64(key)
    tag = tag_of_hash(splitmix64(unsigned), placing)
    number = _find64(slots, shift_of(placing), mask, keys, tag, unsigned)
    return np.int64(load64(U64(codes) + (U64(number) << U64(3)))) if number != NOT_FOUND else number
