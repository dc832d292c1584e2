"""What a batch means, apart from any table: numbering its distinct signs and pooling their rows.

Slots are described by one line of `slots` (fixed by the configuration) and one of `inputs` (filled in for each batch:
addresses of ids, outputs and gradients). The same functions serve the fused in-process kernels and the client of a
sharded store, whose rows come over the network. `cpu_embedding_gradients` goes the other way.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.kernels.cpu_half import mix
from penstock.kernels.cpu_hash import farmhash64
from penstock.kernels.cpu_intrinsics import LOG2_4, LOG2_8, ROW_KERNEL, load8, load32, load64, multiply_high, prefetch
from penstock.kernels.cpu_vector import (
    INLINED,
    add_row,
    copy_row,
    fence,
    fetch_add,
    load_u16,
    load_u32,
    store_u8,
    store_u32,
    store_u64,
    stream_row,
    zero_row,
)
from penstock.kernels.kernel_cache import njit

# Columns of `slots`, fixed by the configuration.
POOLING, SLOT_DIM, LENGTH, ROUNDS, SIZE, PREFIX, MODULUS, HASHING, KEY, NUM_SLOT_FIELDS = range(10)
MIX, FARMHASH = range(2)  # of HASHING
SUM, MEAN, SQRT_N, RAW = range(4)
# Columns of `inputs`, filled in for each batch.
VALUES, LOG2_BYTES, COUNT, OFFSETS, SAMPLES, FIRST, TOP, OUTPUT, OUTPUT_STRIDE, MASK_OUT = range(10)
GRADIENT, GRADIENT_STRIDE, STREAM, NUM_INPUT_FIELDS = 10, 11, 12, 13
# Columns of `groups`: what the batch means for each group.
START, UNIQUE, SEEN_GENERATION, STATUS, PROGRESS, NUM_GROUP_FIELDS = range(6)
DONE, REDO = 0, 1
# Columns of `counts`: what an update did, per slot (dropped) and per group (the rest).
DROPPED, EVICTED, UPDATED, NUM_COUNTS = range(4)

AHEAD = 16  # how far prefetches run before their use
NO_ROW = np.uint32(0xFFFFFFFF)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@njit(**INLINED)
def load_id(values: Any, log2_bytes: Any, i: Any) -> Any:
    """The i-th integer of an array of 1, 2, 4 or 8-byte integers, all of them non-negative."""
    if log2_bytes == 3:
        return load64(values + (i << LOG2_8))
    if log2_bytes == 2:
        return load32(values + (i << LOG2_4))
    if log2_bytes == 1:
        return np.uint64(load_u16(values + (i << np.uint64(1))))
    return load8(values + i)


@njit(**ROW_KERNEL)
def count_absent(groups: np.ndarray, rows: np.ndarray, absent: np.ndarray) -> None:
    """How many of each group's distinct signs have no row; added to `absent`."""
    for group in range(groups.shape[0]):
        start = groups[group, START]
        for u in range(start, start + groups[group, UNIQUE]):
            absent[group] += rows[u] == NO_ROW


@njit(**ROW_KERNEL)
def scan_ids(counter: np.ndarray, inputs: np.ndarray, signed: np.ndarray, negative: np.ndarray) -> None:
    """Draw slots: fill in a bound on each one's ids, and whether one of them is negative.

    The bound is the bitwise or of all ids (filled up to ones), which vectorises where a maximum does not.
    """
    while True:
        slot = fetch_add(np.uint64(counter.ctypes.data), 1)
        if slot >= inputs.shape[0]:
            return
        values, log2_bytes = inputs[slot, VALUES], np.int64(inputs[slot, LOG2_BYTES])
        bits = np.uint64(0)
        count = np.int64(inputs[slot, COUNT])
        if log2_bytes == 3:
            for i in range(count):
                bits |= load64(values + (np.uint64(i) << LOG2_8))
        elif log2_bytes == 2:
            for i in range(count):
                bits |= load32(values + (np.uint64(i) << LOG2_4))
        else:
            for i in range(count):
                bits |= load_id(values, log2_bytes, np.uint64(i))
        # Read as unsigned, a negative number is one with the highest bit of its width.
        negative[slot] = signed[slot] and bits >> np.uint64((8 << log2_bytes) - 1) > 0
        for shift in (1, 2, 4, 8, 16, 32):
            bits |= bits >> np.uint64(shift)
        inputs[slot, TOP] = bits


@njit(**INLINED)
def sign_of(identity: Any, slot: np.ndarray, turn: Any) -> Any:
    """The sign of an id: its group's prefix and the id (or its hash of this turn), which share no bits.

    Where a group has no prefix bits, PREFIX is 1 and MODULUS 0: all 64 bits are the id's, and no sign is 0.
    """
    if slot[ROUNDS] > 0:
        if slot[HASHING] == FARMHASH:  # each turn hashes the hash of the one before
            for _ in range(turn + 1):
                identity = farmhash64(identity)
            return slot[PREFIX] + (identity % slot[SIZE] + np.uint64(turn) * slot[SIZE])
        hashed = mix(identity + np.uint64(turn + 1) * _GOLDEN)
        return slot[PREFIX] + (multiply_high(hashed, slot[SIZE]) + np.uint64(turn) * slot[SIZE])
    if slot[MODULUS] > 0 and identity >= slot[MODULUS]:
        identity %= slot[MODULUS]
    return slot[PREFIX] + identity


@njit(**ROW_KERNEL)
def _number_direct(row: np.ndarray, slot: np.ndarray, local: Any, inverse: Any, signs: Any, unique: Any) -> Any:
    """Distinct ids of a slot whose ids are all small: they index the local table themselves."""
    values, log2_bytes = row[VALUES], np.int64(row[LOG2_BYTES])
    prefix = slot[PREFIX]
    for i in range(row[COUNT]):
        identity = load_id(values, log2_bytes, np.uint64(i))
        place = local + (identity << LOG2_4)
        number = load_u32(place)
        if number == NO_ROW:
            number = np.uint32(unique)
            store_u32(place, number)
            store_u64(signs + (np.uint64(unique) << LOG2_8), prefix + identity)
            unique += 1
        store_u32(inverse + (np.uint64(i) << LOG2_4), number)
    return unique


@njit(**ROW_KERNEL)
def _number_hashed(
    row: np.ndarray, slot: np.ndarray, local: Any, shift: Any, inverse: Any, signs: Any, unique: Any
) -> Any:
    """Distinct signs of a slot, numbered through an open-addressed local table.

    The slots' key, which is secret, enters the places: nobody can choose ids that share one, and no number depends on
    it.
    """
    values, log2_bytes = row[VALUES], np.int64(row[LOG2_BYTES])
    turns = max(np.int64(slot[ROUNDS]), np.int64(1))
    mask = (np.uint64(1) << (np.uint64(64) - shift)) - np.uint64(1)
    at = np.uint64(0)
    for i in range(row[COUNT]):
        identity = load_id(values, log2_bytes, np.uint64(i))
        for turn in range(turns):
            sign = sign_of(identity, slot, turn)
            place = mix(sign ^ slot[KEY]) >> shift
            while True:
                number = load_u32(local + (place << LOG2_4))
                if number == NO_ROW:
                    number = np.uint32(unique)
                    store_u32(local + (place << LOG2_4), number)
                    store_u64(signs + (np.uint64(unique) << LOG2_8), sign)
                    unique += 1
                    break
                if load64(signs + (np.uint64(number) << LOG2_8)) == sign:
                    break
                place = (place + np.uint64(1)) & mask
            store_u32(inverse + (at << LOG2_4), number)
            at += np.uint64(1)
    return unique


@njit(**ROW_KERNEL)
def deduplicate(
    members: np.ndarray, slots: np.ndarray, inputs: np.ndarray, local: np.ndarray, inverse: Any, signs: Any
) -> Any:
    """Number the distinct signs of a group; how many there are."""
    top, hashed, positions = np.uint64(0), False, np.uint64(0)
    for slot in members:
        top = max(top, inputs[slot, TOP])
        hashed |= slots[slot, ROUNDS] > 0
        positions += inputs[slot, COUNT] * max(slots[slot, ROUNDS], np.uint64(1))
    address, unique = np.uint64(local.ctypes.data), np.int64(0)
    direct = not hashed and top < np.uint64(local.shape[0]) and top < np.uint64(4) * positions + np.uint64(64)
    bits = np.uint64(4)
    while (np.uint64(1) << bits) < np.uint64(2) * positions:
        bits += np.uint64(1)
    used = np.int64(top) + 1 if direct else np.int64(1) << np.int64(bits)
    local[:used] = NO_ROW
    for slot in members:
        first = inverse + (inputs[slot, FIRST] << LOG2_4)
        if direct:
            unique = _number_direct(inputs[slot], slots[slot], address, first, signs, unique)
        else:
            unique = _number_hashed(inputs[slot], slots[slot], address, np.uint64(64) - bits, first, signs, unique)
    return unique


@njit(**ROW_KERNEL)
def _pool_single(row: np.ndarray, slot: np.ndarray, places: Any, inverse: Any) -> None:
    """One id a sample, one row an id: output[b] = row."""
    dim, out, stride = np.int64(slot[SLOT_DIM]), row[OUTPUT], row[OUTPUT_STRIDE]
    count, stream = np.int64(row[COUNT]), row[STREAM] > 0
    for b in range(count):
        ahead = np.uint64(min(np.int64(b + AHEAD), np.int64(count - 1)))
        prefetch(load64(places + (np.uint64(load_u32(inverse + (ahead << LOG2_4))) << LOG2_8)))
        source = load64(places + (np.uint64(load_u32(inverse + (np.uint64(b) << LOG2_4))) << LOG2_8))
        if stream:
            stream_row(out + np.uint64(b) * stride, source, dim)
        else:
            copy_row(out + np.uint64(b) * stride, source, dim)
    fence()


@njit(**INLINED)
def sample_bounds(row: np.ndarray, sample: Any) -> Any:
    """Where a sample's ids begin and end."""
    if row[OFFSETS] == 0:
        return sample, sample + 1
    place = row[OFFSETS] + (np.uint64(sample) << LOG2_8)
    return np.int64(load64(place)), np.int64(load64(place + np.uint64(8)))


@njit(**INLINED)
def pooling_factor(pooling: Any, count: Any) -> Any:
    """What a sample's sum is multiplied by."""
    if count == 0 or pooling in (SUM, RAW):
        return np.float32(1)
    return np.float32(1) / np.float32(count) if pooling == MEAN else np.float32(1) / np.float32(math.sqrt(count))


@njit(**ROW_KERNEL)
def _pool_lists(row: np.ndarray, slot: np.ndarray, places: Any, inverse: Any) -> None:
    """output[b] = factor · Σ rows of the sample's ids; raw slots keep one row a position and a mask."""
    dim, length, raw = np.int64(slot[SLOT_DIM]), np.int64(slot[LENGTH]), np.int64(slot[POOLING]) == RAW
    turns = max(np.int64(slot[ROUNDS]), np.int64(1))
    last = np.int64(row[COUNT]) * turns - 1
    for b in range(row[SAMPLES]):
        begin, end = sample_bounds(row, np.int64(b))
        target = row[OUTPUT] + np.uint64(b) * row[OUTPUT_STRIDE]
        zero_row(target, dim * length if raw else dim)
        factor = pooling_factor(np.int64(slot[POOLING]), end - begin)
        for i in range(begin, end):
            place = target + (np.uint64((i - begin) * dim) << LOG2_4) if raw else target
            for turn in range(turns):
                at = i * turns + turn
                ahead = load_u32(inverse + (np.uint64(min(at + AHEAD, last)) << LOG2_4))
                prefetch(load64(places + (np.uint64(ahead) << LOG2_8)))
                number = load_u32(inverse + (np.uint64(at) << LOG2_4))
                add_row(place, load64(places + (np.uint64(number) << LOG2_8)), dim, factor)
        if raw:
            for i in range(length):
                store_u8(row[MASK_OUT] + np.uint64(np.int64(b) * length + i), np.uint8(i < end - begin))


@njit(**ROW_KERNEL)
def pool_slot(row: np.ndarray, slot: np.ndarray, places: Any, inverse: Any) -> None:
    """Fill one slot's output from the addresses of its distinct rows."""
    if row[OFFSETS] == 0 and slot[ROUNDS] == 0 and slot[POOLING] != RAW:
        _pool_single(row, slot, places, inverse)
    else:
        _pool_lists(row, slot, places, inverse)
