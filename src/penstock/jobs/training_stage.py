"""The stage of a job that trains: in this process, or by trainers on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from penstock.jobs import building
from penstock.jobs.cluster import Cluster, TrainerWork, train_on
from penstock.jobs.events import ClusterWatched, Listener, Recorded, Trained, TrainingBegan
from penstock.jobs.fitting import fit_model, num_steps
from penstock.jobs.preparation import Prepared
from penstock.jobs.run_folder import RunFolder, absolute_paths
from penstock.jobs.settings import TrainSettings
from penstock.jobs.training_loaders import VALID_BATCH
from penstock.jobs.training_result import TrainingStopped, training_speed
from penstock.loader.torch import Loader
from penstock.train import Checkpointer, History, Record


@dataclass
class TrainingStage:
    """Trains what the job has built; every argument of its is one of the job, or a part that it has built."""

    settings: TrainSettings
    ready: Prepared
    loader: Loader
    valid: Loader | None
    network: torch.nn.Module
    store: Any
    device: torch.device
    folder: RunFolder
    notify: Listener
    callbacks: Sequence[Callable[[Record], Any]]
    stop: Callable[[], bool] | None
    progress: bool | None
    records: list[Record] = field(default_factory=list)

    def run(self, labels: Mapping[str, Any]) -> tuple[History, float | None]:
        """Train to the end.

        Args:
            labels: figures of the labels, for listeners.

        Returns:
            What was measured, and the rows a second.

        Raises:
            TrainingStopped: it was told to stop before the last step.
        """
        steps = num_steps(self.settings, len(self.loader))
        self.notify(TrainingBegan(self.network, self.loader, self.valid, self.store, steps, labels))
        cluster = Cluster.of(self.settings)
        history = self._here() if cluster is None else self._on(cluster)
        if self.stop is not None and self.stop() and history.stats["steps"] < steps:
            raise TrainingStopped(history.stats["steps"], steps, self.folder.path)
        self.notify(Trained(history, building.selected_by(self.settings)))
        return history, training_speed(self.records)

    def _keep(self, record: Record) -> bool:
        """Take a record; whether training is to end."""
        self.records.append(record)
        self.notify(Recorded(record))
        return self.stop is not None and self.stop()

    def _here(self) -> History:
        saver = Checkpointer(
            self.folder.checkpoints,
            keep=self.settings.keep_checkpoints,
            any_world=True,
            copy_to=self.settings.copy_checkpoints_to,
            asynchronous=True,
        )
        return fit_model(
            self.settings, self.loader, self.valid, self.network, self.store, self.device, saver,
            [self._keep, *self.callbacks], self.progress,
        )  # fmt: skip

    def _on(self, cluster: Cluster) -> History:
        def tell(record: Record) -> None:
            for listener in (self._keep, *self.callbacks):
                listener(record)

        work = TrainerWork(
            settings=self.settings,
            features=absolute_paths(self.ready.features) or self.ready.features,
            valid=absolute_paths(self.ready.valid) or self.ready.valid,
            valid_batch=VALID_BATCH if self.valid is None else self.valid.batch_size,
            store=None if self.store is None else self.store.name,
            checkpoints=Path(self.folder.checkpoints).absolute(),
        )
        stop = self.stop or (lambda: False)
        return train_on(
            cluster, work, self.store, self.network, tell, stop, lambda found: self.notify(ClusterWatched(found))
        )
