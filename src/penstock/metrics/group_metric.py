"""What metrics by group share: rows kept by group, sampled beyond a bound, merged and saved."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from penstock.metrics.grouped_rows import GroupedRows
from penstock.metrics.inputs import read_rows
from penstock.metrics.protocol import State, Values


class GroupMetric:
    """A `Metric` that looks at each group (a user, a query) as a whole; a subclass says what it computes from `_rows`.

    Args:
        name: of the figure.
        max_rows: how many rows are kept, at 32 bytes each; beyond, a sample of whole groups.
    """

    binary: ClassVar[bool] = True
    needs_groups: ClassVar[bool] = True
    best: ClassVar[float] = 1.0

    def __init__(self, name: str, max_rows: int) -> None:
        self.name, self.max_rows = name, max_rows
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
        """Count a batch; groups are integers or text.

        Raises:
            DataError: there are no groups, the lengths differ, or a label or weight is out of its domain.
        """
        self._rows.add(read_rows(self.name, scores, labels, weights, groups, binary=self.binary))

    def merge(self, other: Self) -> None:
        """Add what another one has counted."""
        self._rows.merge(other._rows)

    def state(self) -> dict[str, np.ndarray]:
        """The rows that are kept."""
        return self._rows.state()

    def load_state(self, state: State) -> None:
        """Hold what `state` gave."""
        self._rows.load_state(state)

    def reset(self) -> None:
        """Begin anew."""
        self._rows = GroupedRows(self.name, self.max_rows)
