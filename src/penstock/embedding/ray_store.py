"""The store sharded over Ray actors, on one machine or many; the same interface as the in-process store.

Each distinct sign of a batch goes to the shard that owns it (by hash), rows come back and are pooled here; gradients
are summed per sign here and sent to the shards. Several clients (the workers of a distributed trainer) may share a
store by its name.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.core.errors import OutputExistsError, PenstockError
from penstock.core.extras import require
from penstock.core.params import BOOL, Int, Real, check_all
from penstock.core.runtime.buffers import BufferPool
from penstock.core.runtime.kernel_threads import KernelThreads
from penstock.embedding import checkpoint
from penstock.embedding.batches import IdBatch
from penstock.embedding.locks import SecondWriterError
from penstock.embedding.lookup import Gradients, Lookup
from penstock.embedding.optimizers import Optimizer
from penstock.embedding.policies import Admission, Eviction
from penstock.embedding.ray_client import RoutedBatch
from penstock.embedding.ray_shard import LOST, Coordinator, Shard
from penstock.embedding.slot_layout import SlotLayout
from penstock.embedding.slots import EmbeddingConfig, SlotConfig
from penstock.embedding.store import Counters, EmbeddingStore, store_parameters, training_work

NAMESPACE = "penstock"


class StoreTimeoutError(PenstockError, TimeoutError):
    """A shard did not answer in time; the message names it."""


class ShardRestartedWarning(UserWarning):
    """A shard died and was restored; the message says from what, and what was lost."""


class RayStore(EmbeddingStore):
    """Embeddings over `num_shards` Ray actors. Budgets of `eviction` are for the whole store and divided evenly.

    A shard that dies is restarted by Ray and restored from the last checkpoint that any client saved or loaded (or
    empty where there is none); the loss is warned about (`ShardRestartedWarning`) and kept in `stats()["restarts"]`. A
    shard that does not answer within `timeout` seconds is named in a `StoreTimeoutError`. Checkpoints are written by
    the shards: `path` must be one that all of them and the client can reach.

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
    ) -> None:
        config = store_parameters(config, optimizer, storage, admission, eviction, seed)
        numbers = {"num_shards": Int(1, 65535), "threads_per_shard": Int(min=1), "timeout": Real(min=0.001)}
        given = {"num_shards": num_shards, "threads_per_shard": threads_per_shard, "timeout": timeout}
        check_all(given, numbers, "RayStore")
        ray = _start_ray()
        name = name or f"store-{uuid.uuid4().hex[:8]}"
        settings = {
            "config": config,
            "optimizer": optimizer,
            "storage": storage,
            "admission": admission,
            "eviction": _share(eviction, num_shards),
            "num_threads": threads_per_shard,
            "seed": seed,
        }
        coordinator = _create_coordinator(ray, name, settings, num_shards)
        self._connect(name, coordinator, timeout, owner=True)
        self._all("restore", [(None,)] * num_shards, patience=10.0)  # starting processes takes longer than a call

    @classmethod
    def attach(cls, name: str, timeout: float = 120.0) -> RayStore:
        """Another client of a store that was created under `name`.

        Args:
            name: of the store.
            timeout: seconds to wait for a shard.

        Returns:
            A store on the same rows.

        Raises:
            PenstockError: there is none of that name.
        """
        ray = _start_ray()
        try:
            coordinator = ray.get_actor(_actor_name(name), namespace=NAMESPACE)
        except ValueError:
            raise PenstockError(f"there is no store named {name!r} in this Ray cluster; create it first") from None
        store = cls.__new__(cls)
        store._connect(name, coordinator, timeout, owner=False)
        return store

    def _connect(self, name: str, coordinator: Any, timeout: float, owner: bool) -> None:
        self._ray, self.name, self.timeout, self._owner = _start_ray(), name, timeout, owner
        self._coordinator = coordinator
        settings, self._shards = self._ray.get(coordinator.about.remote(), timeout=10 * timeout)
        self.config, self.optimizer = settings["config"], settings["optimizer"]
        self.storage, self.seed = settings["storage"], settings["seed"]
        self.admission, self.eviction = settings["admission"], _whole(settings["eviction"], len(self._shards))
        self._layout, self._pool = SlotLayout(self.config), BufferPool(slack=4, keep=64)
        self._threads = KernelThreads(None, "store")
        self._counters = Counters(self.config.names)
        self._applied = [0] * len(self._shards)  # updates each shard is known to have applied
        self._lock = threading.RLock()

    @property
    def num_shards(self) -> int:
        return len(self._shards)

    # The interface

    def lookup(self, batch: Mapping[str, Any], train: bool = True) -> Lookup:
        check_all({"train": train}, {"train": BOOL})
        if train and self.optimizer is None:
            raise PenstockError("this store was opened without an optimizer (for serving); look up with train=False")
        with self._lock:
            ids = IdBatch(self.config, batch, self._threads.run)
            found = Lookup(self.config, ids, self._pool, train)
            routed = RoutedBatch(self._layout, ids, self._pool, self._threads, self.num_shards)
            replies = self._all("lookup", [(*part, train) for part in routed.requests()])
            routed.pool_rows(replies)
            found._work = routed if train else None
            self._counters.lookups += train
        return found

    def update(self, lookup: Lookup, gradients: Gradients | None = None, scale: float = 1.0) -> None:
        routed = training_work(lookup, scale)
        gradients = lookup.collected() if gradients is None else gradients
        with self._lock:
            kept = lookup.place_gradients(routed.work.inputs, gradients)
            parts, stepped, dropped = routed.sum_gradients()
            del kept
            replies = self._all("update", [(*part, stepped, float(scale)) for part in parts])
            self._applied = [int(reply) for reply in replies]
            self._counters.dropped += dropped
            self._counters.updates += 1
        lookup._work = None

    def save(self, path: str | Path, overwrite: bool = False, base: str | Path | None = None) -> None:
        """Write a checkpoint, each shard its part; with `base`, the last one saved or loaded, only what changed since.

        Raises:
            SecondWriterError: the store is being saved already.
            OutputExistsError: the folder is there and overwrite was not asked for.
        """
        place = Path(path).absolute()
        busy = self._get(self._coordinator.begin_save.remote(str(place)))
        if busy is not None:
            raise SecondWriterError(f"store {self.name!r} is being saved to {busy}; a store has one writer at a time")
        trail = None
        try:
            with self._lock:
                trail = self._save(place, overwrite, base)
        finally:
            self._get(self._coordinator.end_save.remote(trail))

    def _save(self, place: Path, overwrite: bool, base: str | Path | None) -> checkpoint.Trail:
        if base is not None:
            self._get(self._coordinator.trail.remote()).check(base)
            if Path(base).resolve() == place.resolve():
                raise OutputExistsError(f"{place} is the base itself; an incremental checkpoint needs its own path")
        with checkpoint.writing_checkpoint(place, overwrite) as folder:
            progress = self._all("save", [(str(folder), base is not None)] * self.num_shards, patience=10.0)
            description = {
                **checkpoint.describe(
                    self.config, self.optimizer, self.storage, self.seed, self.admission, self.eviction
                ),
                "base": None if base is None else checkpoint.base_entry(place, base),
                "shards": progress,
            }
            (folder / "store.json").write_text(json.dumps(description, indent=1))
        self._all("saved", [()] * self.num_shards)
        return checkpoint.Trail(place, checkpoint._checksum(place))

    def load(self, path: str | Path) -> None:
        place = Path(path).absolute()

        def fill(chain: list[checkpoint.Description]) -> checkpoint.Trail:
            checkpoint.check_fits(chain[-1], self.config, self.optimizer, self.storage, self.seed)
            what = (str(place), chain[-1].checksum)  # shards know nothing of keys: they read what was verified here
            self._applied = self._all("restore", [what] * self.num_shards, patience=10.0)
            return checkpoint.Trail(place, chain[-1].checksum)

        with self._lock:
            trail = checkpoint.read_chain(place, fill)
            self._get(self._coordinator.set_trail.remote(trail))

    def stats(self) -> dict[str, Any]:
        with self._lock:
            shards = self._all("stats", [()] * self.num_shards)
        total = {
            key: sum(shard[key] for shard in shards)
            for key in ("rows", "waiting", "bytes", "payload_bytes", "evicted", "updates_to_evicted_rows")
        }
        return {
            **self._counters.to_dict(),
            **total,
            "tables": {g: _summed([s["tables"][g] for s in shards]) for g in self.config.groups},
            "rows_by_group": {g: sum(s["rows_by_group"][g] for s in shards) for g in self.config.groups},
            "steps": dict(zip(self.config.groups, shards[0]["steps"], strict=True)),
            "shards": shards,
            "restarts": self._get(self._coordinator.restarts.remote()),
        }

    def clear(self) -> None:
        with self._lock:
            self._all("restore", [(None,)] * self.num_shards)
            self._counters = Counters(self.config.names)
            self._get(self._coordinator.set_trail.remote(checkpoint.Trail()))

    def close(self) -> None:
        """The process that created the store ends its actors; others only let go of them."""
        if self._owner and self._ray.is_initialized():
            for actor in [*self._shards, self._coordinator]:
                self._ray.kill(actor, no_restart=True)
        self._owner = False
        self._threads.close()

    # Calling shards

    def shard_name(self, number: int) -> str:
        """How messages name a shard.

        Args:
            number: of the shard.

        Returns:
            The name.
        """
        return f"shard {number} of store {self.name!r}"

    def _get(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference, timeout=self.timeout)
        except self._ray.exceptions.GetTimeoutError:
            raise StoreTimeoutError(
                f"the coordinator of store {self.name!r} did not answer within {self.timeout:g} s"
            ) from None

    def _all(self, method: str, arguments: list[tuple[Any, ...]], patience: float = 1.0) -> list[Any]:
        """Call every shard at once; a shard that died is restored, and its call repeated."""
        deadline = time.monotonic() + self.timeout * patience
        pending = [self._submit(k, method, given) for k, given in enumerate(arguments)]
        replies = []
        for number, reference in enumerate(pending):
            reply = self._await(number, method, reference, deadline)
            while reply is None or (isinstance(reply, str) and reply == LOST):
                self._restore(number, deadline)
                reply = self._await(number, method, self._submit(number, method, arguments[number]), deadline)
            replies.append(reply[0])
        return replies

    def _submit(self, number: int, method: str, arguments: tuple[Any, ...]) -> Any:
        return getattr(self._shards[number], method).remote(*arguments)

    def _await(self, number: int, method: str, reference: Any, deadline: float) -> Any:
        """`(reply,)`, LOST, or None where the shard died."""
        errors = self._ray.exceptions
        try:
            reply = self._ray.get(reference, timeout=max(0.001, deadline - time.monotonic()))
        except errors.GetTimeoutError:
            raise StoreTimeoutError(
                f"{self.shard_name(number)} did not answer {method!r} within {self.timeout:g} s; "
                "it hangs, or timeout is too short"
            ) from None
        except errors.RayActorError:
            return None
        except errors.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        return LOST if isinstance(reply, str) and reply == LOST else (reply,)

    def _restore(self, number: int, deadline: float) -> None:
        """Wait until Ray has restarted a shard, restore it, and say what was lost."""
        trail = self._get(self._coordinator.trail.remote())
        path = str(trail.path) if trail.path else None
        while True:
            reply = self._await(number, "restore", self._submit(number, "restore", (path,)), deadline)
            if reply is not None:
                break
            if time.monotonic() > deadline:
                raise StoreTimeoutError(
                    f"{self.shard_name(number)} died and was not restarted within {self.timeout:g} s"
                )
            time.sleep(0.05)
        lost = max(0, self._applied[number] - int(reply[0]))
        self._get(
            self._coordinator.record_restart.remote({"shard": number, "restored_from": path, "updates_lost": lost})
        )
        source = f"restored from {path}" if path else "is empty: no checkpoint had been saved"
        warnings.warn(
            f"{self.shard_name(number)} died, was restarted and {source}; {lost} updates to its rows are lost",
            ShardRestartedWarning,
            stacklevel=5,
        )


def _start_ray() -> Any:
    ray = require("ray", "ray")
    if not ray.is_initialized():
        ray.init(namespace=NAMESPACE, include_dashboard=False, log_to_driver=False)
    return ray


def _actor_name(name: str) -> str:
    return f"penstock-store-{name}"


def _summed(parts: list[dict[str, int]]) -> dict[str, int]:
    """One table's figures over all shards."""
    return {key: parts[0][key] if key == "dim" else sum(part[key] for part in parts) for key in parts[0]}


def _share(eviction: Eviction | None, num_shards: int) -> Eviction | None:
    """One shard's part of the whole store's budget."""
    if eviction is None:
        return None
    rows = None if eviction.max_rows is None else max(1, eviction.max_rows // num_shards)
    size = None if eviction.max_bytes is None else max(1, eviction.max_bytes // num_shards)
    return replace(eviction, max_rows=rows, max_bytes=size)


def _whole(share: Eviction | None, num_shards: int) -> Eviction | None:
    """The whole store's budget, of which every shard has a part."""
    if share is None:
        return None
    rows = None if share.max_rows is None else share.max_rows * num_shards
    size = None if share.max_bytes is None else share.max_bytes * num_shards
    return replace(share, max_rows=rows, max_bytes=size)


def _create_coordinator(ray: Any, name: str, settings: dict[str, Any], num_shards: int) -> Any:
    """Start the actors of a store; a name that is taken is refused."""
    try:
        ray.get_actor(_actor_name(name), namespace=NAMESPACE)
    except ValueError:
        pass
    else:
        raise SecondWriterError(f"a store named {name!r} exists already; use RayStore.attach({name!r}) to share it")
    shard = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)(Shard)
    shards = [shard.remote(number, num_shards, settings) for number in range(num_shards)]
    options = {"num_cpus": 0, "name": _actor_name(name), "namespace": NAMESPACE}
    return ray.remote(Coordinator).options(**options).remote(settings, shards)
