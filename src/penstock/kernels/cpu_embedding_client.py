"""What the client of a sharded store does with a batch: numbers it, divides its signs, pools rows, sums gradients.

Each distinct sign is routed to the shard that owns it. `owner` and `place` say which that is, and where among that
shard's signs of the group; `begin` where the part of each (shard, group) begins, as a place or an address. All kernels
draw groups, or bundles of them, from `counter`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_embedding_batch import (
    DROPPED,
    FIRST,
    START,
    STATUS,
    UNIQUE,
    deduplicate,
    pool_slot,
    sum_bundle,
    sum_group,
)
from penstock.kernels.cpu_embedding_remote import shard_of
from penstock.kernels.cpu_intrinsics import KERNEL, LOG2_4, LOG2_8
from penstock.kernels.cpu_vector import copy_row, fetch_add, row_is_finite, zero_row
from penstock.kernels.kernel_cache import njit


@njit(**KERNEL)
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


@njit(**KERNEL)
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


@njit(**KERNEL)
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


@njit(**KERNEL)
def _send_group(
    group: Any, info: np.ndarray, dim: Any, owner: np.ndarray, place: np.ndarray, begin: np.ndarray, sums: Any
) -> None:
    """Copy a group's summed gradients to where the shards get them from."""
    start, width = info[START], np.uint64(dim) << LOG2_4
    for i in range(info[UNIQUE]):
        u = start + i
        copy_row(begin[owner[u], group] + np.uint64(place[u]) * width, sums + np.uint64(i) * width, dim)
    info[STATUS] = 1


@njit(**KERNEL)
def sum_bundles(
    counter: np.ndarray, starts: np.ndarray, order: np.ndarray, group_starts: np.ndarray, members: np.ndarray,
    slots: np.ndarray, inputs: np.ndarray, groups: np.ndarray, inverse: np.ndarray, dims: np.ndarray,
    owner: np.ndarray, place: np.ndarray, begin: np.ndarray, sums: np.ndarray, counts: np.ndarray,
) -> None:  # fmt: skip
    """Sum gradients by distinct sign, check them, copy them to `begin`; STATUS says which groups have a gradient.

    A bundle is one group of any kind, or several of one slot each whose gradients lie side by side.
    """
    inverse_at = np.uint64(inverse.ctypes.data)
    places, alone = np.zeros(64, np.uint64), np.zeros(64, np.int64)
    while True:
        task = fetch_add(np.uint64(counter.ctypes.data), 1)
        if task >= starts.shape[0] - 1:
            return
        bundle = order[starts[task] : starts[task + 1]]
        at = np.uint64(sums.ctypes.data)
        for group in bundle:
            groups[group, STATUS] = 0
        if bundle.shape[0] == 1:
            group = bundle[0]
            mine = members[group_starts[group] : group_starts[group + 1]]
            if sum_group(mine, slots, inputs, groups[group, UNIQUE], at, inverse_at, counts):
                _send_group(group, groups[group], dims[group], owner, place, begin, at)
            continue
        for k in range(bundle.shape[0]):
            places[k], alone[k] = at, members[group_starts[bundle[k]]]
            at += np.uint64(groups[bundle[k], UNIQUE] * dims[bundle[k]]) << LOG2_4
        zero_row(places[0], np.int64((at - places[0]) >> LOG2_4))
        sum_bundle(slots, inputs, alone[: bundle.shape[0]], places, inverse_at)
        for k in range(bundle.shape[0]):
            group = bundle[k]
            if row_is_finite(places[k], groups[group, UNIQUE] * dims[group]):
                _send_group(group, groups[group], dims[group], owner, place, begin, places[k])
            else:
                counts[alone[k], DROPPED] += 1
