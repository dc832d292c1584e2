"""The oracle of `cpu_score_figures`: whole arrays at once, from the log odds."""

from __future__ import annotations

import numpy as np


def add_rows(
    probabilities: np.ndarray, clicked: np.ndarray, low: float, high: float, reach: float, bins: np.ndarray,
    totals: np.ndarray,
) -> None:  # fmt: skip
    """Add rows to `bins` (rows, sums of probabilities and of clicks, by log odds) and `totals` (losses, NaN)."""
    kept = ~np.isnan(probabilities)
    p, labels = np.clip(probabilities[kept].astype(np.float64), low, high), clicked[kept].astype(np.float64)
    odds = np.log(p) - np.log1p(-p)
    totals += np.logaddexp(0.0, odds * (1.0 - 2.0 * labels)).sum(), np.count_nonzero(~kept)
    num_bins = bins.shape[1]
    place = ((np.clip(odds, -reach, reach) + reach) * (num_bins / (2.0 * reach))).astype(np.int64)
    place = np.minimum(place, num_bins - 1)
    small = np.exp(-np.abs(odds))
    for row, values in enumerate((np.ones(len(p)), np.where(odds >= 0, 1.0, small) / (1.0 + small), labels)):
        bins[row] += np.bincount(place, weights=values, minlength=num_bins)
