"""What log loss and calibration need of predicted probabilities: all in one pass, a block at a time.

Of a probability p that lies between the limits: log odds `z = log p - log(1 - p)`, whose bin gets a row, p and the
label; the loss is minus the first logarithm for a click, minus the second for none. Both are those of `cpu_log1p`, in
the machine's vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_intrinsics import KERNEL
from penstock.kernels.cpu_log1p import log_of_parts, parts_of
from penstock.kernels.kernel_cache import njit

_BLOCK = 512  # rows whose numbers and parts stay in the first-level cache
U64 = np.uint64


@njit(**KERNEL)
def add_rows(
    probabilities: np.ndarray, clicked: np.ndarray, low: float, high: float, reach: float, bins: np.ndarray,
    totals: np.ndarray,
) -> None:  # fmt: skip
    """Add rows to `bins` and `totals`. A row whose probability is NaN is in none of them, but counted.

    Args:
        probabilities: float32 or float64.
        clicked: the labels, 0 or 1 as uint8.
        low: what smaller probabilities count as, above 0.
        high: what larger ones count as, below 1.
        reach: log odds beyond which, on both sides, all rows share the outermost bin.
        bins: rows, and sums of probabilities and of clicks, `(3, bins)` from `-reach` to `reach`.
        totals: the sum of the losses, and the number of NaN.
    """
    work, at = np.empty((5, _BLOCK)), np.empty(_BLOCK, np.int32)
    for first in range(0, probabilities.shape[0], _BLOCK):
        last = min(first + _BLOCK, probabilities.shape[0])
        p, losses = work[0], work[1]
        totals[1] += _read(probabilities[first:last], low, high, p)
        _look_up(p, clicked[first:last], reach, bins.shape[1], work, at)
        totals[0] += _count(probabilities[first:last], p, clicked[first:last], losses, at, bins)


@njit(**KERNEL)
def _read(probabilities: np.ndarray, low: float, high: float, p: np.ndarray) -> Any:
    """A block's probabilities between the limits, a NaN as the lower one; how many those are."""
    missing = np.int64(0)
    for k in range(probabilities.shape[0]):
        value = np.float64(probabilities[k])
        missing += np.int64(value != value)
        above = value if value > low else low
        p[k] = above if above < high else high
    return missing


@njit(**KERNEL)
def _look_up(p: np.ndarray, clicked: np.ndarray, reach: float, num_bins: int, work: np.ndarray, at: np.ndarray) -> None:
    """The losses of a block, in `work[1]`, and the bins of its log odds."""
    losses, u, m, others = work[1], work[2], work[3], work[4]
    count, scale, last = clicked.shape[0], num_bins / (2.0 * reach), np.float64(num_bins - 1)
    u_bits, m_bits = u.view(np.int64), m.view(np.int64)
    bits = p.view(np.int64)
    for k in range(count):
        u_bits[k], m_bits[k] = parts_of(bits[k])
    for k in range(count):
        losses[k] = log_of_parts(u[k], m[k], 0.0)
    for k in range(count):
        others[k] = 1.0 - p[k]
    bits = others.view(np.int64)
    for k in range(count):
        u_bits[k], m_bits[k] = parts_of(bits[k])
    for k in range(count):
        lost = (1.0 - others[k]) - p[k]  # by rounding, and only where 1 - p is next to 1
        others[k] = log_of_parts(u[k], m[k], lost)
    for k in range(count):
        place = (losses[k] - others[k] + reach) * scale
        place = place if place > 0.0 else 0.0
        at[k] = np.int32(place if place < last else last)
    for k in range(count):
        losses[k] = -losses[k] if clicked[k] else -others[k]


@njit(**KERNEL)
def _count(
    probabilities: np.ndarray, p: np.ndarray, clicked: np.ndarray, losses: np.ndarray, at: np.ndarray, bins: np.ndarray
) -> float:
    """Put a block's rows into their bins; the sum of their losses."""
    rows, predicted, clicks, total = bins[0], bins[1], bins[2], 0.0
    for k in range(probabilities.shape[0]):
        if probabilities[k] == probabilities[k]:
            place = U64(at[k])
            rows[place] += 1.0
            predicted[place] += p[k]
            clicks[place] += np.float64(clicked[k])
            total += losses[k]
    return total
