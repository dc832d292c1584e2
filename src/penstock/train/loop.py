"""The loop of `fit`: epochs, records, evaluation, checkpoints, resumption; what a step is, its executor knows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from penstock.core.errors import ArtefactError, OutputExistsError
from penstock.core.metric_names import metric_words
from penstock.core.progress import Bar
from penstock.train import distributed
from penstock.train.beginning import RowLosses, gain_over
from penstock.train.checkpoint import Checkpointer
from penstock.train.history import History
from penstock.train.mirror import MirrorWarning
from penstock.train.publishing import Publisher
from penstock.train.records import (
    CheckpointRecord,
    Record,
    TrainRecord,
    ValidRecord,
    record_from_dict,
    record_to_dict,
)
from penstock.train.selection import LAST, Selection

if TYPE_CHECKING:
    from penstock.train.training_parts import Training

Callback = Callable[[Record], Any]


class Executor(Protocol):
    """What takes steps: overlapped with embeddings on the host, or compiled and captured on the device."""

    @property
    def training(self) -> Training:
        """What is trained, with the parts that checkpoints and feeds hold."""
        ...

    @property
    def position(self) -> Any:
        """The loader's state after the last batch that was trained."""
        ...

    @property
    def steps(self) -> int: ...

    @property
    def rows(self) -> int: ...

    def train_steps(self, loader: Any) -> Generator[int, None, None]:
        """Train on a loader's batches; after each step its number of rows."""
        ...

    def evaluate(self, loader: Iterable[Any], row_losses: RowLosses | None = None) -> dict[str, Any]:
        """Loss, metrics, rows and seconds of a loader's batches; nothing is trained. `row_losses` takes each row's."""
        ...

    def collect_figures(self) -> dict[str, Any]:
        """What was measured since this was last asked; empty if nothing was."""
        ...

    def leave_out(self, seconds: float) -> None:
        """Time in which nothing was trained."""
        ...

    def save(self, saver: Checkpointer, loader: Any, extra: dict[str, Any]) -> Path: ...

    def paused(self) -> AbstractContextManager[None]:
        """A block in which embeddings stand still, with all updates done; what was looked up ahead comes again."""
        ...

    def load(self, saver: Checkpointer, loader: Any) -> dict[str, Any]: ...

    def load_weights(self, saver: Checkpointer, step: int) -> None:
        """Put the weights of a checkpoint back; nothing else changes."""
        ...

    def stats(self) -> dict[str, Any]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: Any) -> None: ...


class Loop:
    """One call of `fit`: epochs, records, evaluations and checkpoints around an executor's steps."""

    def __init__(
        self,
        executor: Executor,
        loader: Any,
        valid: Any,
        saver: Checkpointer | None,
        epochs: int,
        eval_every: int | None,
        checkpoint_every: int | None,
        log_every: int | None,
        max_steps: int | None,
        callbacks: list[Callback],
        selection: Selection | None = None,
        publisher: Publisher | None = None,
        start: AbstractContextManager[None] | None = None,
    ) -> None:
        self.executor, self.loader, self.valid, self.saver = executor, loader, valid, saver
        self.epochs, self.eval_every, self.checkpoint_every = epochs, eval_every, checkpoint_every
        self.log_every, self.max_steps, self.callbacks = log_every, max_steps, callbacks
        self.selection, self.publisher = selection, publisher
        self.start = start  # a block in which the model is what it may stay; None where that is not compared
        self._start_losses: np.ndarray | None = None
        self.history = History()
        self.stopped = False
        self._saved_at = self._evaluated_at = -1
        self._first_epoch = int(getattr(loader, "epoch", 0))
        self._mid_epoch = False
        self._unconfirmed: CheckpointRecord | None = None  # of a checkpoint that is written beside training

    def begin(self, resume: bool) -> None:
        """Go on from the newest checkpoint where there is one."""
        if self.saver is not None:
            self.saver.fetch()
        steps = distributed.all_gather([] if self.saver is None else self.saver.steps())[0]
        if steps and not resume:
            assert self.saver is not None
            raise OutputExistsError(
                f"{self.saver.directory} holds checkpoints already; resume from them (resume=True) or choose another "
                "directory"
            )
        is_new = not steps or (self.start is not None and steps[-1] == 0)  # nothing was learned yet: it begins anew
        self._measure_start(is_new)
        if self.saver is None or is_new:
            return
        extra = self.executor.load(self.saver, self.loader)
        self.history.records = [record_from_dict(record) for record in extra["records"]]
        self._first_epoch = int(extra["first_epoch"])
        self._saved_at, self._mid_epoch = self.executor.steps, True
        self._select()

    def _measure_start(self, is_new: bool) -> None:
        """Evaluate the model as it begins; a resumed training needs no more than the losses, and has them anew."""
        if self.start is None:
            return
        with self.start:
            losses = RowLosses()
            figures = self.executor.evaluate(self.valid, losses)
            self._start_losses = losses.all()
            if is_new:
                self._record(ValidRecord.from_figures(self.executor.steps, None, figures))
                self._select()
        self.executor.leave_out(figures["seconds"])

    def all_epochs(self, drawn: Bar) -> None:
        self._publish()  # those who follow need not wait for what is to come
        number = int(getattr(self.loader, "epoch", 0)) if self._mid_epoch else self._first_epoch
        evaluated = self.history.last("valid")
        if (
            self._mid_epoch
            and self._is_epoch_over(number - 1)
            and (not evaluated or evaluated.step < self.executor.steps)
        ):
            self._evaluate(number - 1)  # it was interrupted between an epoch's last step and its evaluation
        last = self._first_epoch + self.epochs - 1
        try:
            while number <= last and not self._finished():
                if not self._mid_epoch and hasattr(self.loader, "set_epoch"):
                    self.loader.set_epoch(number)
                self._mid_epoch = False
                self._expect_epochs(last - number + 1)
                self._epoch(number, drawn)
                number += 1
        finally:
            self._expect_epochs(0)
        self.meter_record()
        evaluated = self.history.last("valid")
        if self.selection is not None and not self.stopped and (not evaluated or evaluated.step != self.executor.steps):
            self._evaluate(None)  # it ends in the middle of an epoch: these weights may be the best
        self._checkpoint()
        self._confirm(wait=True)
        self._take_best()
        self._publish()
        self._await_copies()

    def _expect_epochs(self, count: int) -> None:
        if hasattr(self.loader, "expect_epochs"):
            self.loader.expect_epochs(count)

    def _publish(self) -> None:
        if self.publisher is not None:
            self.executor.leave_out(self.publisher.publish())

    def _await_copies(self) -> None:
        """See that checkpoints are where they are copied to; where they cannot be, what was trained is there still."""
        try:
            if self.saver is not None:
                self.saver.wait()
        except ArtefactError as error:
            warnings.warn(str(error), MirrorWarning, stacklevel=4)

    def _is_epoch_over(self, number: int) -> bool:
        """Whether the last step was the epoch's last one: the loader stands at the beginning of the next then."""
        position = self.executor.position
        return isinstance(position, Mapping) and (position.get("epoch"), position.get("batch")) == (number + 1, 0)

    def _finished(self) -> bool:
        all_taken = self.max_steps is not None and self.executor.steps >= self.max_steps
        return self.stopped or all_taken or self.history.stopped_early

    def _epoch(self, number: int, drawn: Bar) -> None:
        # The generator is closed where the loop is left: a store's thread ends there.
        with closing(self.executor.train_steps(self.loader)) as steps:
            for rows in steps:
                drawn.advance(rows)
                if self._due(self.log_every):
                    drawn.describe(self.meter_record())
                if self._due(self.eval_every):
                    self._evaluate(number)
                if (
                    self._due(self.checkpoint_every)
                    and self._saved_at != self.executor.steps
                    and self.saver is not None
                ):
                    self._checkpoint(wait=False)
                if self._finished() and not self._is_epoch_over(number):  # else its evaluation is due
                    return
        if self.log_every is None:
            drawn.describe(self.meter_record())
        if self.valid is not None and self._evaluated_at != self.executor.steps:
            self._evaluate(number)

    def _due(self, every: int | None) -> bool:
        return every is not None and self.executor.steps % every == 0

    def meter_record(self) -> str:
        """Record what was measured since the last record; a few words for the bar."""
        figures = self.executor.collect_figures()
        if not figures:
            return "training"
        record = TrainRecord.from_figures(self.executor.steps, figures)
        self._record(record)
        self._confirm(wait=False)  # if it could not be written, that is told here
        if self.publisher is not None and self.publisher.due():
            self._publish()
        return ", ".join([f"training: loss {record.loss:.4f}", *filter(None, [metric_words(record.metrics)])])

    def _evaluate(self, epoch: int | None) -> None:
        if self.valid is None:
            return
        self._evaluated_at = self.executor.steps
        losses = None if self._start_losses is None else RowLosses()
        figures = self.executor.evaluate(self.valid, losses)
        if losses is not None:
            figures |= gain_over(self._start_losses, losses.all())
        self.executor.leave_out(figures["seconds"])
        self._record(ValidRecord.from_figures(self.executor.steps, epoch, figures))
        self._select()

    def _select(self) -> None:
        """Find the best evaluation so far, and see that its weights are in a checkpoint that stays."""
        if self.selection is None:
            return
        self.history.stopped_early = self.selection.is_over(self.history.of("valid"))
        if self.saver is None:
            return
        self.history.best = best = self._best_among(self.selection, self.saver.steps_to_be())
        self.saver.spare(None if best is None else best.step)
        if best is not None and best.step == self.executor.steps:
            self._checkpoint()

    def _best_among(self, selection: Selection, steps: list[int]) -> ValidRecord | None:
        """The best evaluation of these steps and the last one.

        What was resumed may have been selected otherwise before; workers on other machines see no checkpoints.
        """
        kept = [*distributed.all_gather(steps)[0], self.executor.steps]
        return selection.best([record for record in self.history.of("valid") if record.step in kept])

    def _take_best(self) -> None:
        best = self.history.best
        if self.saver is not None and self.selection is not None and best is not None:
            # A shard that died while it wrote may have left out the checkpoint of the best.
            self.history.best = best = self._best_among(self.selection, self.saver.steps())
        if self.saver is not None and best is not None and best.step != self.executor.steps:
            self.executor.load_weights(self.saver, best.step)
            if self.publisher is not None:
                self.publisher.weights_changed()
        elif best is None and self.selection is not None and self.selection.by == LAST:
            self.history.best = self.history.last("valid")

    def _checkpoint(self, wait: bool = True) -> None:
        """See that there is a checkpoint of this step, where there are any; without `wait`, if none is being written.

        What was measured so far is recorded first: whoever goes on from it would not know.
        """
        if self.saver is None or self._saved_at == self.executor.steps:
            return
        self.meter_record()
        if not self._confirm(wait):
            with self.executor.paused():  # as for a checkpoint: what is learned does not hang on how fast a disk is
                return
        self._saved_at = self.executor.steps
        records = [record_to_dict(record) for record in self.history.records]
        began = time.perf_counter()
        path = self.executor.save(self.saver, self.loader, {"records": records, "first_epoch": self._first_epoch})
        seconds = time.perf_counter() - began
        self.executor.leave_out(seconds)
        self._unconfirmed = CheckpointRecord(self.executor.steps, str(path), seconds)
        if not self.saver.asynchronous:
            self._confirm(wait=True)

    def _confirm(self, wait: bool) -> bool:
        """Record the last checkpoint if it has become whole; False while it is being written."""
        record = self._unconfirmed
        if self.saver is None or record is None:
            return True
        whole = distributed.all_gather(None if self.saver.is_writing() and not wait else self.saver.steps())[0]
        if whole is None:
            return False
        self._unconfirmed = None
        if record.step in whole:  # else a shard died while it wrote
            self._record(record)
        return True

    def _record(self, record: Record) -> None:
        self.history.records.append(record)
        for callback in self.callbacks:
            self.stopped = bool(callback(record)) or self.stopped
