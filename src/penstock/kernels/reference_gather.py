"""The loader's kernels in plain Python and NumPy: slow, obvious, the oracle for `cpu_gather`."""

from __future__ import annotations

import numpy as np

from penstock.kernels.split_mix import MASK, split_mix


def permutation(size: int, seed: int) -> np.ndarray:
    """Fisher and Yates from the top; the j-th draw is the high word of (32 random bits × bound)."""
    order = np.arange(size, dtype=np.uint32)
    state = seed & MASK
    for i in range(size - 1, 0, -1):
        state, bits = split_mix(state)
        j = ((bits >> 32) * (i + 1)) >> 32
        order[i], order[j] = order[j], order[i]
    return order


def gather(source: np.ndarray, order: np.ndarray) -> np.ndarray:
    """`out[i] = source[order[i]]`."""
    return source[order.astype(np.int64)]


def gather_lists(values: np.ndarray, offsets: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lists in a new order: list `i` of the result is list `order[i]` of the input."""
    lists = [values[offsets[j] : offsets[j + 1]] for j in order.astype(np.int64)]
    lengths = [len(x) for x in lists]
    return (
        np.concatenate(lists) if lists else values[:0].copy(),
        np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
    )


def pad_lists(values: np.ndarray, offsets: np.ndarray, width: int, fill: float, left: bool) -> np.ndarray:
    """A `(rows, width)` array; the first `width` items of each list, filled up on the left or the right."""
    out = np.full((len(offsets) - 1, width), fill, values.dtype)
    for i in range(len(out)):
        row = values[offsets[i] : offsets[i + 1]][:width]
        if left:
            out[i, width - len(row) :] = row
        else:
            out[i, : len(row)] = row
    return out
