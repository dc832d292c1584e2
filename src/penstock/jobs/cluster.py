"""Training on a Ray cluster: ETL as its tasks, embeddings in its shards, trainers as its actors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from penstock.core.errors import ParameterError
from penstock.core.params import Int, OneOf, Satisfies, check_all
from penstock.core.runtime.memory import available_memory
from penstock.core.schema import Schema
from penstock.data.files import is_remote
from penstock.data.sources import DataLike
from penstock.embedding import RayStore
from penstock.jobs import building
from penstock.jobs.cluster_watch import ClusterWatch
from penstock.jobs.embeddings import store_slots
from penstock.jobs.fitting import fit_model
from penstock.jobs.run_folder import absolute_paths
from penstock.jobs.settings import ON_DEVICE, TrainSettings
from penstock.loader.torch import Loader
from penstock.train import Checkpointer, CheckpointRecord, History, distributed
from penstock.train.ray_cluster import check_shared, connected, resources_of_trainers
from penstock.train.ray_trainers import Report, Trainers

LOCAL = "local"
_LAST_LOOK = 60.0  # seconds to wait for shards at the end
_TRAINER_BYTES, _SHARD_BYTES = 400_000_000, 150_000_000  # of a process that has loaded what it needs
_FULL_EVERY = 8  # checkpoints: those between hold the rows that have changed
_ADDRESS = Satisfies(
    lambda v: isinstance(v, str) and bool(v), f"{LOCAL!r}, 'auto' or an address such as ray://head:10001"
)


class TrainerRestartedWarning(UserWarning):
    """A trainer died, and all went on from the last whole checkpoint."""


@dataclass(frozen=True)
class Cluster:
    """Where and how widely a run is spread, as the section `cluster` of its settings says.

    Args:
        address: "local" starts a Ray of this machine's processes; "auto" takes the one that runs here; or ray://….
        trainers: processes that train the dense model; a step's batch is divided among them.
        shards: processes that hold the embeddings.
        replicas: 2 gives every shard a standby.

    >>> Cluster("local", trainers=2).shards
    2
    """

    address: str
    trainers: int = 1
    shards: int = 2
    replicas: int = 1

    def __post_init__(self) -> None:
        numbers = {"trainers": Int(min=1), "shards": Int(1, 65535), "replicas": OneOf((1, 2))}
        check_all(vars(self), {"address": _ADDRESS, **numbers}, "cluster")

    @classmethod
    def of(cls, settings: TrainSettings) -> Cluster | None:
        """The cluster that settings name; None where the run stays in this process."""
        given = {key: value for key, value in settings.cluster.items() if value is not None}
        if not given:
            return None
        if "address" not in given:
            raise ParameterError(
                f"{', '.join(given)} goes with a cluster; name it: cluster: {LOCAL} (--cluster {LOCAL}), or ray://…"
            )
        if settings.tables in ON_DEVICE:
            raise ParameterError(
                f"tables: {settings.tables} is on one device; with a cluster embeddings are in a store"
            )
        return cls(**given)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The cluster, for as long as the block runs."""
        if self.address == LOCAL:
            self._check_memory()
        with connected(None if self.address == LOCAL else self.address, self.trainers):
            yield

    def _check_memory(self) -> None:
        """Refuse more processes than this machine can hold, before the system ends some of them."""
        shards, free = self.shards * self.replicas, available_memory()
        needed = self.trainers * _TRAINER_BYTES + shards * _SHARD_BYTES
        if free is not None and needed > free:
            raise ParameterError(
                f"a cluster on this machine with {self.trainers:,} trainers and {shards:,} processes of shards takes "
                f"{needed / 1e9:.1f} GB before it holds a row, and {free / 1e9:.1f} GB are free; ask for fewer "
                f"trainers or shards"
            )

    def check_shared(self, folder: Path, *sources: DataLike | None) -> None:
        """Refuse data, and a folder of the run, that other machines of the cluster do not see."""
        if self.address != LOCAL:
            found = [path for source in sources for path in absolute_paths(source) or [] if not is_remote(path)]
            check_shared([str(folder.absolute()), *(path for path in found if Path(path).exists())])  # else a pattern

    def settings_of_etl(self, settings: TrainSettings) -> TrainSettings:
        """The settings with the ETL on this cluster too, unless they say where it runs."""
        return replace(settings, etl={**settings.etl, "engine": settings.etl.get("engine") or "ray"})

    def store(self, settings: TrainSettings, schema: Schema) -> RayStore | None:
        """The embeddings, in shards; None where there is no categorical column."""
        slots = store_slots(settings, schema)
        if not slots:
            return None
        own = settings.store_arguments()
        threads = {"threads_per_shard": own.pop("num_threads")} if "num_threads" in own else {}
        return RayStore(
            slots, settings.build_embedding_optimizer(), num_shards=self.shards, replicas=self.replicas,
            seed=settings.seed, **own, **threads,
        )  # fmt: skip


@dataclass
class TrainerWork:
    """What each trainer does: its share of every step's batch, and of the rows to evaluate on."""

    settings: TrainSettings
    features: DataLike
    valid: DataLike | None
    valid_batch: int
    store: str | None
    checkpoints: Path

    def __call__(self, report: Report) -> tuple[History, dict[str, Any]]:
        """Train until the end, or until told to stop; the history, and the weights of the dense model."""
        settings, device = self.settings, building.training_device(self.settings)
        assert settings.batch_size is not None
        rows = batch_share(settings.batch_size, distributed.world_size())
        loader = Loader(self.features, rows, shuffle=True, seed=settings.seed, **settings.loader)
        valid = None if self.valid is None else Loader(self.valid, self.valid_batch)
        network = building.build_model(settings, loader.schema)
        saver = Checkpointer(
            self.checkpoints,
            keep=settings.keep_checkpoints,
            full_every=_FULL_EVERY,
            any_world=True,
            copy_to=settings.copy_checkpoints_to,
            asynchronous=True,
        )
        embeddings = None if self.store is None else RayStore.attach(self.store)
        if embeddings is not None:
            report.figures = partial(_figures_of_client, embeddings)
        history = fit_model(settings, loader, valid, network, embeddings, device, saver, [report], progress=False)
        return history, {name: tensor.cpu() for name, tensor in network.state_dict().items()}


def _figures_of_client(store: RayStore) -> dict[str, Any]:
    """How long a trainer has waited for its shards, and the calls that they have not answered."""
    return {
        "seconds": {command: counted.to_dict() for command, counted in store.seconds.items()},
        "in_flight": store.calls_in_flight,
    }


def batch_share(batch_size: int, trainers: int) -> int:
    """The rows of a step that one of several trainers takes.

    >>> batch_share(1024, 3), batch_share(1, 2)
    (342, 1)
    """
    return -(-batch_size // trainers)


def train_on(
    cluster: Cluster,
    work: TrainerWork,
    store: RayStore | None,
    network: torch.nn.Module,
    on_record: Callable[[Any], Any],
    stop: Callable[[], bool],
    on_figures: Callable[[dict[str, Any]], None] = lambda figures: None,
) -> History:
    """Train on the cluster's trainers; `network` gets the weights, the history is that of the whole.

    `on_figures` is told now and then what shards and trainers do (see `ClusterWatch`).
    """

    def begin_anew(reason: str) -> None:
        last = Checkpointer(work.checkpoints).latest()
        if last is None and store is not None:
            store.clear()
        where = "its beginning" if last is None else str(last)
        warnings.warn(
            f"a trainer died ({reason}); training goes on from {where}", TrainerRestartedWarning, stacklevel=4
        )

    device, watch = building.training_device(work.settings), ClusterWatch(store, on_figures)
    trainers = Trainers(
        cluster.trainers,
        work,
        on_record=on_record,
        is_progress=lambda record: isinstance(record, CheckpointRecord),
        stop=stop,
        on_death=begin_anew,
        resources=resources_of_trainers(cluster.trainers, device.type),
        backend="nccl" if device.type == "cuda" else "gloo",
        watch=watch,
    )
    history, weights = trainers.run()
    watch([], wait=_LAST_LOOK)  # at the shards; trainers are gone, and what they said last stays
    network.load_state_dict(weights)
    return history  # type: ignore[no-any-return]
