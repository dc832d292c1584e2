"""The incremental feed: a directory of packets by which a serving process follows a store that trains.

Packets are folders `packet-00000001`, `packet-00000002`, … Each holds the weights touched since the one before, and
the signs removed; the first of a writer holds everything. A packet is renamed into place when it is complete; one that
arrives in pieces (a copy under way) is looked at again until it is whole. Packets are applied in order, none skipped.
"""

from __future__ import annotations

import json
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

from penstock.core import artefact
from penstock.core.artefact import SavedFolder
from penstock.core.errors import ArtefactError
from penstock.core.params import BOOL, NONE, STR, Instance, Int, Real, check_all
from penstock.embedding.locks import WriteLock
from penstock.embedding.rows import read_shard, write_removed, write_shard
from penstock.embedding.store import Store
from penstock.embedding.tables import TableSet

KIND, VERSION = "embedding-packet", 1
WATCHER = "feed"
_FIELDS = {"config": Instance(dict, "a mapping"), "storage": STR, "whole": BOOL, "clock": Int(min=0)}


def packet_path(directory: Path, number: int) -> Path:
    """Where packet `number` is, or will be."""
    return directory / f"packet-{number:08d}"


def packet_numbers(directory: Path) -> list[int]:
    """The packets that are there, in order, finished or not."""
    numbers = (path.name.removeprefix("packet-") for path in directory.glob("packet-*"))
    return sorted(int(number) for number in numbers if number.isdigit())


class FeedWriter:
    """Publishes what changes in a store. `whole_every` packets everything is written anew and older ones are deleted.

    >>> import tempfile
    >>> from penstock.embedding import SGD, SlotConfig, Store
    >>> config = [SlotConfig("user", dim=4)]
    >>> store, serving = Store(config, SGD()), Store(config)
    >>> writer = FeedWriter(store, tempfile.mkdtemp())
    >>> reader = FeedReader(writer.directory, serving)
    >>> found = store.lookup({"user": [7]})
    >>> _ = writer.publish()
    >>> reader.poll(), bool((serving.lookup({"user": [7]}, train=False)["user"] == found["user"]).all())
    (1, True)
    >>> writer.close()
    """

    def __init__(self, store: Store, directory: str | Path, whole_every: int | None = None) -> None:
        check_all({"whole_every": whole_every}, {"whole_every": NONE | Int(min=1)}, "FeedWriter")
        self.store, self.directory, self.whole_every = store, Path(directory), whole_every
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = WriteLock(self.directory / "packets")
        existing = packet_numbers(self.directory)
        self._number, self._since_whole = (existing[-1] if existing else 0), -1
        self._steps = store.tables.steps  # of each table when all its rows were last brought forward

    def publish(self) -> Path:
        """Write the next packet; its path."""
        whole = self._since_whole < 0 or (self.whole_every is not None and self._since_whole + 1 >= self.whole_every)
        place = packet_path(self.directory, self._number + 1)
        with self.store._lock:
            tables = self.store.tables
            since, removed = (-1, []) if whole or WATCHER not in tables.watchers else tables.changes(WATCHER)
            moved = [tables.bring_forward(group, step) for group, step in enumerate(self._steps)]
            with artefact.writing(place, KIND, VERSION) as folder:
                write_shard(tables, folder / "rows", since, with_state=False, moved=moved)
                write_removed(removed, folder / "rows")
                about = {
                    "number": self._number + 1,
                    "whole": since < 0,
                    "clock": tables.clock,
                    "config": self.store.config.to_dict(),
                    "storage": self.store.storage,
                }
                (folder / "packet.json").write_text(json.dumps(about))
            tables.watch(WATCHER)
            self._steps = tables.steps
        self._number += 1
        self._since_whole = 0 if since < 0 else self._since_whole + 1
        if since < 0:
            for number in packet_numbers(self.directory):
                if number < self._number:
                    shutil.rmtree(packet_path(self.directory, number), ignore_errors=True)
        return place

    def close(self) -> None:
        """Let another writer in."""
        self._lock.close()


class FeedReader:
    """Follows a feed into a store opened for serving.

    `poll()` applies every packet that is complete and next in order. One that stays unreadable for `patience` seconds
    is reported as the error it gives.
    """

    def __init__(self, directory: str | Path, store: Store, patience: float = 60.0) -> None:
        check_all({"patience": patience}, {"patience": Real(min=0)}, "FeedReader")
        self.directory, self.store, self.patience = Path(directory), store, patience
        self.applied = 0
        self._waiting: tuple[int, float] | None = None

    def poll(self) -> int:
        """Apply what has arrived; the number of packets applied."""
        count = 0
        while (number := self._next()) is not None:
            try:
                artefact.read(packet_path(self.directory, number), KIND, VERSION, partial(self._apply, number))
            except ArtefactError:
                if self._waiting is None or self._waiting[0] != number:
                    self._waiting = (number, time.monotonic())
                elif time.monotonic() - self._waiting[1] > self.patience:
                    raise
                return count  # not finished yet: it will be read again
            self.applied, self._waiting, count = number, None, count + 1
        return count

    def _apply(self, number: int, folder: SavedFolder) -> None:
        """Change the store while others look ids up in it: none of them waits for a whole packet."""
        store, rows = self.store, folder.folder("rows")
        about = self._about(number, folder)
        if about["whole"]:
            fresh = _empty_like(store)  # until it is complete, both are in memory
            read_shard(fresh, rows, with_state=False)
            fresh.clock = about["clock"]
            with store._lock:
                old, store.tables = store.tables, fresh
            old.close()
        else:
            read_shard(store.tables, rows, with_state=False, lock=store._lock)
            store.tables.clock = about["clock"]

    def _next(self) -> int | None:
        numbers = packet_numbers(self.directory)
        if self.applied + 1 in numbers:
            return self.applied + 1
        # The next one is gone (a new whole packet has replaced it), or this reader is new: begin at a whole packet.
        later = [number for number in numbers if number > self.applied]
        return later[0] if later else None

    def _about(self, number: int, folder: SavedFolder) -> dict[str, Any]:
        about: dict[str, Any] = folder.json("packet.json", _FIELDS)
        config, storage, whole = about["config"], about["storage"], about["whole"]
        if config != self.store.config.to_dict() or storage != self.store.storage:
            raise ArtefactError(f"{folder} was published by a store of other slots or precision than this one")
        if not whole and number != self.applied + 1:
            raise ArtefactError(f"{folder} builds on packet {number - 1}, which is missing from {self.directory}")
        return about


def _empty_like(store: Store) -> TableSet:
    """Tables without a row, made as the store's are; what was counted so far is carried on."""
    old = store.tables
    threads = old.workers.num_threads
    fresh = TableSet(store.config, store.optimizer, store.storage, old.admission, old.eviction, threads, store.seed)
    fresh.tallies = old.tallies
    return fresh
