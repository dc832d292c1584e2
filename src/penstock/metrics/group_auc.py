"""The AUC within groups."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from penstock.core.params import Int, check_all
from penstock.metrics.grouped_rows import GroupedRows
from penstock.metrics.inputs import read_rows
from penstock.metrics.protocol import State, Values


class GroupAUC:
    """The mean of the groups' AUCs, each weighted by its rows: how well rows of one user are ordered.

    Groups with one label only have no AUC and are left out. Exact up to `max_rows` rows; beyond, over a sample of whole
    groups, whose share is `share`.

    Args:
        max_rows: how many rows are kept, at 32 bytes each.

    >>> gauc = GroupAUC()
    >>> gauc.update([0.1, 0.4, 5.0, 4.0], [0, 1, 0, 1], groups=["ann", "ann", "bob", "bob"])
    >>> gauc.compute()
    0.5
    """

    binary: ClassVar[bool] = True
    needs_groups: ClassVar[bool] = True

    def __init__(self, max_rows: int = 2**22) -> None:
        check_all({"max_rows": max_rows}, {"max_rows": Int(min=1)}, "GroupAUC")
        self.name, self.max_rows = "gauc", max_rows
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
        """Count a batch; labels are 0 or 1, groups integers or text.

        Raises:
            DataError: there are no groups, the lengths differ, or a label or weight is out of its domain.
        """
        self._rows.add(read_rows(self.name, scores, labels, weights, groups))

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

    def reset(self) -> None:
        """Begin anew."""
        self._rows = GroupedRows(self.name, self.max_rows)
