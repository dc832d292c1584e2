"""Look-up and update by distinct signs: what a shard does for its clients (`cpu_embedding_client`).

A shard is sent one flat array of signs, group after group. Rows go back, new ones as `initialise_row` makes them, and
gradients come in that order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_embedding import apply_group, place_rows, resolve_group
from penstock.kernels.cpu_embedding_batch import AHEAD, DONE, NO_ROW, START, STATUS, UNIQUE
from penstock.kernels.cpu_embedding_index import DIM, PENDING_ROW, STAMPED, find_entry, first_place
from penstock.kernels.cpu_half import mix
from penstock.kernels.cpu_intrinsics import LOG2_4, LOG2_8, ROW_KERNEL, load64, multiply_high, prefetch
from penstock.kernels.cpu_vector import copy_row, fetch_add, store_u32, store_u64
from penstock.kernels.kernel_cache import njit

_SALT = np.uint64(0x5851F42D4C957F2D)  # shards are the same in every process, unlike the index's keyed hash
_LOW32 = np.uint64(0xFFFFFFFF)


@njit(**ROW_KERNEL)
def shard_of(sign: Any, num_shards: Any) -> Any:
    """The shard that owns a sign."""
    return np.int64(multiply_high(mix(sign ^ _SALT), np.uint64(num_shards)))


@njit(**ROW_KERNEL)
def owned(signs: np.ndarray, shard: Any, num_shards: Any, out: np.ndarray) -> None:
    """Which signs a shard owns."""
    for i in range(signs.shape[0]):
        out[i] = shard_of(signs[i], num_shards) == shard


@njit(**ROW_KERNEL)
def lookup_signs(
    counter: np.ndarray, order: np.ndarray, headers: np.ndarray, settings: np.ndarray, hyper: np.ndarray,
    groups: np.ndarray, signs: np.ndarray, rows: np.ndarray, begin: np.ndarray, out: np.ndarray,
    places: np.ndarray, wide: np.ndarray, clock: Any, train: bool,
) -> None:  # fmt: skip
    """Draw groups: find or insert their signs, which are distinct, and copy the rows out in that order."""
    wide_at, row_bytes = np.uint64(wide.ctypes.data), np.uint64(wide.shape[1]) << LOG2_4
    while True:
        task = fetch_add(np.uint64(counter.ctypes.data), 1)
        if task >= order.shape[0]:
            return
        group = order[task]
        info, header = groups[group], headers[group]
        signs_at = np.uint64(signs.ctypes.data) + (np.uint64(info[START]) << LOG2_8)
        rows_at = np.uint64(rows.ctypes.data) + (np.uint64(info[START]) << LOG2_4)
        resolve_group(header, settings[group], hyper[group], info, signs_at, rows_at, clock, train, wide_at + row_bytes)
        if info[STATUS] != DONE:
            continue
        place_rows(header, info[UNIQUE], rows_at, places, wide_at, wide_at + np.uint64(2) * row_bytes)
        dim = np.int64(header[DIM])
        target = np.uint64(out.ctypes.data) + (np.uint64(begin[group]) << LOG2_4)
        for u in range(info[UNIQUE]):
            prefetch(places[min(np.int64(u + AHEAD), info[UNIQUE] - 1)])
            copy_row(target + (np.uint64(u * dim) << LOG2_4), places[u], dim)


@njit(**ROW_KERNEL)
def update_signs(
    counter: np.ndarray, order: np.ndarray, headers: np.ndarray, hyper: np.ndarray, kind: Any, groups: np.ndarray,
    signs: np.ndarray, rows: np.ndarray, begin: np.ndarray, sums: np.ndarray, scratch: np.ndarray, clock: Any,
    gone: np.ndarray,
) -> None:  # fmt: skip
    """Draw groups: find their signs' rows, stamp them if asked, and apply the summed gradients (overwritten)."""
    while True:
        task = fetch_add(np.uint64(counter.ctypes.data), 1)
        if task >= order.shape[0]:
            return
        group = order[task]
        info, header = groups[group], headers[group]
        end = info[START] + info[UNIQUE]
        for u in range(info[START], end):
            prefetch(first_place(header, signs[min(np.int64(u + AHEAD), end - 1)]))
            entry = find_entry(header, signs[u])
            value = load64(entry + np.uint64(8))
            row = value & _LOW32
            if load64(entry) != signs[u] or row == PENDING_ROW:
                row = np.uint64(NO_ROW)
                gone[group] += 1
            elif header[STAMPED] > 0:
                store_u64(entry + np.uint64(8), row | (clock << np.uint64(32)))
            store_u32(np.uint64(rows.ctypes.data) + (np.uint64(u) << LOG2_4), np.uint32(row))
        apply_group(
            kind,
            header,
            hyper[group],
            info[UNIQUE],
            np.uint64(signs.ctypes.data) + (np.uint64(info[START]) << LOG2_8),
            np.uint64(rows.ctypes.data) + (np.uint64(info[START]) << LOG2_4),
            np.uint64(sums.ctypes.data) + (np.uint64(begin[group]) << LOG2_4),
            np.uint64(scratch.ctypes.data),
        )
