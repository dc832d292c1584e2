"""What every metric can do: read batches, be merged over workers, be saved, and give one number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from torch import Tensor

Values: TypeAlias = "ArrayLike | Tensor"
State: TypeAlias = Mapping[str, np.ndarray]


@runtime_checkable
class Metric(Protocol):
    """One figure of scores and labels, read batch by batch.

    Scores are logits for metrics of binary labels, unless the metric says otherwise. Scores that are NaN are counted in
    `num_nan` and make `compute` give NaN: a model that predicts nothing has no figure, not a fair one.

    Attributes:
        name: what the figure is called in records, reports and on the command line.
        binary: whether labels must be 0 or 1.
        needs_groups: whether `update` must be told which group (a user, a query) each row belongs to.
        best: the figure of a perfect model, to which the better of two figures is nearer; infinite where more is always
            better (or, below zero, less).
    """

    name: str
    binary: ClassVar[bool]
    needs_groups: ClassVar[bool]
    best: ClassVar[float]

    @property
    def num_nan(self) -> int:
        """How many scores were NaN."""

    def update(
        self, scores: Values, labels: Values, weights: Values | None = None, groups: Values | None = None
    ) -> None:
        """Count a batch: arrays, or tensors on any device, of one value a row.

        Args:
            scores: what the model said, one a row.
            labels: what came true.
            weights: of the rows; all 1 by default.
            groups: which user or query each row belongs to.

        Raises:
            DataError: the parts have different lengths, or values that the metric does not know.
        """

    def merge(self, other: Self) -> None:
        """Add what another one has counted.

        Args:
            other: one of the same kind and settings.
        """

    def state(self) -> dict[str, np.ndarray]:
        """All that was counted, as arrays.

        Returns:
            Arrays by name.
        """

    def load_state(self, state: State) -> None:
        """Hold what `state` gave, in the place of what was counted.

        Args:
            state: arrays by name.
        """

    def compute(self) -> float:
        """The figure so far; NaN where there is none.

        Returns:
            One number.
        """

    def reset(self) -> None:
        """Begin anew."""
