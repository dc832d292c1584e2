"""Open-addressing hash tables: the compiled loops under `cpu_vocab.Counter` and `cpu_vocab.Encoder`.

One slot is a uint64, `tag << 32 | number + 1`; zero is empty. The tag is 32 bits of hash, its upper bits are the home
position, so a table doubles by copying its slots in order, without the keys and almost without cache misses. For 32-bit
keys the tag is a bijection of the key: equal tags are equal keys, and no key array exists. For 64-bit keys and texts
(`cpu_text_table`) a tag match is confirmed on the key itself.

Every table has a key of its own in every process, which enters its tags: nobody can choose values that share a home,
and no result depends on it. `placing` is how kernels get it: `key << 6 | shift`, where `tag >> shift` is the home.

Loops work in blocks: hash a block of keys, prefetch their slots, then probe, so that the cache misses of a table larger
than the cache overlap. A kernel never grows a table: it returns the row it stopped at; the caller grows it and resumes.
"""

from __future__ import annotations

import functools
import secrets
from typing import Any

import numpy as np

from penstock.core.errors import ParameterError
from penstock.kernels.cpu_hash import splitmix64
from penstock.kernels.cpu_intrinsics import (
    KERNEL,
    LOG2_4,
    LOG2_8,
    kernel_input,
    load8,
    load32,
    load64,
    prefetch,
    store64,
)
from penstock.kernels.kernel_cache import njit

U64, U32 = np.uint64, np.uint32
BLOCK = 64  # keys hashed and prefetched before they are probed
LOW = U64(0xFFFFFFFF)
CACHED_SLOTS = 1 << 15  # a table of up to 256 KiB sits in the second-level cache: prefetching it only costs
TAG_MULTIPLIER = U64(0xD6E8FEB86659FD93)
MAX_CODE = 2**32 - 3  # a slot keeps `code + 1` in 32 bits
NO_MASK, NO_WEIGHTS = np.empty(0, np.uint8), np.empty(0, np.int64)


def new_key() -> int:
    """A table's key; `placing` has room for 57 bits."""
    return secrets.randbits(57)


@functools.cache
def shared_key() -> int:
    """The key of this process for tables that are merged by ranges of their tags, which only equal keys allow.

    What comes out of such a table may be in the order of its tags. A table of the same key that grew while it took
    them in that order would be full at one end: it is given its room first (`Counter.reserve`).
    """
    return new_key()


def placing_of(key: int, slots: np.ndarray) -> int:
    """What kernels find a value's home by."""
    return key << 6 | (33 - len(slots).bit_length())


def num_slots(size: int) -> int:
    """The power of two that keeps a table of `size` keys at most half full."""
    return 1 << max(10, (2 * size - 1).bit_length() if size else 0)


def larger(slots: np.ndarray, wanted: int, key: int) -> np.ndarray:
    """The slots of a table in more room."""
    if wanted > 2**32:
        held = np.count_nonzero(slots)
        raise ParameterError(f"a vocabulary of {held:,} values and more; hash the column into buckets first")
    out = np.zeros(wanted, np.uint64)
    rehash(slots, out, placing_of(key, out))
    return out


def check_codes(codes: np.ndarray, num_keys: int) -> np.ndarray:
    """Codes as kernels take them: one a key, and not too large for a slot."""
    codes = kernel_input(codes, np.int64)
    if len(codes) != num_keys:
        raise ParameterError(f"codes must be as many as keys, got {len(codes)} for {num_keys}")
    if num_keys and not 0 <= codes.min() <= codes.max() <= MAX_CODE:
        raise ParameterError(f"codes must lie in [0, {MAX_CODE}]")
    return codes


def check_length(name: str, array: np.ndarray | None, dtype: Any, num_rows: int) -> np.ndarray:
    """An array with one entry a row, or an empty one for None."""
    if array is None:
        return NO_MASK if dtype is np.uint8 else NO_WEIGHTS
    array = kernel_input(array, dtype)
    if len(array) != num_rows:
        raise ParameterError(f"{name} must have one entry per row ({num_rows}), got {len(array)}")
    return array


@njit(inline="always", **KERNEL)
def shift_of(placing: Any) -> Any:
    """How far a tag is shifted to give the home of its key."""
    return U64(placing) & U64(63)


@njit(inline="always", **KERNEL)
def key_of(placing: Any) -> Any:
    """The table's key, which stays when the table grows."""
    return U64(placing) >> U64(6)


@njit(inline="always", **KERNEL)
def tag32(key: Any, placing: Any) -> Any:
    """A bijection of 32 bits (Wellons' "lowbias32" with the table's key), as uint64."""
    mixed = U32(key) ^ U32(key_of(placing))
    mixed = U32(U32(mixed ^ U32(mixed >> U32(16))) * U32(0x7FEB352D)) ^ U32(key_of(placing) >> U64(25))
    mixed = U32(U32(mixed ^ U32(mixed >> U32(15))) * U32(0x846CA68B))
    return U64(mixed ^ U32(mixed >> U32(16)))


@njit(inline="always", **KERNEL)
def key32(tag: Any, placing: Any) -> Any:
    """The key whose `tag32` is `tag`."""
    mixed = U32(tag)
    mixed = U32(mixed ^ U32(mixed >> U32(16)))
    mixed = U32(mixed * U32(0x43021123))
    mixed = U32(mixed ^ U32(mixed >> U32(15)) ^ U32(mixed >> U32(30)))
    mixed = U32(U32(mixed ^ U32(key_of(placing) >> U64(25))) * U32(0x1D69E2A5))
    return U32(mixed ^ U32(mixed >> U32(16)) ^ U32(key_of(placing)))


@njit(inline="always", **KERNEL)
def tag_of_hash(hashed: Any, placing: Any) -> Any:
    """The tag of a 64-bit hash. Multiplied again: keys partitioned by their hash must still spread over the table."""
    mixed = (hashed ^ key_of(placing)) * TAG_MULTIPLIER
    return ((mixed ^ (mixed >> U64(32))) * TAG_MULTIPLIER) >> U64(32)


@njit(**KERNEL)
def rehash(old: np.ndarray, new: np.ndarray, placing: int) -> None:
    """Copy every slot of `old` into the larger, zeroed `new`."""
    mask = U64(new.shape[0] - 1)
    for index in range(old.shape[0]):
        slot = old[index]
        if slot != U64(0):
            position = slot >> U64(32) >> shift_of(placing)
            while new[position] != U64(0):
                position = (position + U64(1)) & mask
            new[position] = slot


@njit(**KERNEL)
def keys_in_order(slots: np.ndarray, keys: np.ndarray, placing: int) -> None:
    """Recover the 32-bit keys from their tags: `keys[number]` for every slot."""
    for index in range(slots.shape[0]):
        slot = slots[index]
        if slot != U64(0):
            keys[(slot & LOW) - U64(1)] = key32(slot >> U64(32), placing)


@njit(inline="always", **KERNEL)
def prefetch_slots(slots: np.ndarray, tags: np.ndarray, filled: int, shift: Any) -> None:
    if slots.shape[0] > CACHED_SLOTS:
        base = U64(slots.ctypes.data)
        for index in range(filled):
            prefetch(base + ((tags[index] >> shift) << U64(3)))


@njit(inline="always", **KERNEL)
def prefetch_entries(slots: np.ndarray, tags: np.ndarray, filled: int, shift: Any, entries: Any, log2: int) -> None:
    """Prefetch the entries (of `1 << log2` bytes) that the home slots point to: most keys are found there."""
    if slots.shape[0] > CACHED_SLOTS:
        base = U64(entries)
        for index in range(filled):
            number = (slots[tags[index] >> shift] & LOW) - U64(1)
            prefetch(base + (number << U64(log2)))


@njit(**KERNEL)
def count32(
    keys: np.ndarray, valid: np.ndarray, weights: np.ndarray, row: int, slots: np.ndarray, placing: int,
    counts: np.ndarray, size: int,
) -> tuple[int, int]:  # fmt: skip
    """Count 32-bit keys from `row` on until done or until `counts` might overflow; `(next row, size)`.

    Empty `valid` and `weights` mean none given. Null rows are squeezed out while hashing, without a branch.
    """
    tags, amounts = np.empty(BLOCK, np.uint64), np.ones(BLOCK, np.int64)
    home, mask, num_rows = shift_of(placing), U64(slots.shape[0] - 1), keys.shape[0]
    while row < num_rows and size + BLOCK <= counts.shape[0]:
        stop = min(row + BLOCK, num_rows)
        filled = U64(0)
        if valid.shape[0] == 0:
            for index in range(stop - row):
                tags[index] = tag32(keys[row + index], placing)
            filled = U64(stop - row)
        else:
            for source in range(row, stop):
                tags[filled] = tag32(keys[source], placing)
                filled += U64(valid[source] != 0)
        if weights.shape[0]:
            _gather_weights(weights, valid, row, stop, amounts)
        row = stop
        prefetch_slots(slots, tags, filled, home)
        for index in range(filled):
            tag = tags[index]
            position = tag >> home
            while True:
                number = (slots[position] ^ (tag << U64(32))) - U64(1)
                if number < LOW:
                    break
                if slots[position] == U64(0):
                    number = U64(size)
                    slots[position] = (tag << U64(32)) | (number + U64(1))
                    counts[number] = 0
                    size += 1
                    break
                position = (position + U64(1)) & mask
            counts[number] += amounts[index]
    return row, size


SLOTS, PLACING, MASK, COUNTS, CAPACITY, SIZE = range(6)  # what `count32_places` knows of a table


@njit(**KERNEL)
def count32_places(places: np.ndarray, num_rows: int, tables: np.ndarray, column: int, row: int) -> tuple[int, int]:
    """`count32` for many columns in one call, from a row of a column on; `(column, row)` where a table has no room.

    A line of `places` is (address of the keys, of their validity bits or 0, first bit), one of `tables` (address of the
    slots, placing, mask, address of the counts, how many of them there may be, how many there are).
    """
    tags = np.empty(BLOCK, np.uint64)
    while column < places.shape[0]:
        keys, bits, first_bit = U64(places[column, 0]), U64(places[column, 1]), U64(places[column, 2])
        slots, placing, mask = U64(tables[column, SLOTS]), tables[column, PLACING], U64(tables[column, MASK])
        counts, size = U64(tables[column, COUNTS]), U64(tables[column, SIZE])
        home = shift_of(placing)
        while row < num_rows and size + U64(BLOCK) <= U64(tables[column, CAPACITY]):
            stop, filled = min(row + BLOCK, num_rows), U64(0)
            for source in range(row, stop):
                tags[filled] = tag32(load32(keys + (U64(source) << LOG2_4)), placing)
                bit = first_bit + U64(source)
                there = bits == U64(0) or (load8(bits + (bit >> U64(3))) >> (bit & U64(7))) & U64(1) != U64(0)
                filled += U64(there)
            row = stop
            if mask >= CACHED_SLOTS:
                for index in range(filled):
                    prefetch(slots + ((tags[index] >> home) << LOG2_8))
            for index in range(filled):
                tag = tags[index]
                position = tag >> home
                while True:
                    slot = load64(slots + (position << LOG2_8))
                    number = (slot ^ (tag << U64(32))) - U64(1)
                    if number < LOW:
                        break
                    if slot == U64(0):
                        number = size
                        store64(slots + (position << LOG2_8), (tag << U64(32)) | (number + U64(1)))
                        store64(counts + (number << LOG2_8), U64(0))
                        size += U64(1)
                        break
                    position = (position + U64(1)) & mask
                place = counts + (number << LOG2_8)
                store64(place, load64(place) + U64(1))
        tables[column, SIZE] = size
        if row < num_rows:
            return column, row
        column, row = column + 1, 0
    return column, 0


@njit(**KERNEL)
def _gather_weights(weights: np.ndarray, valid: np.ndarray, row: int, stop: int, amounts: np.ndarray) -> None:
    filled = U64(0)
    for source in range(row, stop):
        amounts[filled] = weights[source]
        filled += U64(valid.shape[0] == 0 or valid[source] != 0)


@njit(**KERNEL)
def count64(
    keys: np.ndarray, valid: np.ndarray, weights: np.ndarray, row: int, slots: np.ndarray, placing: int,
    entries: np.ndarray, size: int,
) -> tuple[int, int]:  # fmt: skip
    """`count32` for 64-bit keys; `entries[number] = (key, count)` side by side, in one cache line."""
    tags, amounts, block_keys = np.empty(BLOCK, np.uint64), np.ones(BLOCK, np.int64), np.empty(BLOCK, np.uint64)
    home, mask, num_rows, base = shift_of(placing), U64(slots.shape[0] - 1), keys.shape[0], entries.ctypes.data
    while row < num_rows and size + BLOCK <= entries.shape[0]:
        stop = min(row + BLOCK, num_rows)
        filled = U64(0)
        for source in range(row, stop):
            block_keys[filled] = keys[source]
            tags[filled] = tag_of_hash(splitmix64(keys[source]), placing)
            filled += U64(valid.shape[0] == 0 or valid[source] != 0)
        if weights.shape[0]:
            _gather_weights(weights, valid, row, stop, amounts)
        row = stop
        prefetch_slots(slots, tags, filled, home)
        prefetch_entries(slots, tags, filled, home, base, 4)
        for index in range(filled):
            tag = tags[index]
            position = tag >> home
            while True:
                number = (slots[position] ^ (tag << U64(32))) - U64(1)
                if number < LOW and entries[number, 0] == block_keys[index]:
                    break
                if slots[position] == U64(0):
                    number = U64(size)
                    slots[position] = (tag << U64(32)) | (number + U64(1))
                    entries[number, 0] = block_keys[index]
                    entries[number, 1] = U64(0)
                    size += 1
                    break
                position = (position + U64(1)) & mask
            entries[number, 1] += U64(amounts[index])
    return row, size
