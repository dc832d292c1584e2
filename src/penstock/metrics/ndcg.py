"""The normalized discounted cumulative gain."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from penstock.core.params import NONE, Int, check_all
from penstock.metrics.grouped_rows import GroupedRows
from penstock.metrics.inputs import read_rows
from penstock.metrics.protocol import State, Values


class NDCG:
    """How near each group's order by score is to its order by label: the mean over groups, 1 is the best.

    A row's gain is its label (0 or 1, or any relevance), its discount the logarithm of its place; rows of one score
    share their places' mean discount. Groups without a label above zero are left out. Scores may be anything that
    orders rows. Exact up to `max_rows` rows; beyond, over a sample of whole groups, whose share is `share`.

    Args:
        k: look at the first `k` places only; None looks at all.
        max_rows: how many rows are kept, at 32 bytes each.

    >>> ndcg = NDCG()
    >>> ndcg.update([3.0, 2.0, 1.0], [0, 1, 0], groups=[7, 7, 7])
    >>> round(ndcg.compute(), 4)
    0.6309
    """

    binary: ClassVar[bool] = False
    needs_groups: ClassVar[bool] = True

    def __init__(self, k: int | None = None, max_rows: int = 2**22) -> None:
        check_all({"k": k, "max_rows": max_rows}, {"k": NONE | Int(min=1), "max_rows": Int(min=1)}, "NDCG")
        self.name, self.k, self.max_rows = "ndcg" if k is None else f"ndcg@{k}", k, max_rows
        self.reset()

    @property
    def num_nan(self) -> int:
        """How many scores were NaN."""
        return self._rows.num_nan

    @property
    def share(self) -> float:
        """The share of groups that are counted; 1.0 while all are."""
        return self._rows.share

    def update(
        self, scores: Values, labels: Values, weights: Values | None = None, groups: Values | None = None
    ) -> None:
        """Count a batch; labels are not below zero. A group weighs the mean of its rows' weights.

        Raises:
            DataError: there are no groups, the lengths differ, or a label or weight is out of its domain.
        """
        self._rows.add(read_rows(self.name, scores, labels, weights, groups, binary=False))

    def merge(self, other: Self) -> None:
        """Add what another one has counted."""
        self._rows.merge(other._rows)

    def state(self) -> dict[str, np.ndarray]:
        """The rows that are kept."""
        return self._rows.state()

    def load_state(self, state: State) -> None:
        """Hold what `state` gave."""
        self._rows.load_state(state)

    def compute(self) -> float:
        """The figure so far; NaN until a group has a label above zero, and where a score was NaN."""
        group, score, label, weight = self._rows.columns()
        if self.num_nan or not len(group):
            return float("nan")
        gained, weights = self._gain(group, score, label, weight)
        best, _ = self._gain(group, label, label, weight)
        known = best > 0
        if not known.any():
            return float("nan")
        return float(np.average(gained[known] / best[known], weights=weights[known]))

    def _gain(
        self, group: np.ndarray, by: np.ndarray, label: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Each group's discounted gain in descending order of `by`, and its weight."""
        order = np.lexsort((-by, group))
        group, by, label = group[order], by[order], label[order]
        begins = np.concatenate([[True], group[1:] != group[:-1]])
        starts = np.flatnonzero(begins)
        sizes = np.diff(np.append(starts, len(group)))
        place = np.arange(len(group)) - np.repeat(starts, sizes)
        discount = 1.0 / np.log2(place + 2.0)
        if self.k is not None:
            discount[place >= self.k] = 0.0
        ties = np.flatnonzero(begins | np.concatenate([[True], by[1:] != by[:-1]]))
        tied = np.diff(np.append(ties, len(by)))
        shared = np.repeat(np.add.reduceat(discount, ties) / tied, tied)
        return np.add.reduceat(label * shared, starts), np.add.reduceat(weight[order], starts) / sizes

    def reset(self) -> None:
        """Begin anew."""
        self._rows = GroupedRows(self.name, self.max_rows)
