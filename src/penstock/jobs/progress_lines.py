"""How far a training job is, a line each, above the bars and where there are none."""

from __future__ import annotations

import math
from collections.abc import Callable

from penstock.core.metric_names import metric_words
from penstock.jobs.assumptions import assumed_line
from penstock.jobs.events import DataOpened, EventListener, Recorded, StageBegan, StageEnded, Trained, TrainingBegan

_SAID = {
    "etl": "making features",
    "regression": "a logistic regression to begin with",
    "second": "a second training without the regression: held-out rows say which one is kept",
}


class ProgressLines(EventListener):
    """Says in a few lines what a job does.

    Args:
        say: takes a line, such as `print`.

    Attributes:
        is_reading_told: whether somebody says how text is read already.

    >>> ProgressLines(print)(StageBegan("etl"))
    making features
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._num_trainings = 0
        self.is_reading_told = False

    def data_opened(self, event: DataOpened) -> None:
        if not self.is_reading_told and (line := assumed_line(event.raw)) is not None:
            self._say(line)

    def stage_began(self, event: StageBegan) -> None:
        if event.name in _SAID:
            self._say(_SAID[event.name])

    def stage_ended(self, event: StageEnded) -> None:
        if event.name == "second" and self._num_trainings == 1:  # it would have been told of
            self._say("the training beside the regression is kept")

    def training_began(self, event: TrainingBegan) -> None:
        self._num_trainings += 1
        loader, tables, where = event.loader, event.embeddings, ""
        if hasattr(tables, "weight"):  # a store has none
            cached = f"with {len(tables.weight):,} rows cached " if "resident" in tables.stats() else ""
            where = f", embeddings in tables {cached}on {tables.weight.device}"
        steps = f"{event.steps:,} step{'s' if event.steps != 1 else ''} of {loader.batch_size:,}"
        self._say(f"training {type(event.model).__name__} on {loader.num_rows:,} rows, {steps}{where}")

    def recorded(self, event: Recorded) -> None:
        from penstock.train.records import ValidRecord  # torch is there when this is called

        record = event.record
        if isinstance(record, ValidRecord):
            told = record.metrics.get("log_loss", math.nan)  # the same by a name of its own
            is_told = math.isclose(told, record.loss, rel_tol=1e-4, abs_tol=1e-4)
            own = [] if is_told else [f"loss {record.loss:.4f}"]
            figures = ", ".join([*own, *filter(None, [metric_words(record.metrics)])])
            self._say(f"step {record.step:,}: {figures} on {record.rows:,} held-out rows")

    def trained(self, event: Trained) -> None:
        if event.history.stopped_early:
            self._say("stopped early: no evaluation was better for as long as patience allows")
