"""The AUC within groups."""

from __future__ import annotations

import numpy as np

from penstock.core.params import Int, check_all
from penstock.metrics.group_metric import GroupMetric


class GroupAUC(GroupMetric):
    """The mean of the groups' AUCs, each weighted by its rows: how well rows of one user are ordered.

    Labels are 0 or 1. Groups with one label only have no AUC and are left out. Exact up to `max_rows` rows; beyond,
    over a sample of whole groups, whose share is `share`.

    Args:
        max_rows: how many rows are kept, at 32 bytes each.

    >>> gauc = GroupAUC()
    >>> gauc.update([0.1, 0.4, 5.0, 4.0], [0, 1, 0, 1], groups=["ann", "ann", "bob", "bob"])
    >>> gauc.compute()
    0.5
    """

    def __init__(self, max_rows: int = 2**22) -> None:
        check_all({"max_rows": max_rows}, {"max_rows": Int(min=1)}, "GroupAUC")
        super().__init__("gauc", max_rows)

    def compute(self) -> float:
        """The figure so far; NaN until a group has both labels, and where a score was NaN."""
        group, score, label, weight = self._rows.columns()
        if self.num_nan or not len(group):
            return float("nan")
        order = np.lexsort((score, group))
        group, score, positive, weight = group[order], score[order], (label * weight)[order], weight[order]
        begins = np.concatenate([[True], group[1:] != group[:-1]])
        ties = np.flatnonzero(begins | np.concatenate([[True], score[1:] != score[:-1]]))
        positives = np.add.reduceat(positive, ties)
        negatives = np.add.reduceat(weight - positive, ties)
        starts = np.flatnonzero(begins[ties])
        sizes = np.diff(np.append(starts, len(ties)))
        below = np.cumsum(negatives) - negatives
        below -= np.repeat(below[starts], sizes)
        area = np.add.reduceat(positives * (below + 0.5 * negatives), starts)
        all_negatives, all_positives = np.add.reduceat(negatives, starts), np.add.reduceat(positives, starts)
        known = (all_negatives > 0) & (all_positives > 0)
        if not known.any():
            return float("nan")
        aucs = area[known] / (all_negatives[known] * all_positives[known])
        return float(np.average(aucs, weights=(all_negatives + all_positives)[known]))
