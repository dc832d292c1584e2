"""Whether predicted probabilities are what they say: counted batch by batch, in bounded memory."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from penstock.core.errors import DataError
from penstock.metrics.inputs import read_rows, read_state
from penstock.metrics.protocol import State, Values

NUM_BINS = 4096
REACH = 16.0  # log odds beyond which all share the last bin, on either side
_STATE = ("rows", "weights", "predicted", "clicked", "num_nan")


class Calibration:
    """Predicted against observed click rates; the figure is the first divided by the second.

    1 is right; above it the model promises too much. `to_dict()` tells more.

    >>> calibration = Calibration()
    >>> calibration.update([-1.0, -1.0, 1.0, 1.0], [0, 0, 1, 1])
    >>> found = calibration.to_dict(num_bins=2)
    >>> calibration.compute(), [(round(b["predicted"], 2), b["clicked"], b["rows"]) for b in found["bins"]]
    (1.0, [(0.27, 0.0, 2), (0.73, 1.0, 2)])
    """

    binary: ClassVar[bool] = True
    needs_groups: ClassVar[bool] = False
    best: ClassVar[float] = 1.0

    def __init__(self) -> None:
        self.name = "calibration"
        self.reset()

    def update(
        self, scores: Values, labels: Values, weights: Values | None = None, groups: Values | None = None
    ) -> None:
        """Count a batch of logits; labels are 0 or 1, groups are not looked at.

        Raises:
            DataError: the lengths differ, a label is neither 0 nor 1, or a weight is below zero.
        """
        rows = read_rows(self.name, scores, labels, weights)
        self.num_nan += rows.num_nan
        odds = np.clip(rows.scores, -REACH, REACH)
        bins = np.minimum(((odds + REACH) * (NUM_BINS / (2 * REACH))).astype(np.int64), NUM_BINS - 1)
        weight = np.ones(len(bins)) if rows.weights is None else rows.weights
        self.rows += np.bincount(bins, minlength=NUM_BINS)
        for total, values in (
            (self.weights, weight),
            (self.predicted, weight * _sigmoid(rows.scores)),
            (self.clicked, weight * rows.labels),
        ):
            total += np.bincount(bins, weights=values, minlength=NUM_BINS)

    def merge(self, other: Self) -> None:
        """Add what another one has counted."""
        for name in _STATE:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def state(self) -> dict[str, np.ndarray]:
        """By bin of log odds: rows, their weight, the sums of predictions and of clicks; and `num_nan`."""
        return {name: np.array(getattr(self, name)) for name in _STATE}

    def load_state(self, state: State) -> None:
        """Hold what `state` gave.

        Raises:
            DataError: it is not the state of a calibration.
        """
        *counted, num_nan = read_state(self.name, state, _STATE)
        if any(part.shape != (NUM_BINS,) for part in counted):
            raise DataError(f"{self.name}: the state must have {NUM_BINS} bins, got {[p.shape for p in counted]}")
        self.rows, self.weights, self.predicted, self.clicked = counted
        self.num_nan = int(num_nan)

    def compute(self) -> float:
        """Predicted clicks divided by observed ones; NaN before any click, and where a score was NaN."""
        clicked = float(self.clicked.sum())
        return float(self.predicted.sum()) / clicked if clicked and not self.num_nan else float("nan")

    def reset(self) -> None:
        """Begin anew."""
        self.rows, self.num_nan = np.zeros(NUM_BINS, np.int64), 0
        self.weights, self.predicted, self.clicked = np.zeros(NUM_BINS), np.zeros(NUM_BINS), np.zeros(NUM_BINS)

    def to_dict(self, num_bins: int = 10) -> dict[str, Any]:
        """More figures, as plain data; None where there is no row or no click to compare with, or a NaN.

        Args:
            num_bins: how many bins of about as much weight to make.

        Returns:
            `predicted` and `clicked`, the means over all rows; `ratio`, the first divided by the second; `bins`, sorted
            by prediction; `expected_error`, the mean distance of prediction and clicks over the bins.
        """
        if self.num_nan or not self.rows.any():
            return {"predicted": None, "clicked": None, "ratio": None, "expected_error": None, "bins": []}
        weight, clicked = float(self.weights.sum()), float(self.clicked.sum())
        bins = self._bins(num_bins)
        error = sum(b["weight"] * abs(b["predicted"] - b["clicked"]) for b in bins)
        return {
            "predicted": float(self.predicted.sum()) / weight,
            "clicked": clicked / weight,
            "ratio": float(self.predicted.sum()) / clicked if clicked else None,
            "expected_error": error / weight,
            "bins": [{name: b[name] for name in ("predicted", "clicked", "rows")} for b in bins],
        }

    def _bins(self, num_bins: int) -> list[dict[str, Any]]:
        """Neighbouring fine bins joined until each holds its share of the weight."""
        before = np.cumsum(self.weights) - self.weights / 2
        group = np.minimum((before * num_bins / self.weights.sum()).astype(np.int64), num_bins - 1)
        rows, weight, predicted, clicked = (
            np.bincount(group, weights=values, minlength=num_bins)
            for values in (self.rows, self.weights, self.predicted, self.clicked)
        )
        return [
            {"predicted": float(p / w), "clicked": float(c / w), "rows": int(n), "weight": float(w)}
            for n, w, p, c in zip(rows, weight, predicted, clicked, strict=True)
            if n
        ]


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(logits))  # never overflows
    return np.asarray(np.where(logits >= 0, 1.0, small) / (1.0 + small))
