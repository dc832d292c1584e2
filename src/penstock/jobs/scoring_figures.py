"""The figures of an evaluation: metrics of some of the partitions, to be merged with those of the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.core.errors import ParameterError
from penstock.jobs.building import metric_class
from penstock.metrics import AUC, Calibration, LogLoss, Metric, logit
from penstock.metrics.inputs import beside, host_array
from penstock.metrics.probability_sums import ProbabilitySums
from penstock.metrics.protocol import Values
from penstock.train.evaluation import EVALUATED


def metrics_of(names: Sequence[str] | None, group: str | None) -> list[type[Metric]]:
    """The metrics that an evaluation counts; AUC and log loss by default.

    Args:
        names: in `penstock.metrics.METRICS`, or classes of one's own as `package.module:Class`.
        group: the column that says which group each row belongs to.

    Returns:
        Their classes.

    Raises:
        ParameterError: there is no such metric, or it is measured within groups and no column says which.
    """
    found = [metric_class(name, "metric") for name in dict.fromkeys(names or EVALUATED)]
    for metric in found:
        if metric.needs_groups and group is None:
            raise ParameterError(
                f"{metric().name} is measured within groups; name the column that says each row's group: group= "
                f"(--group COLUMN)"
            )
    return found


class ScoreFigures:
    """Metrics, calibration and the number of some rows.

    Log loss and calibration come from sums that are counted once for both.

    Args:
        metrics: classes of what is measured.

    >>> figures = ScoreFigures([AUC])
    >>> figures.add(np.array([0, 1]), np.array([0.2, 0.7], np.float32))
    >>> figures.metrics(), figures.num_rows
    ({'auc': 1.0}, 2)
    """

    def __init__(self, metrics: Sequence[type[Metric]]) -> None:
        self._metrics = [metric() for metric in metrics]
        self._updated = [metric for metric in self._metrics if type(metric) not in (LogLoss, Calibration)]
        self._sums = ProbabilitySums(next((m.name for m in self._metrics if m not in self._updated), "calibration"))

    @property
    def num_rows(self) -> int:
        """How many rows there were, those without a prediction too."""
        return self._sums.num_rows

    @property
    def calibration(self) -> Calibration:
        """Of all rows so far."""
        found = Calibration()
        found.load_state(self._sums.calibration_state())
        return found

    def add(self, labels: Values, probabilities: Values, groups: np.ndarray | None = None) -> None:
        """Count some rows, whose labels are 0 or 1: arrays, or tensors of the device that predicts.

        A label that is neither is refused, of tensors on a GPU also later: with other rows, in `merge` or in `metrics`.
        """
        labels = beside(labels, probabilities)
        others = []
        for metric in self._updated:
            if isinstance(metric, AUC):  # it looks at the order alone: of narrow numbers, and where they are
                metric.update(probabilities, labels)
            else:
                others.append(metric)
        if others:
            logits, truth = logit(host_array(probabilities)), host_array(labels)
            for metric in others:
                metric.update(logits, truth, groups=groups if metric.needs_groups else None)
        self._sums.add(probabilities, labels)

    def merge(self, other: ScoreFigures) -> None:
        """Add what another one has counted."""
        self._sums.merge(other._sums)
        for own, theirs in zip(self._updated, other._updated, strict=True):
            merged: Any = own  # of one class, which pairs from two lists do not say
            merged.merge(theirs)

    def metrics(self) -> dict[str, float | None]:
        """The figures by name; None where there is none."""
        for metric in self._metrics:
            if type(metric) is LogLoss:
                metric.load_state(self._sums.log_loss_state())
            elif type(metric) is Calibration:
                metric.load_state(self._sums.calibration_state())
        figures = {metric.name: metric.compute() for metric in self._metrics}
        return {name: value if math.isfinite(value) else None for name, value in figures.items()}
