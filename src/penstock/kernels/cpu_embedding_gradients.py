"""A batch's gradients, summed per distinct sign: `cpu_embedding_batch` backwards, for stores and clients of shards."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_embedding_batch import (
    AHEAD,
    COUNT,
    DROPPED,
    FIRST,
    GRADIENT,
    GRADIENT_STRIDE,
    LENGTH,
    OFFSETS,
    POOLING,
    RAW,
    ROUNDS,
    SAMPLES,
    SLOT_DIM,
    UNIQUE,
    pooling_factor,
    sample_bounds,
)
from penstock.kernels.cpu_intrinsics import LOG2_4, ROW_KERNEL, prefetch
from penstock.kernels.cpu_vector import add_row, load_u32, row_is_finite, zero_row
from penstock.kernels.kernel_cache import njit

_TILE = 64  # samples of one slot before the next slot of a bundle has its turn


@njit(**ROW_KERNEL)
def _is_finite(row: np.ndarray, slot: np.ndarray) -> Any:
    """Whether a slot's whole gradient is finite."""
    width = np.int64(slot[SLOT_DIM]) * (np.int64(slot[LENGTH]) if np.int64(slot[POOLING]) == RAW else 1)
    finite = True
    for b in range(row[SAMPLES]):
        finite &= row_is_finite(row[GRADIENT] + np.uint64(b) * row[GRADIENT_STRIDE], width)
    return finite


@njit(**ROW_KERNEL)
def _sum_single(row: np.ndarray, slot: np.ndarray, sums: Any, inverse: Any) -> None:
    dim, gradient, stride = np.int64(slot[SLOT_DIM]), row[GRADIENT], row[GRADIENT_STRIDE]
    count = np.int64(row[COUNT])
    width = np.uint64(dim) << LOG2_4
    for b in range(count):
        prefetch(gradient + np.uint64(b + AHEAD) * stride)
        number = np.uint64(load_u32(inverse + (np.uint64(b) << LOG2_4)))
        add_row(sums + number * width, gradient + np.uint64(b) * stride, dim, np.float32(1))


@njit(**ROW_KERNEL)
def _sum_lists(row: np.ndarray, slot: np.ndarray, sums: Any, inverse: Any) -> None:
    dim, raw = np.int64(slot[SLOT_DIM]), np.int64(slot[POOLING]) == RAW
    turns, width = max(np.int64(slot[ROUNDS]), np.int64(1)), np.uint64(dim) << LOG2_4
    for b in range(row[SAMPLES]):
        begin, end = sample_bounds(row, np.int64(b))
        gradient = row[GRADIENT] + np.uint64(b) * row[GRADIENT_STRIDE]
        factor = pooling_factor(np.int64(slot[POOLING]), end - begin)
        for i in range(begin, end):
            source = gradient + np.uint64(i - begin) * width if raw else gradient
            for turn in range(turns):
                number = np.uint64(load_u32(inverse + (np.uint64(i * turns + turn) << LOG2_4)))
                add_row(sums + number * width, source, dim, factor)


@njit(**ROW_KERNEL)
def _sum_side_by_side(
    slots: np.ndarray, inputs: np.ndarray, members: np.ndarray, sums: np.ndarray, inverse: Any
) -> None:
    """Sum the gradients of several one-slot groups that lie side by side, a few samples of each in turn.

    The lines of a sample's row are neighbours in memory; reading them together is what makes packed gradients fast.
    """
    count = np.int64(inputs[members[0], COUNT])
    for begin in range(0, count, _TILE):
        end = min(np.int64(begin + _TILE), count)
        for k in range(members.shape[0]):
            row, dim = inputs[members[k]], np.int64(slots[members[k], SLOT_DIM])
            first, width = inverse + (row[FIRST] << LOG2_4), np.uint64(dim) << LOG2_4
            stride, target = row[GRADIENT_STRIDE], sums[k]
            for b in range(begin, end):
                gradient = row[GRADIENT] + np.uint64(b) * stride
                prefetch(gradient + np.uint64(_TILE) * stride)
                number = np.uint64(load_u32(first + (np.uint64(b) << LOG2_4)))
                add_row(target + number * width, gradient, dim, np.float32(1))


@njit(**ROW_KERNEL)
def _sum_group(
    members: np.ndarray, slots: np.ndarray, inputs: np.ndarray, unique: Any, sums: Any, inverse: Any, counts: np.ndarray
) -> Any:
    """Sum the gradients of a group per distinct sign; False where none of its slots has a finite one.

    A slot whose gradient is not finite anywhere is left out as a whole and counted. A group of one slot is checked on
    its sums, which are in cache, rather than on its gradients.
    """
    dim, alone, any_summed = np.int64(slots[members[0], SLOT_DIM]), members.shape[0] == 1, False
    zero_row(sums, unique * dim)
    for slot in members:
        row = inputs[slot]
        if row[GRADIENT] == 0:
            continue
        if not alone and not _is_finite(row, slots[slot]):
            counts[slot, DROPPED] += 1
            continue
        first = inverse + (row[FIRST] << LOG2_4)
        if row[OFFSETS] == 0 and slots[slot, ROUNDS] == 0 and slots[slot, POOLING] != RAW:
            _sum_single(row, slots[slot], sums, first)
        else:
            _sum_lists(row, slots[slot], sums, first)
        if alone and not row_is_finite(sums, unique * dim):
            counts[slot, DROPPED] += 1
            continue
        any_summed = True
    return any_summed


@njit(**ROW_KERNEL)
def sum_bundle(
    bundle: np.ndarray, group_starts: np.ndarray, members: np.ndarray, slots: np.ndarray, inputs: np.ndarray,
    groups: np.ndarray, inverse: Any, sums: Any, places: np.ndarray, firsts: np.ndarray, counts: np.ndarray,
) -> None:  # fmt: skip
    """Sum the gradients of a bundle of groups per distinct sign, from the address `sums` on, and check them.

    A bundle is one group of any kind, or several of one slot each whose gradients lie side by side. `places` gets where
    each group's sums are, 0 for one that has no finite gradient, and `firsts` its first slot.
    """
    for k in range(bundle.shape[0]):
        firsts[k] = members[group_starts[bundle[k]]]
    if bundle.shape[0] == 1:
        mine = members[group_starts[bundle[0]] : group_starts[bundle[0] + 1]]
        summed = _sum_group(mine, slots, inputs, groups[bundle[0], UNIQUE], sums, inverse, counts)
        places[0] = sums if summed else np.uint64(0)
        return
    at = sums
    for k in range(bundle.shape[0]):
        places[k] = at
        at += (np.uint64(groups[bundle[k], UNIQUE]) * slots[firsts[k], SLOT_DIM]) << LOG2_4
    zero_row(sums, np.int64((at - sums) >> LOG2_4))
    _sum_side_by_side(slots, inputs, firsts[: bundle.shape[0]], places, inverse)
    for k in range(bundle.shape[0]):
        if not row_is_finite(places[k], groups[bundle[k], UNIQUE] * np.int64(slots[firsts[k], SLOT_DIM])):
            counts[firsts[k], DROPPED] += 1
            places[k] = np.uint64(0)
