"""Bins of scores that become one: the largest blocks of the binary trie of their keys that weigh little enough."""

from __future__ import annotations

from numba import int64

from penstock.kernels.cpu_intrinsics import KERNEL
from penstock.kernels.kernel_cache import njit

_DEEP = 130  # ranges that wait: one a level at the most, and a few


@njit(**KERNEL)
def _first_not_below(keys, key, low, high):
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@njit(**KERNEL)
def light_blocks(keys, upto, heaviest, starts):
    """Where the blocks begin, in `starts`; how many they are.

    From the whole downwards: a range of bins that is too heavy is cut at the highest bit in which its keys differ, so
    that only ranges are looked at that are cut, and those that they are cut into.

    Args:
        keys: the first key of each bin, ascending.
        upto: what the bins before each weigh together, and all of them.
        heaviest: that bins which become one may weigh together.
        starts: room for as many numbers as there are bins.
    """
    waiting = [(int64(0), int64(0))] * _DEEP
    signs = _first_not_below(keys, int64(0), int64(0), int64(len(keys)))
    waiting[0], waiting[1] = (signs, int64(len(keys))), (int64(0), signs)  # scores of two signs stay apart
    left, found = 2, 0
    while left:
        left -= 1
        low, high = waiting[left]
        if high == low:
            continue
        if high - low == 1 or upto[high] - upto[low] <= heaviest:
            starts[found] = low
            found += 1
            continue
        bit, differ = int64(0), keys[low] ^ keys[high - 1]
        while differ >> 1:
            differ >>= 1
            bit += 1
        middle = _first_not_below(keys, (keys[high - 1] >> bit) << bit, low, high)
        waiting[left], waiting[left + 1] = (middle, high), (low, middle)
        left += 2
    return found
