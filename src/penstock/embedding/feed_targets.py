"""What the packets of a feed are applied to: a store, or the tables of a saved model."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from penstock.core.artefact import SavedFolder
from penstock.core.errors import ArtefactError
from penstock.embedding.feed_packets import NO_EMBEDDINGS, OF_TABLES, TABLES, rows_folder
from penstock.embedding.row_files import read_shard
from penstock.embedding.store import Store
from penstock.embedding.tables import TableSet

_ROWS_UNDER_LOCK = 1 << 14  # a few milliseconds: what a look-up may have to wait
_LOCK = "_feed_lock"  # of a module whose rows a feed changes


class FeedTarget(Protocol):
    """What follows a feed."""

    def check(self, folder: SavedFolder, about: Mapping[str, Any]) -> None:
        """Refuse a packet that was published by something else."""
        ...

    def apply(self, folder: SavedFolder, about: Mapping[str, Any]) -> None:
        """Take a packet over; one that cannot be read changes as little as possible."""
        ...


def target_of(embeddings: Any) -> FeedTarget:
    """What applies packets to these embeddings."""
    if embeddings is None:
        return NoTarget()
    return StoreTarget(embeddings) if isinstance(embeddings, Store) else TableTarget(embeddings)


def changing(module: Any) -> AbstractContextManager[Any]:
    """A block in which a feed changes no row of a module."""
    lock: AbstractContextManager[Any] = getattr(module, _LOCK, None) or nullcontext()
    return lock


class NoTarget:
    """A model without embeddings."""

    def check(self, folder: SavedFolder, about: Mapping[str, Any]) -> None:
        if about["storage"] != NO_EMBEDDINGS:
            raise ArtefactError(f"{folder} was published by a training that has embeddings, and this model has none")

    def apply(self, folder: SavedFolder, about: Mapping[str, Any]) -> None:
        """Nothing."""


class StoreTarget:
    """A store of this process."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def check(self, folder: SavedFolder, about: Mapping[str, Any]) -> None:
        if about["config"] != self.store.config.to_dict() or about["storage"] != self.store.storage:
            raise ArtefactError(f"{folder} was published by a store of other slots or precision than this one")

    def apply(self, folder: SavedFolder, about: Mapping[str, Any]) -> None:
        store, rows = self.store, folder.folder("rows")
        parts = [rows.folder(rows_folder(number)) for number in range(about["shards"])] or [rows]
        if about["whole"]:
            fresh = _empty_like(store)  # until it is complete, both are in memory
            for part in parts:
                read_shard(fresh, part, with_state=False)
            fresh.clock = about["clock"]
            with store._lock:
                old, store.tables = store.tables, fresh
            old.close()
            return
        for part in parts:
            read_shard(store.tables, part, with_state=False, lock=store._lock)
        store.tables.clock = about["clock"]


class TableTarget:
    """Tables of a saved model, on any device."""

    def __init__(self, module: Any) -> None:
        self.module, self._lock = module, threading.Lock()
        object.__setattr__(module, _LOCK, self._lock)  # a lock is no part of a module's state

    def check(self, folder: SavedFolder, about: Mapping[str, Any]) -> None:
        if about["storage"] != OF_TABLES:
            raise ArtefactError(f"{folder} was published by a store, and this model has tables")

    def apply(self, folder: SavedFolder, about: Mapping[str, Any]) -> None:
        from penstock.embedding.tensor_files import read_tensors

        given, held = read_tensors(folder, TABLES), self.module.state_dict()
        path, changes = folder.file(TABLES), {}
        for name, own in held.items():
            values, rows = given.get(name), given.get(f"{name}.rows")
            if values is None or values.dtype != own.dtype or values.shape[1:] != own.shape[1:]:
                raise ArtefactError(f"{path} does not hold rows of {name!r} as this model has them")
            if about["whole"] != (rows is None) or len(values) != (len(own) if rows is None else len(rows)):
                raise ArtefactError(f"{path} does not say which rows of {name!r} it holds")
            if rows is not None and len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(own):
                raise ArtefactError(f"{path} holds rows of {name!r} that this model does not have")
            changes[name] = rows, values
        for name, (rows, values) in changes.items():
            self._write(held[name], rows, values)

    def _write(self, own: Any, rows: Any, values: Any) -> None:
        for first in range(0, len(values), _ROWS_UNDER_LOCK):
            part = values[first : first + _ROWS_UNDER_LOCK].to(own.device)
            with self._lock:
                if rows is None:
                    own[first : first + len(part)] = part
                else:
                    own[rows[first : first + len(part)].to(own.device)] = part


def _empty_like(store: Store) -> TableSet:
    """Tables without a row, made as the store's are; what was counted so far is carried on."""
    old = store.tables
    threads = old.threads.num_threads
    fresh = TableSet(store.config, store.optimizer, store.storage, old.admission, old.eviction, threads, store.seed)
    fresh.tallies = old.tallies
    return fresh
