"""What a training run has reached, or how far it came."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.train import Record


class TrainingStopped(PenstockError):
    """Training was asked to stop and did, with a checkpoint of its last step.

    Args:
        step: the last one.
        steps: how many there were to be.
        output: the folder of the run.
    """

    def __init__(self, step: int, steps: int, output: Path) -> None:
        self.step, self.steps, self.output = step, steps, output
        super().__init__(f"stopped at step {step:,} of {steps:,}; its checkpoint is in {output}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.step, self.steps, self.output)


@dataclass(frozen=True)
class TrainResult:
    """What a training run has reached.

    `metrics` are those of the held-out rows by name, `auc` and `log_loss` among them: None where there are no such rows
    or only one label. `rows` counts "train" and "valid", `seconds` the stages and their "total"; `examples` are
    held-out labels and predictions.

    Args:
        metrics: of the held-out rows.
        best_auc: that any model can reach, where the data says so.
        selected: which evaluation the model and its metrics are of: what it was selected `by`, its `step` and `epoch`
            (counted from 1), the `epochs` that were trained, and whether training `stopped_early`.
        labels: the `train_share` and `valid_share` of clicks, and the `constant_log_loss` that knowing no more gives.
        learning: a verdict on what was learned: its `kind`, `text` and `advice`.
        rows: by split.
        steps: taken.
        rows_per_second: in training.
        embedding_rows: at the end.
        model: where it is.
        examples: labels and predictions.
        predictions: of the held-out rows: how they lie by label, and their calibration (`describe_predictions`).
        seconds: by stage.
        test: the metrics of the rows to test on by name, and how many `rows` there are, where there are some.
    """

    metrics: dict[str, float | None]
    best_auc: float | None
    selected: dict[str, Any]
    labels: dict[str, float | None]
    learning: dict[str, str]
    rows: dict[str, int | None]
    steps: int
    rows_per_second: float | None
    embedding_rows: int
    model: str
    examples: list[dict[str, Any]]
    predictions: dict[str, Any] | None
    seconds: dict[str, float]
    test: dict[str, float | None] | None = None

    @property
    def auc(self) -> float | None:
        """Of the held-out rows."""
        return self.metrics.get("auc")

    @property
    def log_loss(self) -> float | None:
        """Of the held-out rows."""
        return self.metrics.get("log_loss")

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data that JSON can hold.

        Returns:
            Figures by name.
        """
        return {"auc": self.auc, "log_loss": self.log_loss, **asdict(self)}


def training_speed(records: Sequence[Record]) -> float | None:
    """Rows a second of training alone, over this run's records."""
    from penstock.train import TrainRecord  # brings torch

    trained = [record for record in records if isinstance(record, TrainRecord)]
    pairs = [(r.rows_per_second or 0.0, r.seconds["total"]) for r in trained]
    seconds = sum(took for _, took in pairs)
    return sum(rate * took for rate, took in pairs) / seconds if seconds else None


def finite(figure: float | None) -> float | None:
    """No AUC without both labels: None rather than NaN, which JSON cannot hold."""
    return figure if figure is not None and math.isfinite(figure) else None
