"""Where the packets of a feed come from: a store, the shards of one on Ray, tables on a device."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from penstock.core.errors import ParameterError
from penstock.embedding.feed_packets import NO_EMBEDDINGS, OF_TABLES, TABLES, rows_folder
from penstock.embedding.protocol import HasStore, is_served_by_store
from penstock.embedding.row_files import write_removed, write_shard
from penstock.embedding.store import Store
from penstock.embedding.table import Table
from penstock.embedding.tables import TableSet

if TYPE_CHECKING:
    from torch import Tensor

    from penstock.embedding.ray_store import RayStore

WATCHER = "feed"
_PUBLISHING = "packet under way"
_NO_STAMP = 2**33  # above all stamps: only rows that are listed count as changed


class FeedSource(Protocol):
    """What a feed publishes."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held from the first row that is written until the packet is in place."""
        ...

    def write(self, folder: Path, whole: bool) -> bool:
        """Write into a packet what has changed, or everything; whether it is everything."""
        ...

    def about(self) -> dict[str, Any]:
        """What a reader must know of what was written."""
        ...

    def written(self) -> None:
        """The packet is in place: what changes from now on belongs to the next one."""
        ...


def source_of(embeddings: Any, model: Any = None) -> FeedSource:
    """What publishes these embeddings.

    Raises:
        ParameterError: they are none that a feed can carry.
    """
    if embeddings is None:
        return NoSource()
    if isinstance(embeddings, Store):
        return StoreSource(embeddings)
    if is_served_by_store(embeddings):
        return HashedSource(embeddings)
    if hasattr(embeddings, "for_serving"):
        return TableSource(embeddings, model)
    if hasattr(embeddings, "processes") and hasattr(embeddings, "num_shards"):
        return RaySource(embeddings)
    raise ParameterError(f"a feed publishes a store or tables of penstock.embedding, got {type(embeddings).__name__}")


class NoSource:
    """A model without embeddings: its weights are all there is."""

    lock: AbstractContextManager[Any] = nullcontext()

    def write(self, folder: Path, whole: bool) -> bool:
        """Nothing."""
        return True

    def about(self) -> dict[str, Any]:
        return {"config": {}, "storage": NO_EMBEDDINGS, "shards": 0, "clock": 0}

    def written(self) -> None:
        """Nothing to remember."""


class RowChanges:
    """What has changed in a set of tables since it was last written: a watcher of them."""

    def __init__(self, tables: TableSet) -> None:
        self.tables = tables
        self._steps = tables.steps  # of each table when all its rows were last brought forward

    def write(self, folder: Path, whole: bool) -> None:
        """Write the weights of rows that changed, or of all, into a folder that is not there yet."""
        since, removed = (-1, []) if whole else self.tables.changes(WATCHER)
        moved = [self.tables.bring_forward(group, step) for group, step in enumerate(self._steps)]
        write_shard(self.tables, folder, since, with_state=False, moved=moved)
        write_removed(removed, folder)

    def written(self, instead_of: str | None = None) -> None:
        """What changes from now on, or from where `instead_of` began to watch, belongs to the next packet."""
        self.tables.watch(WATCHER, instead_of)
        self._steps = self.tables.steps


class StoreSource:
    """A store of this process."""

    def __init__(self, store: Store) -> None:
        self.store, self._changes = store, RowChanges(store.tables)

    @property
    def lock(self) -> AbstractContextManager[Any]:
        return self.store._lock

    def write(self, folder: Path, whole: bool) -> bool:
        if self._changes.tables is not self.store.tables:
            self._changes, whole = RowChanges(self.store.tables), True
        whole = whole or WATCHER not in self.store.tables.watchers  # it was loaded or cleared since
        self._changes.write(folder / "rows", whole)
        return whole

    def about(self) -> dict[str, Any]:
        return {**_described(self.store), "shards": 0, "clock": self.store.tables.clock}

    def written(self) -> None:
        self._changes.written()


class RaySource:
    """The shards of a store on Ray: each writes its own rows, and remembers under a token what it has written."""

    def __init__(self, store: RayStore) -> None:
        self.store, self._token, self._next, self._clock = store, "", "", 0

    @property
    def lock(self) -> AbstractContextManager[Any]:
        return self.store._lock

    def write(self, folder: Path, whole: bool) -> bool:
        (folder / "rows").mkdir()
        self._next = uuid.uuid4().hex
        replies = None if whole or not self._token else self._publish(folder, self._token)
        if replies is None or any(reply is False for reply in replies):  # a shard has lost count of its changes
            whole, replies = True, self._publish(folder, "")
        self._clock = max(replies)
        return whole

    def _publish(self, folder: Path, since: str) -> list[Any]:
        given = (since, self._next, str(folder / "rows"))
        return self.store._calls.call("publish", lambda *_: given, patience=10.0)

    def about(self) -> dict[str, Any]:
        return {**_described(self.store), "shards": self.store.num_shards, "clock": self._clock}

    def written(self) -> None:
        token = self._next
        is_known = all(self.store._calls.call("published", lambda *_: (token,)))
        self._token = token if is_known else ""


class HashedSource:
    """Hashed tables on a device: they are read as a store, which is compared with the one before."""

    lock: AbstractContextManager[Any] = nullcontext()

    def __init__(self, embeddings: HasStore) -> None:
        self.embeddings = embeddings
        self._published: list[tuple[np.ndarray, np.ndarray]] | None = None
        self._next: list[tuple[np.ndarray, np.ndarray]] = []
        self._about: dict[str, Any] = {}

    def write(self, folder: Path, whole: bool) -> bool:
        with self.embeddings.store_for_serving() as store:
            tables = store.tables
            for group in range(len(tables.tables)):
                tables.bring_forward(group)
            self._next = [_sorted_rows(table) for table in tables.tables]
            self._about = {**_described(store), "shards": 0, "clock": max(tables.clock, 0)}
            if whole or self._published is None:
                write_shard(tables, folder / "rows", with_state=False)
                return True
            pairs = list(zip(self._published, self._next, strict=True))
            changed = [_changed_signs(old, new) for old, new in pairs]
            write_shard(tables, folder / "rows", _NO_STAMP, with_state=False, moved=changed)
            write_removed([np.setdiff1d(old, new) for (old, _), (new, _) in pairs], folder / "rows")
        return False

    def about(self) -> dict[str, Any]:
        return self._about

    def written(self) -> None:
        self._published = self._next


class TableSource:
    """Tables on a device that have a row for every id: their weights are compared with those published last."""

    lock: AbstractContextManager[Any] = nullcontext()

    def __init__(self, embeddings: Any, model: Any) -> None:
        schema = getattr(model, "schema", None) or getattr(embeddings, "schema", None)
        if schema is None:
            raise ParameterError("a feed of tables needs the model that reads them: FeedWriter(…, model=)")
        self.embeddings, self._schema = embeddings, schema.select(roles="categorical")
        self._published: dict[str, Tensor] | None = None
        self._next: dict[str, Tensor] = {}
        self._description: dict[str, Any] = {}

    def write(self, folder: Path, whole: bool) -> bool:
        from penstock.embedding.tensor_files import write_tensors

        self._description, weights = self.embeddings.for_serving(self._schema)
        self._next = {name: tensor.clone() for name, tensor in weights.items()}  # the tables go on in the meantime
        whole = whole or self._published is None
        if whole or self._published is None:
            write_tensors(self._next, folder / TABLES)
        else:
            write_tensors(_changed_tensors(self._published, self._next), folder / TABLES)
        return whole

    def about(self) -> dict[str, Any]:
        return {"config": self._description, "storage": OF_TABLES, "shards": 0, "clock": 0}

    def written(self) -> None:
        self._published = self._next


class ShardFeed:
    """The part of a shard on Ray in a feed."""

    def __init__(self, tables: TableSet, number: int) -> None:
        self._changes, self._number = RowChanges(tables), number
        self._token = self._begun = ""

    def publish(self, since: str, token: str, folder: str) -> int | bool:
        """Write what changed since the packet of that token (or everything); the clock, False where that is unknown."""
        tables = self._changes.tables
        if since and (since != self._token or WATCHER not in tables.watchers):
            return False
        place = Path(folder) / rows_folder(self._number)
        shutil.rmtree(place, ignore_errors=True)  # from an attempt before
        self._changes.write(place, whole=not since)
        tables.watch(_PUBLISHING)
        self._begun = token
        return tables.clock

    def published(self, token: str) -> bool:
        """The packet is in place; whether the next one can build on it."""
        if token == self._begun and _PUBLISHING in self._changes.tables.watchers:
            self._changes.written(instead_of=_PUBLISHING)
            self._token, self._begun = token, ""
        return token == self._token and WATCHER in self._changes.tables.watchers


def _described(store: Any) -> dict[str, Any]:
    return {"config": store.config.to_dict(), "storage": store.storage}


def _sorted_rows(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Signs in ascending order, and the bits of their weights."""
    rows = table.read(0, table.num_segments())
    order = np.argsort(rows.signs)
    return rows.signs[order], rows.weights[order].view(f"u{rows.weights.itemsize}")


def _changed_signs(old: tuple[np.ndarray, np.ndarray], new: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The signs whose rows are new, or other than they were."""
    (before, weights), (signs, now) = old, new
    if not len(before):
        return signs
    at = np.minimum(np.searchsorted(before, signs), len(before) - 1)
    same: np.ndarray = (before[at] == signs) & (weights[at] == now).all(axis=1)
    changed: np.ndarray = signs[~same]
    return changed


def _changed_tensors(old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The rows of each tensor whose bits are others than they were, and their numbers as `NAME.rows`."""
    import torch

    bits = {2: torch.int16, 4: torch.int32}
    found: dict[str, Tensor] = {}
    for name, tensor in new.items():
        kind = bits[tensor.element_size()]
        rows = (tensor.view(kind) != old[name].view(kind)).any(dim=1).nonzero().squeeze(1)
        found |= {f"{name}.rows": rows, name: tensor[rows]}
    return found
