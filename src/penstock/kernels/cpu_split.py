"""The permutation by which rows are split: a Feistel network over the next power of four, walked into its range.

L, R       the upper and the lower half of a number's bits
one round  L, R ← R, (L xor mix(R + key)) mod 2^half, with SplitMix64's output function as `mix`
walk       numbers that land beyond the range go through all rounds again
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_intrinsics import KERNEL, kernel_input
from penstock.kernels.kernel_cache import njit

ROUNDS = 8
BLOCK = 512  # rows whose halves stay in the first-level cache
GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


@njit(**KERNEL)
def _mix(x: Any) -> Any:
    x = (x ^ (x >> _SHIFTS[0])) * _FIRST
    x = (x ^ (x >> _SHIFTS[1])) * _SECOND
    return x ^ (x >> _SHIFTS[2])


@njit(**KERNEL)
def _network(numbers: Any, stratum: Any, counts: Any, halves: Any, round_keys: Any, out: Any) -> None:
    """A block goes through each round together, in the machine's vectors; those that must walk on are moved up."""
    left, right, own = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.int64)
    masks, rows = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.int64)
    is_one = counts.shape[0] == 1
    for first in range(0, numbers.shape[0], BLOCK):
        walking = np.int64(min(BLOCK, numbers.shape[0] - first))
        for k in range(walking):
            rows[k], own[k] = first + k, stratum[first + k]
            half = halves[own[k]]
            masks[k] = (np.uint64(1) << half) - np.uint64(1)
            value = np.uint64(numbers[first + k])
            left[k], right[k] = value >> half, value & masks[k]
        while walking > 0:
            for turn in range(ROUNDS):
                key = round_keys[turn, 0]
                if is_one:
                    for k in range(walking):
                        mixed = (left[k] ^ _mix(right[k] + key)) & masks[k]
                        left[k], right[k] = right[k], mixed
                else:
                    for k in range(walking):
                        mixed = (left[k] ^ _mix(right[k] + round_keys[turn, own[k]])) & masks[k]
                        left[k], right[k] = right[k], mixed
            kept = np.int64(0)
            for k in range(walking):
                value = (left[k] << halves[own[k]]) | right[k]
                out[rows[k]] = np.int64(value)
                left[kept], right[kept], masks[kept] = left[k], right[k], masks[k]
                rows[kept], own[kept] = rows[k], own[k]
                kept += np.int64(value >= np.uint64(counts[own[k]]))
            walking = kept


def network_places(numbers: np.ndarray, stratum: np.ndarray, counts: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Where the permutation of `range(counts[s])` that `keys[s]` names sends each number, `s` being its stratum.

    >>> places = network_places(np.arange(5), np.zeros(5, np.int64), np.array([5]), np.array([3], np.uint64))
    >>> sorted(places.tolist())
    [0, 1, 2, 3, 4]
    """
    halves = ((np.frexp((counts - 1).astype(np.float64))[1] + 1) // 2).astype(np.uint64)
    turns = np.array([turn * GOLDEN % 2**64 for turn in range(1, ROUNDS + 1)], np.uint64)
    with np.errstate(over="ignore"):
        mixed = keys.astype(np.uint64)[:, None] + turns
        for shift, factor in zip(_SHIFTS, (_FIRST, _SECOND, np.uint64(1)), strict=True):
            mixed = (mixed ^ (mixed >> shift)) * factor
    out = np.empty(len(numbers), np.int64)
    given = (kernel_input(numbers, np.int64), kernel_input(stratum, np.int64), kernel_input(counts, np.int64))
    _network(*given, kernel_input(halves, np.uint64), kernel_input(np.ascontiguousarray(mixed.T), np.uint64), out)
    return out
