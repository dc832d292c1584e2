"""A training without the regression that a run of some rows begins with: held-out rows say which of the two is better.

Beside a regression a network learns what is left, which is most on most data. But what single columns say is also what
embeddings are shaped by: where users and items have tastes, as in ratings of films, a network that learns everything by
itself finds more. Nothing seen in the rows tells before.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from penstock.core.durable import sync_folder
from penstock.embedding.protocol import is_on_host
from penstock.jobs import building
from penstock.jobs.defaults import without_start
from penstock.jobs.embeddings import build_embeddings
from penstock.jobs.events import Event
from penstock.jobs.preparation import Prepared
from penstock.jobs.run_folder import RunFolder
from penstock.jobs.settings import TrainSettings
from penstock.jobs.training_loaders import open_loaders
from penstock.jobs.training_stage import TrainingStage
from penstock.train import History, Record, ValidRecord


@dataclass
class Training:
    """What a training has made: settings and parts it had, what was measured, and what it told."""

    settings: TrainSettings
    network: Any
    store: Any
    history: History
    rows_per_second: float | None
    events: list[Event] = field(default_factory=list)

    def close(self) -> None:
        """Let go of embeddings on the host."""
        if self.store is not None and is_on_host(self.store):
            self.store.close()


def trained_again(
    first: Training,
    ready: Prepared,
    labels: Mapping[str, Any],
    device: torch.device,
    num_rows: int,
    folder: RunFolder,
    callbacks: Sequence[Callable[[Record], Any]],
    stop: Callable[[], bool] | None,
    progress: bool | None,
) -> Training:
    """The same training without a regression; its checkpoints are in the folder's `second`, and nobody is told yet.

    Args:
        first: the training that began with one.
        ready: the features.
        labels: their figures.
        device: of the model.
        num_rows: to train on.
        folder: of the run.
        callbacks, stop, progress: of the job.

    Returns:
        The second training. Of one that fails or is told to stop nothing is left open.
    """
    loader, valid, settings = open_loaders(without_start(first.settings, num_rows), ready, device)
    network = building.build_model(settings, loader.schema)
    second = Training(settings, network, build_embeddings(settings, loader.schema, device), History(), None)
    try:
        stage = TrainingStage(
            settings, ready, loader, valid, network, second.store, device, RunFolder(folder.second),
            second.events.append, callbacks, stop, progress,
        )  # fmt: skip
        second.history, second.rows_per_second = stage.run(labels)
    except BaseException:
        second.close()
        raise
    return second


def is_better(second: History, first: History) -> bool:
    """Whether the log loss of held-out rows is lower by more than luck explains.

    Args:
        second: of the training that may take the place of the first.
        first: whose evaluations know how far luck goes.

    Returns:
        Whether.

    >>> def ended_with(loss: float, error: float | None = None) -> History:
    ...     best = ValidRecord(10, 0, 500, loss, {"log_loss": loss}, gain=0.0, gain_error=error)
    ...     return History([best], best=best)
    >>> first = ended_with(0.57, 0.002)
    >>> is_better(ended_with(0.55), first), is_better(ended_with(0.569), first)
    (True, False)
    """
    if first.best is None or second.best is None:
        return False
    evaluated = [record for record in first.records if isinstance(record, ValidRecord)]
    errors = [record.gain_error for record in evaluated if record.gain_error is not None]
    return second.best.loss < first.best.loss - (statistics.median(errors) if errors else 0.0)


def take_place(folder: RunFolder, settle: Callable[[], object]) -> None:
    """Put the checkpoints of the second training in the place of the first one's.

    Whenever this is interrupted, the folder holds checkpoints of the training that its configuration describes, or
    none.

    Args:
        folder: of the run; its `second` holds checkpoints.
        settle: writes the configuration of the second training.
    """
    folder.checkpoints.replace(folder.second / "first")
    sync_folder(folder.path)
    settle()
    RunFolder(folder.second).checkpoints.replace(folder.checkpoints)
    sync_folder(folder.path)
    shutil.rmtree(folder.second)
