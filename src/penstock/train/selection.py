"""Which evaluation's weights a training ends with: the best one's, and when there is no hope of a better one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.params import NONE, STR, Int, check_all
from penstock.metrics import METRICS, Metric, create_metric
from penstock.train.history import History
from penstock.train.records import ValidRecord

DEFAULT = "auc"  # of a training job that says nothing and has many rows
LAST = "last"  # select nothing: the weights of the last step stay
_LOSS = "loss"
_OF_ROWS = (_LOSS, "log_loss")  # figures whose differences have a known error
# Standard errors of its gain that an evaluation must be better by than the start, up to so many held-out rows. The best
# of some twenty evaluations on few rows is luck more often than that of one.
_ERRORS = ((30, math.inf), (500, 2.0), (math.inf, 1.0))


@dataclass(frozen=True)
class Selection:
    """How evaluations are compared.

    A figure that no evaluation has (an AUC of rows with one label) is replaced by the loss, which all have; one that is
    not finite is never the best. Of equal ones that with the lowest loss is, and of those the earliest. The evaluation
    before the first step (see `fit`, `keep_start`) is replaced by none whose loss is lower by no more than its noise.

    Args:
        by: a metric, `"loss"`, or `"last"` to compare nothing.
        patience: evaluations in a row without a better one after which training ends; None for no such end.
        metrics: those that are measured, where others than those of `penstock.metrics.METRICS` are among them.

    >>> records = [ValidRecord(step, 0, 10, 0.5, {"auc": auc}) for step, auc in ((1, 0.6), (2, 0.8), (3, 0.7))]
    >>> Selection("auc").best(records).step, Selection("auc", patience=1).is_over(records)
    (2, True)
    """

    by: str = DEFAULT
    patience: int | None = None
    metrics: Sequence[str | Callable[[], Metric]] = ()

    def __post_init__(self) -> None:
        check_all(vars(self), {"by": STR, "patience": NONE | Int(min=1)}, "Selection")

    def figure(self, record: ValidRecord, by: str | None = None) -> float | None:
        """What a record is judged by.

        Args:
            record: of an evaluation.
            by: another figure than the own one.

        Returns:
            The figure; None where it has none or it is not finite.
        """
        name = by or self.by
        value = record.loss if name == _LOSS else record.metrics.get(name)
        return value if value is not None and math.isfinite(value) else None

    def figure_name(self, records: Iterable[ValidRecord]) -> str:
        """The figure that these records can be compared by.

        Args:
            records: of evaluations.

        Returns:
            The name asked for, or `"loss"` where none of them has that.
        """
        return self.by if any(self.figure(record) is not None for record in records) else _LOSS

    def best(self, records: Sequence[ValidRecord]) -> ValidRecord | None:
        """The best of some evaluations.

        Args:
            records: in order.

        Returns:
            The best; None where there is none to compare, or nothing is compared.
        """
        if self.by == LAST:
            return None
        sure = [record for record in records if not self._is_luck(record)]
        return self.highest(sure or records)

    def highest(self, records: Sequence[ValidRecord]) -> ValidRecord | None:
        """The one with the best figure, be it luck or not.

        Args:
            records: in order.

        Returns:
            That record; None where no figure is finite.
        """
        by = self.figure_name(records)
        goal = self._goal(by)
        scored = [(_worth(value, goal), record) for record in records if (value := self.figure(record, by)) is not None]
        return max(scored, key=lambda pair: (pair[0], -pair[1].loss))[1] if scored else None

    def _is_luck(self, record: ValidRecord) -> bool:
        """Whether its gain over the start may be the luck of the rows held out."""
        if record.gain is None or record.gain_error is None or self.by not in _OF_ROWS:
            return False
        errors = next(count for most, count in _ERRORS if record.rows < most)
        return record.gain <= errors * record.gain_error or math.isinf(errors)

    def is_over(self, records: Sequence[ValidRecord]) -> bool:
        """Whether the last `patience` evaluations brought nothing better; what training began with does not count.

        Args:
            records: in order.

        Returns:
            Whether.
        """
        records = [record for record in records if not record.is_start]
        if self.patience is None or len(records) <= self.patience:
            return False
        best = None if self.by == LAST else self.highest(records)
        behind = len(records) if best is None else sum(record.step > best.step for record in records)
        return behind >= self.patience

    def _goal(self, by: str) -> float:
        """The figure of a perfect model; an output's name stands before that of the metric."""
        if by == _LOSS:
            return -math.inf
        name = by.rpartition("/")[2]
        known = (metric.best for metric in map(create_metric, (*self.metrics, *METRICS)) if metric.name == name)
        return next(known, math.inf)


def _worth(value: float, goal: float) -> float:
    """More for a figure that is nearer to the goal."""
    return value if value <= goal else -value if math.isinf(goal) else 2 * goal - value


def selected(history: History, by: str) -> dict[str, Any]:
    """Which evaluation a training was left with, as plain data; epochs are counted from 1.

    Args:
        history: of the training.
        by: what it was selected by.

    Returns:
        What it was selected by, its step and epoch, how many epochs were evaluated, and whether training ended early;
        `is_start` where it is the model as it began, `is_surer` where others have a better figure that may be luck.
        Nothing where nothing was evaluated.

    >>> evaluated = [ValidRecord(10, 0, 5, 0.5), ValidRecord(20, 1, 5, 0.6)]
    >>> selected(History(evaluated, best=evaluated[0]), "loss")
    {'by': 'loss', 'step': 10, 'epoch': 1, 'epochs': 2, 'stopped_early': False}
    """
    best, records = history.best, history.of("valid")
    if best is None:
        return {}
    epochs = [record.epoch for record in records if record.epoch is not None]
    selection = Selection(by)
    highest = None if by == LAST or best.is_start else selection.highest(records)
    return {
        "by": by if by == LAST else selection.figure_name(records),
        "step": best.step,
        "epoch": None if best.epoch is None else best.epoch + 1,
        "epochs": max(epochs) + 1 if epochs else None,
        "stopped_early": history.stopped_early,
        **({"is_start": True} if best.is_start else {}),
        **({"is_surer": True} if highest is not None and highest.step != best.step else {}),
    }
