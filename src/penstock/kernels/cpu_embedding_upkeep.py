"""Upkeep of one embedding table: choosing and evicting rows, closing gaps, reading and writing rows in bulk.

`segments` lists the address of every segment once (the directory may name one several times).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_embedding_batch import AHEAD
from penstock.kernels.cpu_embedding_index import (
    CAPACITY,
    COUNT_OFFSET,
    DIM,
    FREE,
    FREE_COUNT,
    MASK,
    NEED_ROWS,
    NEED_SPLIT,
    NEXT_ROW,
    NUM_STATES,
    PENDING,
    PENDING_ROW,
    ROWS,
    SCALAR_OFFSET,
    SEGMENT_HEADER,
    STATE_OFFSET,
    STORAGE,
    STRIDE,
    allocate_row,
    find_entry,
    first_place,
    hash_of,
    place_entry,
    row_address,
    segment_of,
    side_address,
)
from penstock.kernels.cpu_half import FLOAT32, mix
from penstock.kernels.cpu_intrinsics import LOG2_4, ROW_KERNEL, load8, load64, prefetch
from penstock.kernels.cpu_vector import load_u16, load_u32, store_u8, store_u16, store_u32, store_u64
from penstock.kernels.kernel_cache import njit

BY_PRIORITY, BY_PENDING, BY_SIGN = range(3)  # what `remove` removes
_LOW32, _SHIFT32 = np.uint64(0xFFFFFFFF), np.uint64(32)


@njit(**ROW_KERNEL)
def _entry(segment: Any, place: Any) -> Any:
    return segment + np.uint64(SEGMENT_HEADER) + (np.uint64(place) << np.uint64(4))


@njit(**ROW_KERNEL)
def _priority(header: np.ndarray, value: Any, by_count: bool) -> Any:
    """What eviction ranks rows by: the count, or the step that touched the row last."""
    if by_count:
        return np.int64(load_u32(side_address(header, value & _LOW32, header[COUNT_OFFSET])))
    return np.int64(value >> _SHIFT32)


@njit(**ROW_KERNEL)
def histogram(
    header: np.ndarray, segments: np.ndarray, by_count: bool, clock: Any, upper: Any, bins: np.ndarray
) -> None:
    """Count rows by the upper 16 bits of their priority, or by the lower 16 of those whose upper are `upper`.

    Rows of the current step are left out: the batch that is being looked up is never evicted.
    """
    for segment in segments:
        for place in range(np.int64(header[MASK]) + 1):
            entry = _entry(segment, place)
            value = load64(entry + np.uint64(8))
            if load64(entry) == 0 or value & _LOW32 == PENDING_ROW or np.int64(value >> _SHIFT32) >= clock:
                continue
            priority = _priority(header, value, by_count)
            if upper < 0:
                bins[priority >> 16] += 1
            elif priority >> 16 == upper:
                bins[priority & 0xFFFF] += 1


@njit(**ROW_KERNEL)
def ties(header: np.ndarray, segments: np.ndarray, by_count: bool, clock: Any, priority: Any, out: np.ndarray) -> Any:
    """The hashes of the rows with exactly this priority; how many."""
    found = 0
    for segment in segments:
        for place in range(np.int64(header[MASK]) + 1):
            entry = _entry(segment, place)
            value = load64(entry + np.uint64(8))
            if load64(entry) == 0 or value & _LOW32 == PENDING_ROW or np.int64(value >> _SHIFT32) >= clock:
                continue
            if _priority(header, value, by_count) == priority:
                out[found] = mix(load64(entry))
                found += 1
    return found


@njit(**ROW_KERNEL)
def _doomed(
    header: np.ndarray, key: Any, value: Any, what: Any, by_count: bool, clock: Any, limit: Any, tie: Any,
    listed: np.ndarray,
) -> Any:  # fmt: skip
    pending = value & _LOW32 == PENDING_ROW
    if what == BY_SIGN:
        at = np.searchsorted(listed, key)
        return at < listed.shape[0] and listed[at] == key
    if what == BY_PENDING:
        return pending and np.int64(value >> _SHIFT32) <= limit
    if pending or np.int64(value >> _SHIFT32) >= clock:
        return False
    priority = _priority(header, value, by_count)
    return priority < limit or (priority == limit and mix(key) < tie)


@njit(**ROW_KERNEL)
def remove(
    header: np.ndarray, segments: np.ndarray, what: Any, by_count: bool, clock: Any, limit: Any, tie: Any,
    listed: np.ndarray, scratch: np.ndarray, removed: np.ndarray,
) -> Any:  # fmt: skip
    """Rebuild every segment without the entries that go; their rows join the free list. How many rows went.

    BY_PRIORITY: priority below `limit`, or equal to it with a hash below `tie`. BY_PENDING: entries that only count,
    up to `limit`. BY_SIGN: the signs in `listed`, which is sorted. `removed` takes the signs of the rows (it may be
    empty: then they are not kept).
    """
    gone = 0
    for segment in segments:
        kept, touched = 0, False
        for place in range(np.int64(header[MASK]) + 1):
            entry = _entry(segment, place)
            key, value = load64(entry), load64(entry + np.uint64(8))
            if key == 0:
                continue
            if _doomed(header, key, value, what, by_count, clock, limit, tie, listed):
                touched = True
                if value & _LOW32 == PENDING_ROW:
                    header[PENDING] -= np.uint64(1)
                    continue
                store_u32(header[FREE] + (header[FREE_COUNT] << LOG2_4), np.uint32(value & _LOW32))
                header[FREE_COUNT] += np.uint64(1)
                header[ROWS] -= np.uint64(1)
                if removed.shape[0] > 0:
                    removed[gone] = key
                gone += 1
            else:
                scratch[kept, 0], scratch[kept, 1] = key, value
                kept += 1
        if touched:
            store_u64(segment, np.uint64(0))
            for place in range(np.int64(header[MASK]) + 1):
                store_u64(_entry(segment, place), np.uint64(0))
            for i in range(kept):
                place_entry(header, segment, header[MASK], scratch[i, 0], scratch[i, 1])
    return gone


@njit(**ROW_KERNEL)
def _move_row(header: np.ndarray, source: Any, target: Any) -> None:
    here, there = row_address(header, source), row_address(header, target)
    for i in range(header[STRIDE]):
        store_u8(there + np.uint64(i), np.uint8(load8(here + np.uint64(i))))
    for offset in (header[SCALAR_OFFSET], header[COUNT_OFFSET]):
        if offset > 0:
            store_u32(side_address(header, target, offset), load_u32(side_address(header, source, offset)))


@njit(**ROW_KERNEL)
def compact(header: np.ndarray, segments: np.ndarray, capacity: Any) -> None:
    """Move rows at or above `capacity` into free rows below it, so that the memory above can be given back."""
    kept = np.uint64(0)
    for i in range(header[FREE_COUNT]):
        row = load_u32(header[FREE] + (np.uint64(i) << LOG2_4))
        if row < capacity:
            store_u32(header[FREE] + (kept << LOG2_4), row)
            kept += np.uint64(1)
    header[FREE_COUNT] = kept
    for segment in segments:
        for place in range(np.int64(header[MASK]) + 1):
            entry = _entry(segment, place)
            value = load64(entry + np.uint64(8))
            row = value & _LOW32
            if load64(entry) == 0 or row == PENDING_ROW or row < np.uint64(capacity):
                continue
            header[FREE_COUNT] -= np.uint64(1)
            target = np.uint64(load_u32(header[FREE] + (header[FREE_COUNT] << LOG2_4)))
            _move_row(header, row, target)
            store_u64(entry + np.uint64(8), (value & ~_LOW32) | target)
    header[NEXT_ROW] = min(header[NEXT_ROW], np.uint64(capacity))
    header[CAPACITY] = np.uint64(capacity)


@njit(**ROW_KERNEL)
def list_entries(
    header: np.ndarray, segments: np.ndarray, since: Any, pending: bool, signs: np.ndarray, values: np.ndarray
) -> Any:
    """Signs and values (row, stamp) of the rows touched after step `since` (or of the entries that only count)."""
    found = 0
    for segment in segments:
        for place in range(np.int64(header[MASK]) + 1):
            entry = _entry(segment, place)
            key, value = load64(entry), load64(entry + np.uint64(8))
            if key == 0 or (value & _LOW32 == PENDING_ROW) != pending:
                continue
            if pending or np.int64(value >> _SHIFT32) > since:
                signs[found], values[found] = key, value
                found += 1
    return found


@njit(**ROW_KERNEL)
def _copy_row(
    header: np.ndarray, row: Any, i: Any, weights: Any, states: Any, scalars: Any, counts: Any, out: bool
) -> None:
    dim, at = header[DIM], np.uint64(i)
    address, item = row_address(header, row), np.uint64(4) if header[STORAGE] == FLOAT32 else np.uint64(2)
    for j in range(dim):
        inside, outside = address + np.uint64(j) * item, weights + (at * dim + np.uint64(j)) * item
        if item == np.uint64(2):
            if out:
                store_u16(outside, load_u16(inside))
            else:
                store_u16(inside, load_u16(outside))
        elif out:
            store_u32(outside, load_u32(inside))
        else:
            store_u32(inside, load_u32(outside))
    width = dim * header[NUM_STATES]
    for j in range(width):
        inside = address + header[STATE_OFFSET] + (np.uint64(j) << LOG2_4)
        outside = states + ((at * width + np.uint64(j)) << LOG2_4)
        if out:
            store_u32(outside, load_u32(inside))
        else:
            store_u32(inside, load_u32(outside))
    for offset, column in ((header[SCALAR_OFFSET], scalars), (header[COUNT_OFFSET], counts)):
        if offset > 0:
            inside, outside = side_address(header, row, offset), column + (at << LOG2_4)
            if out:
                store_u32(outside, load_u32(inside))
            else:
                store_u32(inside, load_u32(outside))


@njit(**ROW_KERNEL)
def read_rows(header: np.ndarray, values: np.ndarray, weights: Any, states: Any, scalars: Any, counts: Any) -> None:
    """Copy the rows of some entries into columns at the given addresses."""
    for i in range(values.shape[0]):
        _copy_row(header, values[i] & _LOW32, i, weights, states, scalars, counts, True)


@njit(**ROW_KERNEL)
def write_rows(
    header: np.ndarray, signs: np.ndarray, stamps: np.ndarray, start: Any, pending: bool,
    weights: Any, states: Any, scalars: Any, counts: Any,
) -> Any:  # fmt: skip
    """Insert or overwrite rows from columns; (index, 0) at the end, or (where it stopped, why) when room is needed."""
    for i in range(start, signs.shape[0]):
        entry = find_entry(header, signs[i])
        new = load64(entry) != signs[i]
        row = load64(entry + np.uint64(8)) & _LOW32
        if new:
            segment = segment_of(header, hash_of(header, signs[i]))
            if load64(segment) * np.uint64(4) >= (header[MASK] + np.uint64(1)) * np.uint64(3):
                return i, NEED_SPLIT
        if (new or row == PENDING_ROW) and not pending:
            allocated = allocate_row(header)
            if allocated < 0:
                return i, NEED_ROWS
            if not new:
                header[PENDING] -= np.uint64(1)
            row = np.uint64(allocated)
            header[ROWS] += np.uint64(1)
        elif new:
            row = PENDING_ROW
            header[PENDING] += np.uint64(1)
        if new:
            store_u64(segment, load64(segment) + np.uint64(1))
            store_u64(entry, signs[i])
        store_u64(entry + np.uint64(8), row | (np.uint64(stamps[i]) << _SHIFT32))
        if row != PENDING_ROW:
            _copy_row(header, row, i, weights, states, scalars, counts, False)
    return signs.shape[0], 0


@njit(**ROW_KERNEL)
def touch(header: np.ndarray, signs: np.ndarray, stamps: np.ndarray) -> None:
    """Stamp rows that are there, each with its step unless it has a later one."""
    for i in range(signs.shape[0]):
        prefetch(first_place(header, signs[min(i + AHEAD, signs.shape[0] - 1)]))
        entry = find_entry(header, signs[i])
        value = load64(entry + np.uint64(8))
        if load64(entry) == signs[i] and value & _LOW32 != PENDING_ROW and value >> _SHIFT32 < stamps[i]:
            store_u64(entry + np.uint64(8), (value & _LOW32) | (stamps[i] << _SHIFT32))
