"""The permutation by which rows are split: a Feistel network over the next power of four, walked into its range.

L, R       the upper and the lower half of a number's bits
one round  L, R ← R, (L xor mix(R + key)) mod 2^half, with SplitMix64's output function as `mix`
walk       numbers that land beyond the range go through all rounds again
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from penstock.kernels.cpu_intrinsics import KERNEL, kernel_input
from penstock.kernels.kernel_cache import njit

ROUNDS = 8
BLOCK = 512  # rows whose halves stay in the first-level cache
PIECE = 4096  # rows whose places do; a multiple of 8
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


@njit(**KERNEL)
def _put_masks(
    first: int, num_rows: int, counts: Any, halves: Any, round_keys: Any, ends: Any, masks: Any
) -> None:  # fmt: skip
    """See `split_masks`."""
    numbers, stratum, places = np.empty(PIECE, np.int64), np.zeros(PIECE, np.int64), np.empty(PIECE, np.int64)
    for begin in range(0, num_rows, PIECE):
        filled = min(PIECE, num_rows - begin)
        for k in range(filled):
            numbers[k] = first + begin + k
        _network(numbers[:filled], stratum[:filled], counts, halves, round_keys, places)
        for which in range(ends.shape[0]):
            low = ends[which - 1] if which else np.int64(0)
            for k in range(filled):
                chosen = (places[k] >= low) & (places[k] < ends[which])
                masks[which, (begin + k) >> 3] |= np.uint8(np.uint8(chosen) << np.uint8(k & 7))


def network_places(numbers: np.ndarray, stratum: np.ndarray, counts: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Where the permutation of `range(counts[s])` that `keys[s]` names sends each number, `s` being its stratum.

    >>> places = network_places(np.arange(5), np.zeros(5, np.int64), np.array([5]), np.array([3], np.uint64))
    >>> sorted(places.tolist())
    [0, 1, 2, 3, 4]
    """
    halves, round_keys = _rounds(counts, keys)
    out = np.empty(len(numbers), np.int64)
    given = (kernel_input(numbers, np.int64), kernel_input(stratum, np.int64), kernel_input(counts, np.int64))
    _network(*given, halves, round_keys, out)
    return out


def split_masks(first: int, num_rows: int, count: int, key: int, ends: np.ndarray) -> np.ndarray:
    """Which of `num_rows` numbers from `first` on go to which split, all of one stratum: a line of bits for each split.

    Args:
        first: the first number.
        num_rows: how many there are.
        count, key: the permutation of `range(count)`, as `network_places` has it.
        ends: where each split ends in the permuted numbers.

    >>> places = network_places(np.arange(10), np.zeros(10, np.int64), np.array([10]), np.array([3], np.uint64))
    >>> masks = split_masks(0, 10, 10, 3, np.array([4, 10]))
    >>> np.unpackbits(masks[0], count=10, bitorder="little").tolist() == (places < 4).tolist()
    True
    """
    counts, halves, round_keys = _rounds_of_one(count, key)
    masks = np.zeros((len(ends), (num_rows + 7) // 8), np.uint8)
    _put_masks(first, num_rows, counts, halves, round_keys, kernel_input(ends, np.int64), masks)
    return masks


def _rounds(counts: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many bits half a number has in each stratum, and the key of each round, `(rounds, strata)`."""
    halves = ((np.frexp((counts - 1).astype(np.float64))[1] + 1) // 2).astype(np.uint64)
    turns = np.array([turn * GOLDEN % 2**64 for turn in range(1, ROUNDS + 1)], np.uint64)
    with np.errstate(over="ignore"):
        mixed = keys.astype(np.uint64)[:, None] + turns
        for shift, factor in zip(_SHIFTS, (_FIRST, _SECOND, np.uint64(1)), strict=True):
            mixed = (mixed ^ (mixed >> shift)) * factor
    return kernel_input(halves, np.uint64), kernel_input(np.ascontiguousarray(mixed.T), np.uint64)


@functools.lru_cache(maxsize=16)
def _rounds_of_one(count: int, key: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    counts = np.array([count], np.int64)
    return counts, *_rounds(counts, np.array([key], np.uint64))
