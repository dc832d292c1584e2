"""Whether predicted probabilities are what they say: counted batch by batch, in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np

_FINE = 4096
_RANGE = 16.0  # log odds beyond which all share the last bin


class Calibration:
    """Predicted against observed click rates.

    `to_dict()` gives `predicted` and `clicked`, the means over all rows, `ratio`, the first divided by the second (1 is
    right, above it the model promises too much), `expected_error`, the mean distance of the two over `bins`, each of
    about as many rows, sorted by prediction.

    >>> calibration = Calibration()
    >>> calibration.update(np.array([0.2, 0.2, 0.8, 0.8], np.float32), np.array([0, 0, 1, 1]))
    >>> found = calibration.to_dict(num_bins=2)
    >>> round(found["ratio"], 3), [(round(b["predicted"], 2), b["clicked"], b["rows"]) for b in found["bins"]]
    (1.0, [(0.2, 0.0, 2), (0.8, 1.0, 2)])
    """

    def __init__(self) -> None:
        self.rows = np.zeros(_FINE, np.int64)
        self.predicted = np.zeros(_FINE)
        self.clicked = np.zeros(_FINE)

    def update(self, probabilities: np.ndarray, labels: np.ndarray) -> None:
        """Count a batch; labels are 0 or 1."""
        p = np.clip(probabilities.astype(np.float64), 1e-12, 1 - 1e-12)
        odds = np.clip(np.log(p) - np.log1p(-p), -_RANGE, _RANGE)
        bins = np.minimum(((odds + _RANGE) * (_FINE / (2 * _RANGE))).astype(np.int64), _FINE - 1)
        self.rows += np.bincount(bins, minlength=_FINE)
        self.predicted += np.bincount(bins, weights=p, minlength=_FINE)
        self.clicked += np.bincount(bins, weights=labels.astype(np.float64), minlength=_FINE)

    def to_dict(self, num_bins: int = 10) -> dict[str, Any]:
        """The figures, as plain data; None where there is no row or no click to compare with."""
        total, predicted, clicked = int(self.rows.sum()), float(self.predicted.sum()), float(self.clicked.sum())
        bins = self._bins(num_bins)
        error = sum(b["rows"] * abs(b["predicted"] - b["clicked"]) for b in bins)
        return {
            "predicted": predicted / total if total else None,
            "clicked": clicked / total if total else None,
            "ratio": predicted / clicked if clicked else None,
            "expected_error": error / total if total else None,
            "bins": bins,
        }

    def _bins(self, num_bins: int) -> list[dict[str, Any]]:
        """Neighbouring fine bins joined until each holds its share of the rows."""
        total = int(self.rows.sum())
        if not total:
            return []
        before = np.cumsum(self.rows) - self.rows / 2
        group = np.minimum((before * num_bins / total).astype(np.int64), num_bins - 1)
        rows = np.bincount(group, weights=self.rows, minlength=num_bins)
        predicted = np.bincount(group, weights=self.predicted, minlength=num_bins)
        clicked = np.bincount(group, weights=self.clicked, minlength=num_bins)
        return [
            {"predicted": float(p / n), "clicked": float(c / n), "rows": int(n)}
            for n, p, c in zip(rows, predicted, clicked, strict=True)
            if n
        ]
