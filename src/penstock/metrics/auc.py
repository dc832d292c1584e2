"""The area under the ROC curve."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from penstock.core.errors import DataError
from penstock.core.params import Int, check_all
from penstock.metrics.inputs import is_on_gpu, read_rows, read_state
from penstock.metrics.protocol import State, Values
from penstock.metrics.score_bins import ScoreBins, area_and_bound, bins_of_rows, compress, fold

_STATE = ("first", "last", "negatives", "positives", "num_nan")
_ON_GPU = 2**22  # rows that wait on a device: counting them asks it for numbers again and again, however many they are


class AUC:
    """The chance that a positive row has a higher score than a negative one, ties counted half.

    Exact while there are no more than `max_bins` different scores. Beyond that neighbouring scores share a bin, and
    `error_bound` tells how far the figure can be from the true one: with the default, less than 0.0001 unless the
    scores move while they are counted. Only the order of scores matters: give logits or probabilities. Scores of a GPU
    are counted there.

    Args:
        max_bins: how many bins are kept, at 32 bytes each; about as many rows wait (on a GPU four million).

    >>> auc = AUC()
    >>> auc.update([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    >>> auc.compute(), auc.error_bound
    (0.75, 0.0)
    """

    binary: ClassVar[bool] = True
    needs_groups: ClassVar[bool] = False
    best: ClassVar[float] = 1.0

    def __init__(self, max_bins: int = 2**18) -> None:
        check_all({"max_bins": max_bins}, {"max_bins": Int(min=4)}, "AUC")
        self.name, self.max_bins = "auc", max_bins
        self.reset()

    def update(
        self, scores: Values, labels: Values, weights: Values | None = None, groups: Values | None = None
    ) -> None:
        """Count a batch; labels are 0 or 1, groups are not looked at.

        Raises:
            DataError: the lengths differ, a label is neither 0 nor 1, or a weight is below zero.
        """
        rows = read_rows(self.name, scores, labels, weights, stay_on_device=True)
        self.num_nan += rows.num_nan
        self._add(bins_of_rows(rows.scores, rows.labels, rows.weights))

    def merge(self, other: Self) -> None:
        """Add what another one has counted."""
        self.num_nan += other.num_nan
        self._add(other._folded())

    def state(self) -> dict[str, np.ndarray]:
        """The bins (`first` and `last` keys, weight of `negatives` and `positives`) and `num_nan`."""
        bins = self._folded().on_host()
        found = (bins.first, bins.last, bins.negatives, bins.positives, np.array(self.num_nan))
        return dict(zip(_STATE, found, strict=True))

    def load_state(self, state: State) -> None:
        """Hold what `state` gave.

        Raises:
            DataError: it is not the state of an AUC.
        """
        first, last, negatives, positives, num_nan = read_state(self.name, state, _STATE)
        sizes = {len(part) for part in (first, last, negatives, positives)}
        if len(sizes) != 1 or (last < first).any() or (first[1:] <= last[:-1]).any():
            raise DataError(f"{self.name}: the state's bins must be as many of each, disjoint and in ascending order")
        self.reset()
        self.num_nan = int(num_nan)
        self._bins = ScoreBins(first, last, negatives, positives)

    def compute(self) -> float:
        """The area so far; NaN until both labels have been seen, and where a score was NaN."""
        return float("nan") if self.num_nan else area_and_bound(self._folded())[0]

    @property
    def error_bound(self) -> float:
        """How far `compute` can be from the area of all pairs: 0.0 while every score has a bin of its own."""
        return float("nan") if self.num_nan else area_and_bound(self._folded())[1]

    def reset(self) -> None:
        """Begin anew."""
        self.num_nan = 0
        empty = np.empty(0)
        self._bins = ScoreBins(empty.astype(np.int64), empty.astype(np.int64), empty, empty)
        self._waiting: list[ScoreBins] = []
        self._num_waiting = 0

    def _add(self, bins: ScoreBins) -> None:
        # A pass over all bins would cost more than a small batch, so batches wait for company.
        self._waiting.append(bins)
        self._num_waiting += len(bins)
        if self._num_waiting > (max(self.max_bins, _ON_GPU) if is_on_gpu(bins.first) else self.max_bins):
            self._folded()

    def _folded(self) -> ScoreBins:
        parts = [part for part in (self._bins, *self._waiting) if len(part)]
        if self._waiting and parts:
            if len({(type(part.first), str(getattr(part.first, "device", ""))) for part in parts}) > 1:
                parts = [part.on_host() for part in parts]  # of several devices
            bins = fold(parts)
            self._bins = compress(bins, self.max_bins // 2) if len(bins) > self.max_bins else bins
        self._waiting, self._num_waiting = [], 0
        return self._bins
