"""What a job tells while it runs: one dataclass an event, and a listener with one method for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from penstock.data import Dataset
    from penstock.etl import Workflow
    from penstock.loader.torch import Loader
    from penstock.train import History, Record


@dataclass(frozen=True)
class RunBegan:
    """A run starts in its folder, or goes on there."""

    configuration: Mapping[str, Any]
    output: str | Path | None = None
    best_auc: float | None = None
    is_resumed: bool = False


@dataclass(frozen=True)
class StageBegan:
    """One of "etl", "regression", "train", "save", "predict" begins."""

    name: str


@dataclass(frozen=True)
class StageEnded:
    """A stage is over; `seconds` is None where nobody measured it."""

    name: str
    seconds: float | None = None


@dataclass(frozen=True)
class DataOpened:
    """Raw rows can be read; features come later."""

    raw: Dataset


@dataclass(frozen=True)
class DataPrepared:
    """Features are ready to train on, with the workflow that made them where it is known."""

    features: Dataset
    workflow: Workflow | None = None


@dataclass(frozen=True)
class TrainingBegan:
    """The first step is next. `labels` are shares of clicks, and what a constant would reach."""

    model: nn.Module
    loader: Loader
    valid: Loader | None = None
    embeddings: Any = None
    steps: int | None = None
    labels: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Recorded:
    """A record of `fit`: of training, of an evaluation or of a checkpoint."""

    record: Record


@dataclass(frozen=True)
class ClusterWatched:
    """What the shards and trainers of a cluster do now, as plain data: `shards` and `trainers`."""

    figures: Mapping[str, Any]


@dataclass(frozen=True)
class Trained:
    """The last step is done; embeddings may be closed from now on."""

    history: History
    select_by: str | None = None  # what its best evaluation was found by, where somebody says


@dataclass(frozen=True)
class ModelSaved:
    """The model that predicts is on disk."""

    path: str | Path


@dataclass(frozen=True)
class RunFailed:
    """The run ends here, by an error or because it was told to."""

    error: str
    is_interrupted: bool = False


@dataclass(frozen=True)
class RunDone:
    """Everything is written; `figures` is the job's result as plain data."""

    figures: Mapping[str, Any]


Event = (
    RunBegan | StageBegan | StageEnded | DataOpened | DataPrepared | TrainingBegan | Recorded | ClusterWatched
    | Trained | ModelSaved | RunFailed | RunDone
)  # fmt: skip
Listener = Callable[[Event], None]


class EventListener:
    """A listener of jobs: a subclass overrides the methods of those events that concern it.

    >>> from penstock.train import TrainRecord
    >>> class Steps(EventListener):
    ...     def recorded(self, event):
    ...         print(event.record.step, event.record.loss)
    >>> listener = Steps()
    >>> listener(StageBegan("train"))
    >>> listener(Recorded(TrainRecord(step=50, rows=3200, loss=0.5)))
    50 0.5
    >>> listener("train")
    Traceback (most recent call last):
    ...
    TypeError: 'train' is no event of a job
    """

    def __call__(self, event: Event) -> None:
        """Hand the event to its method.

        Args:
            event: what happened.

        Raises:
            TypeError: it is none of the classes of this module.
        """
        name = METHODS.get(type(event))
        if name is None:
            raise TypeError(f"{event!r} is no event of a job")
        getattr(self, name)(event)

    def run_began(self, event: RunBegan) -> None:
        """A run starts.

        Args:
            event: what happened.
        """

    def stage_began(self, event: StageBegan) -> None:
        """A stage starts.

        Args:
            event: what happened.
        """

    def stage_ended(self, event: StageEnded) -> None:
        """A stage is over.

        Args:
            event: what happened.
        """

    def data_opened(self, event: DataOpened) -> None:
        """Raw rows can be read.

        Args:
            event: what happened.
        """

    def data_prepared(self, event: DataPrepared) -> None:
        """Features are ready.

        Args:
            event: what happened.
        """

    def training_began(self, event: TrainingBegan) -> None:
        """The first step is next.

        Args:
            event: what happened.
        """

    def recorded(self, event: Recorded) -> None:
        """A record of `fit`.

        Args:
            event: what happened.
        """

    def cluster_watched(self, event: ClusterWatched) -> None:
        """Shards and trainers were looked at.

        Args:
            event: what happened.
        """

    def trained(self, event: Trained) -> None:
        """The last step is done.

        Args:
            event: what happened.
        """

    def model_saved(self, event: ModelSaved) -> None:
        """The model is on disk.

        Args:
            event: what happened.
        """

    def run_failed(self, event: RunFailed) -> None:
        """The run ends before it is done.

        Args:
            event: what happened.
        """

    def run_done(self, event: RunDone) -> None:
        """The run is done.

        Args:
            event: what happened.
        """


METHODS: Mapping[type, str] = {
    RunBegan: "run_began",
    StageBegan: "stage_began",
    StageEnded: "stage_ended",
    DataOpened: "data_opened",
    DataPrepared: "data_prepared",
    TrainingBegan: "training_began",
    Recorded: "recorded",
    ClusterWatched: "cluster_watched",
    Trained: "trained",
    ModelSaved: "model_saved",
    RunFailed: "run_failed",
    RunDone: "run_done",
}


class Listeners:
    """Several listeners as one: each hears every event, in the order given."""

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = listeners

    def __call__(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)
