"""The mean binary cross-entropy."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from penstock.core.extras import require
from penstock.metrics.inputs import is_on_gpu, read_rows, read_state
from penstock.metrics.protocol import State, Values

_STATE = ("total", "weight", "num_nan")


class LogLoss:
    """The mean binary cross-entropy of logits, in nats; infinite where a model is certain and wrong.

    >>> loss = LogLoss()
    >>> loss.update([0.0, 0.0], [0, 1])
    >>> round(loss.compute(), 4)
    0.6931
    """

    binary: ClassVar[bool] = True
    needs_groups: ClassVar[bool] = False
    best: ClassVar[float] = 0.0

    def __init__(self) -> None:
        self.name = "log_loss"
        self.reset()

    def update(
        self, scores: Values, labels: Values, weights: Values | None = None, groups: Values | None = None
    ) -> None:
        """Count a batch of logits; labels are 0 or 1, groups are not looked at.

        Raises:
            DataError: the lengths differ, a label is neither 0 nor 1, or a weight is below zero.
        """
        rows = read_rows(self.name, scores, labels, weights, stay_on_device=True)
        self.num_nan += rows.num_nan
        if not len(rows.scores):
            return
        # log(1 + exp(-margin)): right at both infinities, where the usual difference is inf - inf.
        losses = _softplus(rows.scores * (1.0 - 2.0 * rows.labels))
        self._total += float((losses if rows.weights is None else losses * rows.weights).sum())
        self._weight += float(len(losses) if rows.weights is None else rows.weights.sum())

    def merge(self, other: Self) -> None:
        """Add what another one has counted."""
        self._total += other._total
        self._weight += other._weight
        self.num_nan += other.num_nan

    def state(self) -> dict[str, np.ndarray]:
        """The sum of losses, the weight of all rows, and `num_nan`."""
        found = (self._total, self._weight, self.num_nan)
        return {name: np.array(value) for name, value in zip(_STATE, found, strict=True)}

    def load_state(self, state: State) -> None:
        """Hold what `state` gave.

        Raises:
            DataError: it is not the state of a log loss.
        """
        total, weight, num_nan = read_state(self.name, state, _STATE)
        self._total, self._weight, self.num_nan = float(total), float(weight), int(num_nan)

    def compute(self) -> float:
        """The mean so far; NaN before any row, and where a score was NaN."""
        return self._total / self._weight if self._weight and not self.num_nan else float("nan")

    def reset(self) -> None:
        """Begin anew."""
        self._total, self._weight, self.num_nan = 0.0, 0.0, 0


def logit(probabilities: np.ndarray) -> np.ndarray:
    """Log odds in float64, finite at 0 and 1: there they are those of the nearest number that is neither.

    Args:
        probabilities: floats from 0 to 1.

    Returns:
        As many floats.

    >>> logit(np.array([0.5, 1.0], np.float32)).round(6)
    array([ 0.      , 16.635532])
    """
    p = np.clip(probabilities.astype(np.float64), *probability_limits(probabilities.dtype))
    return np.asarray(np.log(p) - np.log1p(-p))


def probability_limits(dtype: Any) -> tuple[float, float]:
    """The numbers next to 0 and to 1 that have finite log odds, of a dtype of NumPy or torch.

    >>> probability_limits(np.float32) == (2.0**-126, 1 - 2.0**-24)
    True
    """
    limits = np.finfo(str(dtype).removeprefix("torch.") if "torch." in str(dtype) else dtype)
    return float(limits.tiny), 1 - float(limits.epsneg)


def _softplus(values: Any) -> Any:
    if is_on_gpu(values):
        torch: Any = require("torch", "torch")
        return torch.logaddexp(values, values.new_zeros(()))
    return np.logaddexp(0, values)
