"""Row shuffles on the CPU: permutations, gathers of columns and of lists, padding. All release the GIL.

`out` of the dense kernels is one column of a block. Batches of `width` rows begin `stride` places apart, which keeps each
of them aligned whatever its size: row `r` is at `place(r) = r // width * stride + r % width`.
"""

from __future__ import annotations

import numpy as np
from numba import njit, uint32, uint64

from penstock.kernels.reference_gather import split_mix


def mix_seed(*parts: int) -> int:
    """64 well-mixed bits from any integers; order matters.

    >>> mix_seed(0, 1) != mix_seed(1, 0)
    True
    """
    state = 0
    for part in parts:
        state, out = split_mix(state ^ (part & 0xFFFF_FFFF_FFFF_FFFF))
        state ^= out
    return state


def permutation(size: int, seed: int) -> np.ndarray:
    """A uniform permutation of `range(size)` as uint32, the same on every machine and version.

    >>> sorted(permutation(5, seed=3).tolist())
    [0, 1, 2, 3, 4]
    """
    order = np.empty(size, np.uint32)
    fill_permutation(order, np.uint64(seed))
    return order


@njit(nogil=True, cache=True)
def fill_permutation(order, seed):
    """Fisher and Yates from the top, with SplitMix64 and a multiply instead of a modulo."""
    size = order.shape[0]
    for i in range(size):
        order[i] = uint32(i)
    state = uint64(seed)
    for i in range(size - 1, 0, -1):
        state += uint64(0x9E3779B97F4A7C15)
        z = state
        z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
        z = z ^ (z >> uint64(31))
        j = ((z >> uint64(32)) * uint64(i + 1)) >> uint64(32)
        swap = order[i]
        order[i] = order[j]
        order[j] = swap


@njit(nogil=True, cache=True)
def gather_column(source, order, out, at, width, stride):
    """`out[place(at + i)] = source[order[i]]`, cast to the dtype of `out`."""
    i, size = 0, order.shape[0]
    while i < size:
        place = (at + i) % width
        run = min(size - i, width - place)
        base = (at + i) // width * stride + place
        target = out[base : base + run]
        picks = order[i : i + run]
        for k in range(target.shape[0]):
            target[k] = source[picks[k]]
        i += run


@njit(nogil=True, cache=True)
def copy_column(source, out, at, width, stride):
    """`out[place(at + i)] = source[i]`, cast to the dtype of `out`."""
    i, size = 0, source.shape[0]
    while i < size:
        place = (at + i) % width
        run = min(size - i, width - place)
        base = (at + i) // width * stride + place
        target = out[base : base + run]
        values = source[i : i + run]
        for k in range(target.shape[0]):
            target[k] = values[k]
        i += run


@njit(nogil=True, cache=True)
def first_outside(source, low, high):
    """The position of the first value outside `[low, high]`, or -1."""
    size = source.shape[0]
    if size == 0:
        return -1
    least = source[0]
    most = source[0]
    for i in range(size):  # no early exit: this loop runs in vector registers
        least = min(least, source[i])
        most = max(most, source[i])
    if least >= low and most <= high:
        return -1
    for i in range(size):
        if source[i] < low or source[i] > high:
            return i
    return -1


@njit(nogil=True, cache=True)
def first_nan(source):
    """The position of the first NaN, or -1."""
    found = False
    for i in range(source.shape[0]):
        found |= source[i] != source[i]
    if found:
        for i in range(source.shape[0]):
            if source[i] != source[i]:
                return i
    return -1


@njit(nogil=True, cache=True)
def list_offsets(offsets, order, out):
    """The offsets of the lists after they were put in `order`; returns the number of values."""
    total = 0
    out[0] = 0
    for i in range(order.shape[0]):
        j = order[i]
        total += offsets[j + 1] - offsets[j]
        out[i + 1] = total
    return total


@njit(nogil=True, cache=True)
def gather_lists(values, offsets, order, out_offsets, out):
    """The values of the lists in a new order; `out_offsets` comes from `list_offsets`."""
    for i in range(order.shape[0]):
        start = offsets[order[i]]
        at = out_offsets[i]
        for k in range(out_offsets[i + 1] - at):
            out[at + k] = values[start + k]


@njit(nogil=True, cache=True)
def pad_lists(values, offsets, out, fill, left):
    """Lists as the rows of `out`: cut to its width, filled up on the left or the right."""
    rows, width = out.shape
    for i in range(rows):
        start = offsets[i]
        size = min(offsets[i + 1] - start, width)
        shift = width - size if left else 0
        for k in range(width):
            out[i, k] = fill
        for k in range(size):
            out[i, shift + k] = values[start + k]
