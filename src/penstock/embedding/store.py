"""The store: embeddings of ids that need no vocabulary, in this process.

`Store` is the in-process home; `penstock.embedding.ray_store.RayStore` has the same interface over Ray actors.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np

from penstock.core import artefact
from penstock.core.errors import PenstockError
from penstock.core.keys import KeyLike, verifying
from penstock.core.params import BOOL, NONE, Instance, Int, OneOf, Satisfies, check_all
from penstock.embedding import checkpoint
from penstock.embedding.batches import IdBatch
from penstock.embedding.lookup import Gradients, Lookup
from penstock.embedding.optimizers import Optimizer
from penstock.embedding.policies import Admission, Eviction
from penstock.embedding.slots import EmbeddingConfig, SlotConfig
from penstock.embedding.store_saving import StoreSaving
from penstock.embedding.table import STORAGES
from penstock.embedding.tables import TableSet

_POSITIVE = Satisfies(lambda v: isinstance(v, (int, float)) and 0 < v < float("inf"), "a finite number > 0")


class EmbeddingStore(ABC):
    """What every store does: the protocol `Embeddings` for rows on the host, and `clear`."""

    config: EmbeddingConfig
    optimizer: Optimizer | None
    on_host = True
    updates_in_backward = capturable = False

    @property
    def names(self) -> list[str]:
        """The slots, in order."""
        return self.config.names

    @property
    def dims(self) -> dict[str, int]:
        """The width of each slot's embeddings."""
        return {slot.name: slot.dim for slot in self.config}

    @abstractmethod
    def lookup(self, batch: Mapping[str, Any], train: bool = True) -> Lookup:
        """Embeddings of a batch. Training inserts ids and touches rows; else a miss is zeros and nothing changes.

        Args:
            batch: ids by slot.
            train: whether `update` will follow.

        Returns:
            Embeddings by slot, and the way back to their rows.

        Raises:
            PenstockError: the store has no optimizer, and training was asked for.
            DataError: ids that no slot can have.
        """

    @abstractmethod
    def update(self, lookup: Lookup, gradients: Gradients | None = None, scale: float = 1.0) -> None:
        """Apply the gradients of a training look-up, divided by `scale` (the loss scale).

        `gradients` maps slots to arrays or tensors of the embeddings' shape (a slot left out or None is skipped), or is
        one packed array; without it, the gradients of `lookup.tensors()` are taken. A slot whose gradient is not finite
        is skipped and counted. Rows evicted since the look-up are passed over.

        Args:
            lookup: what `lookup(batch, train=True)` gave.
            gradients: by slot, packed, or None.
            scale: what the loss was multiplied by.

        Raises:
            PenstockError: the look-up was no training one, or has been updated already.
        """

    @abstractmethod
    def save(self, path: str | Path, overwrite: bool = False, base: str | Path | None = None) -> None:
        """Write a checkpoint; with `base`, the last one saved or loaded, only what changed since."""

    @abstractmethod
    def load(self, path: str | Path) -> None:
        """Replace what the store holds by a checkpoint, whatever number of shards wrote it."""

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """Plain figures: rows, bytes, steps, evictions, dropped gradients; `tables`: rows, bytes and hits of each."""

    @abstractmethod
    def clear(self) -> None:
        """Forget every row."""

    @abstractmethod
    def close(self) -> None:
        """Release threads or actors."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def store_parameters(
    config: EmbeddingConfig | Iterable[SlotConfig],
    optimizer: Any,
    storage: str,
    admission: Any,
    eviction: Any,
    seed: int,
) -> EmbeddingConfig:
    """Check what every store is made from; the configuration."""
    constraints = {
        "optimizer": NONE | Instance(Optimizer, "an optimizer of penstock.embedding.optimizers"),
        "storage": OneOf(tuple(STORAGES)),
        "admission": NONE | Instance(Admission),
        "eviction": NONE | Instance(Eviction),
        "seed": Int(min=0, max=2**63),
    }
    values = {"optimizer": optimizer, "storage": storage, "admission": admission, "eviction": eviction, "seed": seed}
    check_all(values, constraints, "Store")
    return config if isinstance(config, EmbeddingConfig) else EmbeddingConfig(config)


class Counters:
    """What updates did so far, by slot."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.dropped = np.zeros(len(names), np.int64)
        self.lookups = self.updates = self.to_evicted = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "lookups": self.lookups,
            "updates": self.updates,
            "updates_to_evicted_rows": self.to_evicted,
            "dropped_gradients": {n: int(c) for n, c in zip(self.names, self.dropped, strict=True) if c},
        }


class Store(EmbeddingStore):
    """Embeddings in this process's memory.

    `storage` is the precision of the rows (`float32`, or `float16`/`bfloat16` with stochastic rounding; optimizer state
    is always float32). Without an optimizer the store is for serving: it holds rows only.

    Args:
        config: the slots.
        optimizer: how rows are trained; None to serve.
        storage: the precision of rows.
        admission: which ids get a row; all by default.
        eviction: which rows go when there are too many; none by default.
        num_threads: threads of a look-up; as many as the machine has cores by default.
        seed: of the rows that are drawn.

    >>> from penstock.embedding.optimizers import Adagrad
    >>> store = Store([SlotConfig("user", dim=4), SlotConfig("tags", dim=4, pooling="mean")], Adagrad(lr=0.1))
    >>> found = store.lookup({"user": [7, 8, 7], "tags": ([1, 2, 3], [0, 1, 3, 3])})
    >>> found["user"].shape, found.packed.shape, store.stats()["rows"]
    ((3, 4), (3, 8), 5)
    >>> store.update(found, {"user": np.ones((3, 4)), "tags": np.ones((3, 4))})
    >>> store.lookup({"user": [9], "tags": [9]}, train=False)["user"]  # evaluation never inserts
    array([[0., 0., 0., 0.]], dtype=float32)
    >>> store.close()
    """

    def __init__(
        self,
        config: EmbeddingConfig | Iterable[SlotConfig],
        optimizer: Optimizer | None = None,
        *,
        storage: str = "float32",
        admission: Admission | None = None,
        eviction: Eviction | None = None,
        num_threads: int | None = None,
        seed: int = 0,
    ) -> None:
        self.config = store_parameters(config, optimizer, storage, admission, eviction, seed)
        check_all({"num_threads": num_threads}, {"num_threads": NONE | Int(min=1)}, "Store")
        self.optimizer, self.storage, self.seed = optimizer, storage, seed
        self.tables = TableSet(self.config, optimizer, storage, admission, eviction, num_threads, seed)
        self._counters = Counters(self.config.names)
        self._lock = threading.RLock()  # one call at a time; each call uses all threads
        self._saved = checkpoint.Trail()
        self._saving: weakref.ref[StoreSaving] | None = None  # what was begun last

    def lookup(self, batch: Mapping[str, Any], train: bool = True) -> Lookup:
        check_all({"train": train}, {"train": BOOL})
        if train and self.optimizer is None:
            raise PenstockError("this store was opened without an optimizer (for serving); look up with train=False")
        with self._lock:
            ids = IdBatch(self.config, batch, self.tables.threads.run)
            found = Lookup(self.config, ids, self.tables.pool, train)
            work = self.tables.lookup(ids.inputs, train, [ids])
            found._work = work if train else None
            self._counters.lookups += train
        return found

    def update(self, lookup: Lookup, gradients: Gradients | None = None, scale: float = 1.0) -> None:
        work = training_work(lookup, scale)
        gradients = lookup.collected() if gradients is None else gradients
        with self._lock:
            kept = lookup.place_gradients(work.inputs, gradients)
            counts = self.tables.update(work, scale)
            del kept
            self._counters.dropped += counts.dropped
            self._counters.to_evicted += counts.evicted
            self._counters.updates += 1
        lookup._work = None  # its memory can serve the next batch

    def save(self, path: str | Path, overwrite: bool = False, base: str | Path | None = None) -> None:
        with self._lock:
            StoreSaving(self, path, overwrite, base, aside=False).finish()

    @property
    def copy_bytes(self) -> int:
        """The memory of this process that `begin_save` copies."""
        return self.tables.bytes

    def begin_save(self, path: str | Path, overwrite: bool = False, base: str | Path | None = None) -> StoreSaving:
        """Begin a checkpoint of what the store holds now: it is copied in memory, and written while the store goes on.

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
        with self._lock:
            saving = StoreSaving(self, path, overwrite, base, aside=True)
            self._saving = weakref.ref(saving)
        return saving

    def load(self, path: str | Path) -> None:
        with self._lock:
            checkpoint.load_store(self, path)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        serving: bool = False,
        optimizer: Optimizer | None = None,
        verify: KeyLike | None = None,
        **settings: Any,
    ) -> Store:
        """A new store from a checkpoint's own configuration; `serving=True` leaves the optimizer state out.

        Args:
            path: a checkpoint.
            serving: without an optimizer.
            optimizer: another than the one saved.
            verify: the file of a key; a checkpoint that it has not signed (`penstock sign`) is refused.
            settings: of the constructor, other than those saved.

        Returns:
            The store, filled.

        Raises:
            ArtefactError: the checkpoint is damaged, or not signed.
        """
        with verifying(verify):
            saved = checkpoint.read_description(path)
            # What a caller asks for besides is the caller's to get right; the rest is the checkpoint's.
            with nullcontext() if settings else artefact.explaining(Path(path), checkpoint.KIND):
                if not serving and optimizer is None:
                    optimizer = saved.optimizer()
                store = cls(saved.config(), None if serving else optimizer, **{**saved.settings(), **settings})
            store.load(path)
        return store

    def stats(self) -> dict[str, Any]:
        with self._lock:
            tables = self.tables
            payload = sum(table.rows * table.layout.payload for table in tables.tables)
            return {
                "rows": tables.rows,
                "rows_by_group": {table.name: table.rows for table in tables.tables},
                "tables": tables.by_table(),
                "waiting": sum(table.pending for table in tables.tables),
                "bytes": tables.bytes,
                "payload_bytes": payload,
                "evicted": tables.evicted,
                "steps": dict(zip(self.config.groups, tables.steps, strict=True)),
                **self._counters.to_dict(),
            }

    def clear(self) -> None:
        with self._lock:
            self.tables.clear()
            self._counters = Counters(self.config.names)
            self._saved = checkpoint.Trail()

    def close(self) -> None:
        self.tables.close()


def training_work(lookup: Lookup, scale: float) -> Any:
    """The numbering a training look-up left behind, or why there is none."""
    check_all({"scale": scale}, {"scale": _POSITIVE}, "update")
    if not lookup.train:
        raise PenstockError("this look-up was made with train=False; only training look-ups can be updated")
    if lookup._work is None:
        raise PenstockError("this look-up has been updated already; look the batch up again for another update")
    return lookup._work
