"""The store sharded over Ray actors, on one machine or many; the same interface as the in-process store.

Each distinct sign of a batch goes to the shard that owns it (by hash), rows come back and are pooled here; gradients
are summed per sign here and sent to the shards. Several clients (the workers of a distributed trainer) may share a
store by its name.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from penstock.core.errors import ParameterError, PenstockError
from penstock.core.latencies import Latencies
from penstock.core.params import BOOL, Int, OneOf, Real, check_all
from penstock.core.runtime.buffers import BufferPool
from penstock.core.runtime.kernel_threads import KernelThreads
from penstock.embedding import checkpoint
from penstock.embedding.batches import IdBatch
from penstock.embedding.locks import SecondWriterError
from penstock.embedding.lookup import Gradients, Lookup
from penstock.embedding.optimizers import Optimizer
from penstock.embedding.policies import Admission, Eviction
from penstock.embedding.ray_actors import create_actors, find_actors, share_of, start_ray, whole_of
from penstock.embedding.ray_begun import BegunLookup, BegunUpdate
from penstock.embedding.ray_calls import ShardCalls, ShardRestartedWarning, StoreTimeoutError
from penstock.embedding.ray_client import RoutedBatch
from penstock.embedding.ray_memory import SharedBuffers
from penstock.embedding.ray_replicated_calls import ReplicatedCalls
from penstock.embedding.ray_saving import Saving
from penstock.embedding.slot_layout import SlotLayout
from penstock.embedding.slots import EmbeddingConfig, SlotConfig
from penstock.embedding.store import Counters, EmbeddingStore, store_parameters, training_work

__all__ = ["RayStore", "ShardRestartedWarning", "StoreTimeoutError"]


class RayStore(EmbeddingStore):
    """Embeddings over `num_shards` Ray actors. Budgets of `eviction` are for the whole store and divided evenly.

    A shard that dies is restarted by Ray. Its rows are gone, so all shards go back to the last checkpoint that any
    client saved or loaded (or begin empty where there is none); what is lost is warned about (`ShardRestartedWarning`)
    and kept in `stats()["restarts"]`. A shard that does not answer within `timeout` seconds is named in a
    `StoreTimeoutError`; calling `update` again with the same look-up applies it once, whatever had arrived before.
    Checkpoints are written by the shards: `path` must be one that all of them and the client can reach.

    `RayStore.attach(name)` gives further processes the same store. Ray is started here if it is not running.

    Args:
        config: the slots.
        optimizer: how rows are trained; None to serve.
        num_shards: actors.
        name: under which others attach; a random one by default.
        storage: the precision of rows.
        admission: which ids get a row.
        eviction: which rows go when there are too many.
        threads_per_shard: of each actor.
        seed: of the rows that are drawn.
        timeout: seconds to wait for a shard.
        detached: whether the store outlives the process that creates it, for `RayStore.attach(name, owns=True)` to end.
        replicas: processes that hold each shard. With 2, a standby does what its shard does, on another machine where
            there is one, and takes over without a loss when the shard dies.
    """

    def __init__(
        self,
        config: EmbeddingConfig | Iterable[SlotConfig],
        optimizer: Optimizer | None = None,
        *,
        num_shards: int = 2,
        name: str | None = None,
        storage: str = "float32",
        admission: Admission | None = None,
        eviction: Eviction | None = None,
        threads_per_shard: int = 1,
        seed: int = 0,
        timeout: float = 120.0,
        detached: bool = False,
        replicas: int = 1,
    ) -> None:
        config = store_parameters(config, optimizer, storage, admission, eviction, seed)
        numbers = {"num_shards": Int(1, 65535), "threads_per_shard": Int(min=1), "timeout": Real(min=0.001)}
        given = {"num_shards": num_shards, "threads_per_shard": threads_per_shard, "timeout": timeout}
        others = {"detached": BOOL, "replicas": OneOf((1, 2))}
        check_all({**given, "detached": detached, "replicas": replicas}, {**numbers, **others}, "RayStore")
        if replicas > 1 and eviction is not None and eviction.max_bytes is not None:
            raise ParameterError("eviction.max_bytes goes by the memory of one process; with replicas=2 give max_rows")
        if detached and name is None:
            raise ParameterError("detached=True needs a name=, under which others find the store later")
        ray = start_ray()
        name = name or f"store-{uuid.uuid4().hex[:8]}"
        settings = {
            "config": config,
            "optimizer": optimizer,
            "storage": storage,
            "admission": admission,
            "eviction": share_of(eviction, num_shards),
            "num_threads": threads_per_shard,
            "seed": seed,
        }
        coordinator, shards = create_actors(ray, name, settings, num_shards, detached, replicas)
        self._connect(ray, name, coordinator, shards, settings, timeout)
        self._owner = True
        try:
            self._restore_all(None, None, patience=10.0)  # starting processes takes longer than a call
        except BaseException:  # nobody else knows of the processes, and the name is taken
            self.close()
            raise

    @classmethod
    def attach(cls, name: str, timeout: float = 120.0, owns: bool = False) -> RayStore:
        """Another client of a store that was created under `name`.

        Args:
            name: of the store.
            timeout: seconds to wait for a shard.
            owns: whether `close` ends the store, as it does for the process that created it.

        Returns:
            A store on the same rows.

        Raises:
            PenstockError: there is none of that name.
        """
        ray = start_ray()
        coordinator, shards, settings = find_actors(ray, name, timeout)
        store = cls.__new__(cls)
        store._connect(ray, name, coordinator, shards, settings, timeout)
        store._owner = owns
        return store

    def _connect(
        self,
        ray: Any,
        name: str,
        coordinator: Any,
        shards: list[tuple[Any, ...]],
        settings: dict[str, Any],
        timeout: float,
    ) -> None:
        self._ray, self.name, self._owner, self._settings = ray, name, False, settings
        self.replicas, self._processes = len(shards[0]), [process for shard in shards for process in shard]
        if self.replicas > 1:
            self._calls: ShardCalls = ReplicatedCalls(ray, name, coordinator, shards, timeout)
        else:
            self._calls = ShardCalls(ray, name, coordinator, [process for (process,) in shards], timeout)
        self.config, self.optimizer = settings["config"], settings["optimizer"]
        self.storage, self.seed = settings["storage"], settings["seed"]
        self.admission, self.eviction = settings["admission"], whole_of(settings["eviction"], len(shards))
        self._layout, self._pool = SlotLayout(self.config), BufferPool(slack=4, keep=64)
        self._shared = SharedBuffers()
        self._threads = KernelThreads(None, "store")
        self._counters = Counters(self.config.names)
        self._lock = threading.RLock()
        self.seconds = {"lookup": Latencies(), "update": Latencies()}  # that this client waited for its shards

    @property
    def num_shards(self) -> int:
        return len(self._calls.shards)

    @property
    def timeout(self) -> float:
        """Seconds to wait for a shard."""
        return self._calls.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._calls.timeout = seconds

    # The interface

    def lookup(self, batch: Mapping[str, Any], train: bool = True) -> Lookup:
        return self.begin_lookup(batch, train).finish()

    def update(self, lookup: Lookup, gradients: Gradients | None = None, scale: float = 1.0) -> None:
        self.begin_update(lookup, gradients, scale).finish()

    def begin_lookup(self, batch: Mapping[str, Any], train: bool = True) -> BegunLookup:
        """Send a look-up to the shards, and go on. Several may be in flight, and updates among them.

        Every shard applies what one client has begun in that order: rows are those of calls one after the other.

        Args:
            batch: ids by slot; they must not change until it is finished.
            train: whether `update` will follow.

        Returns:
            What is to be finished.

        Raises:
            PenstockError: the store has no optimizer, and training was asked for.
            DataError: ids that no slot can have.
        """
        check_all({"train": train}, {"train": BOOL})
        if train and self.optimizer is None:
            raise PenstockError("this store was opened without an optimizer (for serving); look up with train=False")
        with self._lock:
            ids = IdBatch(self.config, batch, self._threads.run)
            found = Lookup(self.config, ids, self._pool, train)
            routed = RoutedBatch(self._layout, ids, self._pool, self._shared, self._threads, self.num_shards)
            number = self._calls.numbers.new(routed) if train else 0
            call = self._calls.begin("lookup", partial(routed.request, train), number, keep=routed)
        return BegunLookup(self, call, routed, found)

    def begin_update(self, lookup: Lookup, gradients: Gradients | None = None, scale: float = 1.0) -> BegunUpdate:
        """Send an update to the shards, and go on.

        Args:
            lookup: what a look-up for training gave.
            gradients: as for `update`; they are read before this returns.
            scale: what the loss was multiplied by.

        Returns:
            What is to be finished.

        Raises:
            PenstockError: the look-up was no training one, or has been updated already.
        """
        routed = training_work(lookup, scale)
        gradients = lookup.collected() if gradients is None else gradients
        with self._lock:
            kept = lookup.place_gradients(routed.work.inputs, gradients)
            stepped, dropped = routed.sum_gradients()
            del kept
            numbers = self._calls.numbers
            routed.number = routed.number or numbers.new(routed)  # the same when it is tried again after an error
            call = self._calls.begin(
                "update", partial(routed.gradients, stepped, float(scale)), routed.number, keep=routed
            )
        return BegunUpdate(self, call, routed, lookup, dropped)

    @property
    def calls_in_flight(self) -> int:
        """Calls of this client that shards have not answered, or whose answers were not taken."""
        return len(self._calls.in_flight)

    def save(self, path: str | Path, overwrite: bool = False, base: str | Path | None = None) -> None:
        """Write a checkpoint, each shard its part; with `base`, the last one saved or loaded, only what changed since.

        Raises:
            SecondWriterError: the store is being saved already.
            OutputExistsError: the folder is there and overwrite was not asked for.
        """
        Saving(self, Path(path), overwrite, base, aside=False).finish()

    def begin_save(self, path: str | Path, overwrite: bool = False, base: str | Path | None = None) -> Saving:
        """Begin a checkpoint of what the store holds now: shards copy it, and write it while they go on.

        Args:
            path: of the checkpoint, which is there when it is finished.
            overwrite: whether what is there may be replaced.
            base: as for `save`.

        Returns:
            What is to be finished, by any thread.

        Raises:
            SecondWriterError: the store is being saved already.
            OutputExistsError: the folder is there and overwrite was not asked for.
        """
        return Saving(self, Path(path), overwrite, base, aside=True)

    def _numbered(self, method: str, arguments: tuple[Any, ...], patience: float = 1.0) -> list[Any]:
        """A command with the same arguments for every shard."""
        number = self._calls.numbers.new()
        try:
            return self._calls.call(method, lambda *_: arguments, number, patience)
        finally:
            self._calls.settle(number)

    def load(self, path: str | Path) -> None:
        place = Path(path).absolute()

        def fill(chain: list[checkpoint.Description]) -> None:
            checkpoint.check_fits(chain[-1], self.config, self.optimizer, self.storage, self.seed)
            self._calls.end_hung()  # a checkpoint may be loaded because a trainer died with a shard
            # Shards know nothing of keys: they read what was verified here.
            self._restore_all(str(place), chain[-1].checksum, patience=10.0)

        with self._lock:
            checkpoint.read_chain(place, fill)

    def _restore_all(self, path: str | None, checksum: str | None, patience: float = 1.0) -> None:
        """Give every shard its part of a checkpoint, or nothing, under a new epoch."""
        deadline = time.monotonic() + self.timeout * patience
        with self._calls.lease("restore", path or "nothing", patience) as grant:
            if not grant.token:
                raise SecondWriterError(
                    f"store {self.name!r} is being restored from {grant.what}; a store has one writer at a time"
                )
            trail = None
            try:
                self._calls.restore(grant.token, path, checksum, deadline)
                trail = None if path is None else (path, str(checksum))
            finally:  # where it broke off, shards stand at different points: none is one to build on
                self._calls.ask_coordinator("release", "restore", grant.token, trail, trail is None)

    def stats(self) -> dict[str, Any]:
        with self._lock:
            shards = self._calls.call("stats", lambda *_: ())
        total = {
            key: sum(shard[key] for shard in shards)
            for key in ("rows", "waiting", "bytes", "payload_bytes", "evicted", "updates_to_evicted_rows")
        }
        return {
            **self._counters.to_dict(),
            **total,
            "tables": {g: _sum_of_stats([s["tables"][g] for s in shards]) for g in self.config.groups},
            "rows_by_group": {g: sum(s["rows_by_group"][g] for s in shards) for g in self.config.groups},
            "steps": dict(zip(self.config.groups, shards[0]["steps"], strict=True)),
            "shards": shards,
            "restarts": self._calls.ask_coordinator("restarts"),
            "standbys": self._calls.standbys(),
        }

    def processes(self) -> dict[tuple[int, int], Any]:
        """The actors that hold the shards, by the number of the shard and that of its process: 0, or 1 for the second.

        Returns:
            Actors of Ray.
        """
        each = self.replicas
        return {(number // each, number % each): process for number, process in enumerate(self._processes)}

    def clear(self) -> None:
        with self._lock:
            self._restore_all(None, None)
            self._counters = Counters(self.config.names)

    def close(self) -> None:
        """Who created the store, or owns it, ends its actors; others only let go of them."""
        is_owner, self._owner = self._owner, False
        self._calls.lines.close()
        self._threads.close()
        if is_owner and self._ray.is_initialized():
            with suppress(StoreTimeoutError, self._ray.exceptions.RayError):  # notes that nobody will read
                self._calls.ask_coordinator("forget")
            for actor in [*self._processes, self._calls.coordinator]:
                self._ray.kill(actor, no_restart=True)


def _sum_of_stats(parts: list[dict[str, int]]) -> dict[str, int]:
    """One table's figures over all shards."""
    return {key: parts[0][key] if key == "dim" else sum(part[key] for part in parts) for key in parts[0]}
