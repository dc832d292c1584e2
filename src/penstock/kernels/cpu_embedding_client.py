"""What the client of a sharded store does with a batch: numbers it, divides its signs, pools rows, sums gradients.

Each distinct sign is routed to the shard that owns it. `owner` and `place` say which that is, and where among that
shard's signs of the group; `begin` where the part of each (shard, group) begins, as a place or an address. All kernels
draw groups, or bundles of them, from `counter`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_embedding_batch import (
    FIRST,
    START,
    STATUS,
    UNIQUE,
    deduplicate,
    pool_slot,
)
from penstock.kernels.cpu_embedding_gradients import sum_bundle
from penstock.kernels.cpu_embedding_remote import shard_of
from penstock.kernels.cpu_intrinsics import LOG2_4, LOG2_8, ROW_KERNEL
from penstock.kernels.cpu_vector import copy_row, fetch_add
from penstock.kernels.kernel_cache import njit


@njit(**ROW_KERNEL)
def number_and_route(
    counter: np.ndarray, group_starts: np.ndarray, members: np.ndarray, slots: np.ndarray, inputs: np.ndarray,
    groups: np.ndarray, inverse: np.ndarray, signs: np.ndarray, local: np.ndarray, owner: np.ndarray,
    place: np.ndarray, counts: np.ndarray,
) -> None:  # fmt: skip
    """`deduplicate` for every group, and the shard of each distinct sign; `counts` of signs by shard and group."""
    found = np.zeros(counts.shape[0], np.int64)  # of one thread: lines of `counts` are shared by groups
    while True:
        group = fetch_add(np.uint64(counter.ctypes.data), 1)
        if group >= groups.shape[0]:
            return
        mine = members[group_starts[group] : group_starts[group + 1]]
        start = groups[group, START]
        begin = np.uint64(signs.ctypes.data) + (np.uint64(start) << LOG2_8)
        unique = deduplicate(mine, slots, inputs, local, np.uint64(inverse.ctypes.data), begin)
        groups[group, UNIQUE] = unique
        found[:] = 0
        for u in range(start, start + unique):
            shard = shard_of(signs[u], counts.shape[0])
            owner[u], place[u] = shard, found[shard]
            found[shard] += 1
        counts[:, group] = found


@njit(**ROW_KERNEL)
def gather_signs(
    counter: np.ndarray, groups: np.ndarray, signs: np.ndarray, owner: np.ndarray, place: np.ndarray,
    begin: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Signs in the order they are sent: shard by shard, group by group."""
    while True:
        group = fetch_add(np.uint64(counter.ctypes.data), 1)
        if group >= groups.shape[0]:
            return
        start = groups[group, START]
        for u in range(start, start + groups[group, UNIQUE]):
            out[begin[owner[u], group] + place[u]] = signs[u]


@njit(**ROW_KERNEL)
def pool_groups(
    counter: np.ndarray, group_starts: np.ndarray, members: np.ndarray, slots: np.ndarray, inputs: np.ndarray,
    groups: np.ndarray, inverse: np.ndarray, dims: np.ndarray, owner: np.ndarray, place: np.ndarray,
    begin: np.ndarray, places: np.ndarray,
) -> None:  # fmt: skip
    """Fill every output from the rows that the shards sent; `places` gets the addresses of distinct rows."""
    while True:
        group = fetch_add(np.uint64(counter.ctypes.data), 1)
        if group >= groups.shape[0]:
            return
        start, width = groups[group, START], np.uint64(dims[group]) << LOG2_4
        for u in range(start, start + groups[group, UNIQUE]):
            places[u] = begin[owner[u], group] + np.uint64(place[u]) * width
        first_place = np.uint64(places.ctypes.data) + (np.uint64(start) << LOG2_8)
        for slot in members[group_starts[group] : group_starts[group + 1]]:
            first = np.uint64(inverse.ctypes.data) + (inputs[slot, FIRST] << LOG2_4)
            pool_slot(inputs[slot], slots[slot], first_place, first)


@njit(**ROW_KERNEL)
def _send_group(
    group: Any, info: np.ndarray, dim: Any, owner: np.ndarray, place: np.ndarray, begin: np.ndarray, sums: Any
) -> None:
    """Copy a group's summed gradients to where the shards get them from."""
    start, width = info[START], np.uint64(dim) << LOG2_4
    for i in range(info[UNIQUE]):
        u = start + i
        copy_row(begin[owner[u], group] + np.uint64(place[u]) * width, sums + np.uint64(i) * width, dim)
    info[STATUS] = 1


@njit(**ROW_KERNEL)
def sum_bundles(
    counter: np.ndarray, starts: np.ndarray, order: np.ndarray, group_starts: np.ndarray, members: np.ndarray,
    slots: np.ndarray, inputs: np.ndarray, groups: np.ndarray, inverse: np.ndarray, dims: np.ndarray,
    owner: np.ndarray, place: np.ndarray, begin: np.ndarray, sums: np.ndarray, counts: np.ndarray,
) -> None:  # fmt: skip
    """`sum_bundle` for each, its sums copied to `begin`; STATUS says which groups have a gradient."""
    inverse_at = np.uint64(inverse.ctypes.data)
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
            groups[group, STATUS] = 0
            if places[k] > 0:
                _send_group(group, groups[group], dims[group], owner, place, begin, places[k])
