"""The normalized discounted cumulative gain."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from penstock.core.params import NONE, Int, check_all
from penstock.metrics.group_metric import GroupMetric


class NDCG(GroupMetric):
    """How near each group's order by score is to its order by label: the mean over groups, 1 is the best.

    A row's gain is its label (0 or 1, or any relevance), its discount the logarithm of its place; rows of one score
    share their places' mean discount. Groups without a label above zero are left out, the others weigh the mean of
    their rows' weights. Scores may be anything that orders rows. Exact up to `max_rows` rows; beyond, over a sample of
    whole groups, whose share is `share`.

    Args:
        k: look at the first `k` places only; None looks at all.
        max_rows: how many rows are kept, at 32 bytes each.

    >>> ndcg = NDCG()
    >>> ndcg.update([3.0, 2.0, 1.0], [0, 1, 0], groups=[7, 7, 7])
    >>> round(ndcg.compute(), 4)
    0.6309
    """

    binary: ClassVar[bool] = False

    def __init__(self, k: int | None = None, max_rows: int = 2**22) -> None:
        check_all({"k": k, "max_rows": max_rows}, {"k": NONE | Int(min=1), "max_rows": Int(min=1)}, "NDCG")
        self.k = k
        super().__init__("ndcg" if k is None else f"ndcg@{k}", max_rows)

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
