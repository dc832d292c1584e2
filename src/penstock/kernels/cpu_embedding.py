"""Look-up and update of many embedding tables at once, by threads that draw whole groups from a counter.

A group is one table and the slots that share it. One thread works a group from end to end, so rows need no locks:

1. `deduplicate`: the ids of the group's slots become signs; equal signs get one number (a small local table).
2. `resolve_group`: each distinct sign is found or inserted once (`initialise_row`), 16 prefetches ahead.
3. `pool_slot`: rows are copied, summed or averaged into the slots' outputs.

The update runs 1's numbering backwards: gradients are summed per distinct sign, checked, and applied once.

Rows are found by the table's keyed index (`cpu_embedding_index.hash_of`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_embedding_batch import (
    AHEAD,
    DONE,
    EVICTED,
    FIRST,
    NO_ROW,
    PROGRESS,
    SEEN_GENERATION,
    START,
    STATUS,
    UNIQUE,
    UPDATED,
    deduplicate,
    pool_slot,
)
from penstock.kernels.cpu_embedding_gradients import sum_bundle
from penstock.kernels.cpu_embedding_index import (
    ABSENT,
    DIM,
    GENERATION,
    HISTORY,
    NUM_STATES,
    PENDING_ROW,
    SCALAR_OFFSET,
    STATE_OFFSET,
    STEP,
    STORAGE,
    find_entry,
    first_place,
    resolve,
    row_address,
    side_address,
)
from penstock.kernels.cpu_embedding_optim import apply_row, catch_up
from penstock.kernels.cpu_half import FLOAT32, mix, narrow_row, widen_row
from penstock.kernels.cpu_intrinsics import LOG2_4, LOG2_8, ROW_KERNEL, load64, prefetch
from penstock.kernels.cpu_vector import fetch_add, load_u32, store_u32
from penstock.kernels.kernel_cache import njit


@njit(**ROW_KERNEL)
def _bring_forward(header: np.ndarray, sign: Any, row: Any, dim: Any, hyper: np.ndarray, scratch: Any) -> None:
    """Catch a row up with the steps it has missed (tables with a history only)."""
    address, scalar = row_address(header, row), side_address(header, row, header[SCALAR_OFFSET])
    step, state = np.int64(header[STEP]), address + header[STATE_OFFSET]
    if np.int64(load_u32(scalar)) >= step:
        return
    if header[STORAGE] == FLOAT32:
        catch_up(address, state, scalar, dim, step, header[HISTORY], hyper)
        return
    storage = np.int64(header[STORAGE])
    widen_row(scratch, address, dim, storage)
    catch_up(scratch, state, scalar, dim, step, header[HISTORY], hyper)
    narrow_row(address, scratch, dim, storage, mix(sign ^ mix(header[STEP])))


@njit(**ROW_KERNEL)
def resolve_group(
    header: np.ndarray,
    settings: np.ndarray,
    hyper: np.ndarray,
    group: np.ndarray,
    signs: Any,
    rows: Any,
    clock: Any,
    train: bool,
    scratch: Any,
) -> None:
    """Find or insert the group's distinct signs; stops with REDO where the table must grow first."""
    unique, dim = group[UNIQUE], np.int64(header[DIM])
    start = group[PROGRESS]
    for u in range(start, min(unique, start + AHEAD)):
        prefetch(first_place(header, load64(signs + (np.uint64(u) << LOG2_8))))
    for u in range(start, unique):
        if u + AHEAD < unique:
            prefetch(first_place(header, load64(signs + (np.uint64(u + AHEAD) << LOG2_8))))
        sign = load64(signs + (np.uint64(u) << LOG2_8))
        row = resolve(header, settings, sign, clock, train, scratch)
        if row < ABSENT:
            group[PROGRESS], group[STATUS] = u, -row
            return
        # The row itself is not prefetched here: by the time it is pooled it would be out of the cache again.
        if row >= 0 and header[HISTORY] > 0:
            _bring_forward(header, sign, np.uint64(row), dim, hyper, scratch)
        store_u32(rows + (np.uint64(u) << LOG2_4), np.uint32(row) if row >= 0 else NO_ROW)
    group[PROGRESS], group[STATUS] = unique, DONE


@njit(**ROW_KERNEL)
def place_rows(header: np.ndarray, unique: Any, rows: Any, places: np.ndarray, zero: Any, wide: Any) -> None:
    """The address of every distinct row as float32; absent ones share a row of zeros."""
    dim, storage = np.int64(header[DIM]), np.int64(header[STORAGE])
    for u in range(unique):
        row = load_u32(rows + (np.uint64(u) << LOG2_4))
        if storage != FLOAT32:
            ahead = load_u32(rows + (np.uint64(min(u + AHEAD, unique - 1)) << LOG2_4))
            if ahead != NO_ROW:
                prefetch(row_address(header, np.uint64(ahead)))
        if row == NO_ROW:
            places[u] = zero
        elif storage == FLOAT32:
            places[u] = row_address(header, np.uint64(row))
        else:
            places[u] = wide + (np.uint64(u * dim) << LOG2_4)
            widen_row(places[u], row_address(header, np.uint64(row)), dim, storage)


@njit(**ROW_KERNEL)
def lookup_groups(
    counter: np.ndarray,
    order: np.ndarray,
    group_starts: np.ndarray,
    members: np.ndarray,
    headers: np.ndarray,
    settings: np.ndarray,
    hyper: np.ndarray,
    slots: np.ndarray,
    inputs: np.ndarray,
    groups: np.ndarray,
    inverse: np.ndarray,
    signs: np.ndarray,
    rows: np.ndarray,
    local: np.ndarray,
    places: np.ndarray,
    wide: np.ndarray,
    clock: Any,
    train: bool,
    again: bool,
) -> None:
    """Draw groups from `counter` until none is left: number the signs, resolve them, pool their rows.

    `again` goes on after a table has grown.
    """
    inverse_at, places_at = np.uint64(inverse.ctypes.data), np.uint64(places.ctypes.data)
    wide_at = np.uint64(wide.ctypes.data)  # a row of zeros, a scratch row, then the widened rows
    row_bytes = np.uint64(wide.shape[1]) << LOG2_4
    while True:
        task = fetch_add(np.uint64(counter.ctypes.data), 1)
        if task >= order.shape[0]:
            return
        group = order[task]
        mine = members[group_starts[group] : group_starts[group + 1]]
        info, header = groups[group], headers[group]
        signs_at = np.uint64(signs.ctypes.data) + (np.uint64(info[START]) << LOG2_8)
        rows_at = np.uint64(rows.ctypes.data) + (np.uint64(info[START]) << LOG2_4)
        if not again:
            info[UNIQUE] = deduplicate(mine, slots, inputs, local, inverse_at, signs_at)
            info[PROGRESS] = 0
        info[SEEN_GENERATION] = np.int64(header[GENERATION])
        resolve_group(header, settings[group], hyper[group], info, signs_at, rows_at, clock, train, wide_at + row_bytes)
        if info[STATUS] != DONE:
            continue
        place_rows(header, info[UNIQUE], rows_at, places, wide_at, wide_at + np.uint64(2) * row_bytes)
        for slot in mine:
            pool_slot(inputs[slot], slots[slot], places_at, inverse_at + (inputs[slot, FIRST] << LOG2_4))


@njit(**ROW_KERNEL)
def _find_again(header: np.ndarray, unique: Any, signs: Any, rows: Any) -> Any:
    """Rows of signs after some were evicted or moved; how many are gone."""
    gone = 0
    for u in range(unique):
        sign = load64(signs + (np.uint64(u) << LOG2_8))
        place = rows + (np.uint64(u) << LOG2_4)
        if load_u32(place) == NO_ROW:
            continue
        entry = find_entry(header, sign)
        row = load64(entry + np.uint64(8)) & np.uint64(0xFFFFFFFF)
        if load64(entry) != sign or row == PENDING_ROW:
            row = np.uint64(NO_ROW)
            gone += 1
        store_u32(place, np.uint32(row))
    return gone


@njit(**ROW_KERNEL)
def apply_group(
    kind: Any, header: np.ndarray, hyper: np.ndarray, unique: Any, signs: Any, rows: Any, sums: Any, scratch: Any
) -> None:
    """One optimizer step on each distinct row; rows that are gone or never were are passed over."""
    dim, storage = np.int64(header[DIM]), np.int64(header[STORAGE])
    width, step = np.uint64(dim) << LOG2_4, header[STEP] + np.uint64(1)
    for u in range(unique):
        ahead = load_u32(rows + (np.uint64(min(u + AHEAD, unique - 1)) << LOG2_4))
        if ahead != NO_ROW:
            address = row_address(header, np.uint64(ahead))
            prefetch(address)
            if header[NUM_STATES] > 0:
                prefetch(address + header[STATE_OFFSET])
            if header[SCALAR_OFFSET] > 0:
                prefetch(side_address(header, np.uint64(ahead), header[SCALAR_OFFSET]))
        row = load_u32(rows + (np.uint64(u) << LOG2_4))
        if row == NO_ROW:
            continue
        address = row_address(header, np.uint64(row))
        state, scalar = address + header[STATE_OFFSET], np.uint64(0)
        if header[SCALAR_OFFSET] > 0:
            scalar = side_address(header, np.uint64(row), header[SCALAR_OFFSET])
        gradient = sums + np.uint64(u) * width
        if header[HISTORY] > 0:
            sign = load64(signs + (np.uint64(u) << LOG2_8))
            _bring_forward(header, sign, np.uint64(row), dim, hyper, scratch)
            store_u32(scalar, np.uint32(step))
        if storage == FLOAT32:
            apply_row(kind, address, state, scalar, gradient, dim, hyper)
        else:
            widen_row(scratch, address, dim, storage)
            apply_row(kind, scratch, state, scalar, gradient, dim, hyper)
            sign = load64(signs + (np.uint64(u) << LOG2_8))
            narrow_row(address, scratch, dim, storage, mix(sign + mix(step)))


@njit(**ROW_KERNEL)
def _update_group(
    header: np.ndarray, hyper: np.ndarray, kind: Any, info: np.ndarray, signs: np.ndarray, rows: np.ndarray, sums: Any,
    scratch: Any, counts: np.ndarray,
) -> None:  # fmt: skip
    signs_at = np.uint64(signs.ctypes.data) + (np.uint64(info[START]) << LOG2_8)
    rows_at = np.uint64(rows.ctypes.data) + (np.uint64(info[START]) << LOG2_4)
    counts[UPDATED] = 1
    if np.uint64(info[SEEN_GENERATION]) != header[GENERATION]:
        counts[EVICTED] += _find_again(header, info[UNIQUE], signs_at, rows_at)
    apply_group(kind, header, hyper, info[UNIQUE], signs_at, rows_at, sums, scratch)


@njit(**ROW_KERNEL)
def update_groups(
    counter: np.ndarray,
    starts: np.ndarray,
    order: np.ndarray,
    group_starts: np.ndarray,
    members: np.ndarray,
    headers: np.ndarray,
    hyper: np.ndarray,
    kind: Any,
    slots: np.ndarray,
    inputs: np.ndarray,
    groups: np.ndarray,
    inverse: np.ndarray,
    signs: np.ndarray,
    rows: np.ndarray,
    sums: np.ndarray,
    scratch: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Draw bundles of groups until none is left: sum their gradients (`sum_bundle`), apply."""
    inverse_at, scratch_at = np.uint64(inverse.ctypes.data), np.uint64(scratch.ctypes.data)
    places, firsts = np.zeros(64, np.uint64), np.zeros(64, np.int64)
    while True:
        task = fetch_add(np.uint64(counter.ctypes.data), 1)
        if task >= starts.shape[0] - 1:
            return
        bundle = order[starts[task] : starts[task + 1]]
        sum_bundle(
            bundle, group_starts, members, slots, inputs, groups, inverse_at, np.uint64(sums.ctypes.data), places,
            firsts, counts,
        )  # fmt: skip
        for k in range(bundle.shape[0]):
            group = bundle[k]
            if places[k] > 0:
                _update_group(
                    headers[group], hyper[group], kind, groups[group], signs, rows, places[k], scratch_at,
                    counts[firsts[k]],
                )  # fmt: skip


@njit(**ROW_KERNEL)
def bring_forward(header: np.ndarray, hyper: np.ndarray, signs: np.ndarray, values: np.ndarray, scratch: Any) -> None:
    """Catch listed rows up with the steps they have missed, before they are written out."""
    for i in range(signs.shape[0]):
        _bring_forward(header, signs[i], values[i] & np.uint64(0xFFFFFFFF), np.int64(header[DIM]), hyper, scratch)
