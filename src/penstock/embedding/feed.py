"""The incremental feed: a directory of packets by which a serving process follows a store that trains.

Packets are folders `packet-00000001`, `packet-00000002`, … Each holds the weights touched since the one before, and
the signs removed; the first of a writer holds everything. A packet is renamed into place when it is complete; one that
arrives in pieces (a copy under way) is looked at again until it is whole. Packets are applied in order, and one that is
missing is waited for. One that is damaged is reported and left out; what comes behind it is applied.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from penstock.core import artefact
from penstock.core.artefact import SavedFolder
from penstock.core.bounded import read_json
from penstock.core.errors import ArtefactError
from penstock.core.keys import KeyLike, current_key, read_key, verifying
from penstock.core.params import BOOL, NONE, STR, Instance, Int, Real, check_all
from penstock.embedding.locks import WriteLock
from penstock.embedding.row_files import read_shard, write_removed, write_shard
from penstock.embedding.store import Store
from penstock.embedding.tables import TableSet

KIND, VERSION = "embedding-packet", 1
WATCHER = "feed"
_NAME = re.compile(r"packet-([0-9]{8,18})").fullmatch
_LARGEST_MANIFEST = 1 << 26  # bytes
log = logging.getLogger("penstock.embedding")
_FIELDS = {
    "number": Int(min=1),
    "whole": BOOL,
    "clock": Int(0, 2**63 - 1),
    "config": Instance(dict, "a mapping"),
    "storage": STR,
}


def packet_path(directory: Path, number: int) -> Path:
    """Where packet `number` is, or will be."""
    return directory / f"packet-{number:08d}"


def packet_numbers(directory: Path) -> list[int]:
    """The packets that are there, in order, finished or not."""
    names = (_NAME(path.name) for path in directory.glob("packet-*"))
    return sorted(int(name[1]) for name in names if name is not None)


class FeedWriter:
    """Publishes what changes in a store. `whole_every` packets everything is written anew and older ones are deleted.

    Args:
        store: whose changes are published.
        directory: where packets go.
        whole_every: packets after which one holds everything.
        sign: the file of a key; packets are signed with it, for readers that verify.

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

    def __init__(
        self, store: Store, directory: str | Path, whole_every: int | None = None, sign: KeyLike | None = None
    ) -> None:
        check_all({"whole_every": whole_every}, {"whole_every": NONE | Int(min=1)}, "FeedWriter")
        self.store, self.directory, self.whole_every = store, Path(directory), whole_every
        self._key = None if sign is None else read_key(sign)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = WriteLock(self.directory / "packets")
        existing = packet_numbers(self.directory)
        self._number, self._since_whole = (existing[-1] if existing else 0), -1
        self._steps = store.tables.steps  # of each table when all its rows were last brought forward

    def publish(self) -> Path:
        """Write the next packet; its path.

        Returns:
            The path of the packet.
        """
        whole = self._since_whole < 0 or (self.whole_every is not None and self._since_whole + 1 >= self.whole_every)
        place = packet_path(self.directory, self._number + 1)
        with self.store._lock:
            tables = self.store.tables
            since, removed = (-1, []) if whole or WATCHER not in tables.watchers else tables.changes(WATCHER)
            moved = [tables.bring_forward(group, step) for group, step in enumerate(self._steps)]
            with artefact.writing(place, KIND, VERSION, key=self._key) as folder:
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


class DamagedPacketError(ArtefactError):
    """A packet that is complete and yet cannot be applied: waiting does not help."""


class FeedReader:
    """Follows a feed into a store opened for serving.

    `poll()` applies every packet that is complete and next in order. One that stays unreadable for `patience` seconds,
    or is complete and damaged, is raised as an error once and left out. The packets behind it are applied; `problem`
    says what was left out until one that holds everything has come. One that is copied again is looked at again.

    Args:
        directory: where a `FeedWriter` publishes.
        store: to apply packets to.
        patience: seconds that a packet may take to arrive.
        verify: the file of a key; a packet that it has not signed counts as one that is not whole.
    """

    def __init__(
        self, directory: str | Path, store: Store, patience: float = 60.0, verify: KeyLike | None = None
    ) -> None:
        check_all({"patience": patience}, {"patience": Real(min=0)}, "FeedReader")
        self.directory, self.store, self.patience = Path(directory), store, patience
        self._key = current_key() if verify is None else read_key(verify)  # packets are read in other threads too
        self.applied = 0
        self.problem: str | None = None
        self._waiting: dict[int, float] = {}  # since when packets are unreadable
        self._left_out: dict[int, list[tuple[str, int, int]]] = {}  # and the files that they had then
        self._unraised: ArtefactError | None = None

    def poll(self) -> int:
        """Apply what has arrived.

        Returns:
            The number of packets applied.

        Raises:
            ArtefactError: where a packet was left out; once, and after those that could be applied.
        """
        count = 0
        while self._apply_next():
            count += 1
        if count == 0 and self._unraised is not None:
            error, self._unraised = self._unraised, None
            raise error
        return count

    def _apply_next(self) -> bool:
        """Apply the first packet that can be; False where there is none."""
        numbers = [number for number in packet_numbers(self.directory) if number > self.applied]
        for at, number in enumerate(numbers):
            if number in self._left_out and self._left_out[number] == self._files(number):
                continue
            try:
                self._read(number)
                return True
            except ArtefactError as error:
                if self._may_still_arrive(number, error):
                    return self._apply_whole(numbers[at + 1 :])  # it makes up for whatever is not there
                self._leave_out(number, error)
        return False

    def _apply_whole(self, numbers: list[int]) -> bool:
        """Apply the first of these packets that holds everything; False where there is none."""
        for number in numbers:
            with suppress(ArtefactError):
                if read_json(packet_path(self.directory, number) / "packet.json", _FIELDS)["whole"]:
                    self._read(number)
                    return True
        return False

    def _read(self, number: int) -> None:
        place = packet_path(self.directory, number)
        try:
            with verifying(self._key):
                is_whole = artefact.read(place, KIND, VERSION, partial(self._apply, number))
        except ArtefactError as error:
            if _is_no_manifest(place / artefact.MANIFEST):
                raise DamagedPacketError(str(error)) from error
            raise
        except OSError as error:
            raise ArtefactError(f"{place} cannot be read: {error.strerror or error}") from error
        self.applied = number
        self._waiting.clear()
        self._left_out = {other: files for other, files in self._left_out.items() if other > number}
        if is_whole:
            self.problem = self._unraised = None

    def _apply(self, number: int, folder: SavedFolder) -> bool:
        """Change the store while others look ids up in it: none of them waits for a whole packet."""
        store, rows = self.store, folder.folder("rows")
        about = self._about(number, folder)
        try:
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
        except ArtefactError as error:
            raise DamagedPacketError(str(error)) from error
        return bool(about["whole"])

    def _about(self, number: int, folder: SavedFolder) -> dict[str, Any]:
        try:
            about: dict[str, Any] = folder.json("packet.json", _FIELDS)
        except ArtefactError as error:
            raise DamagedPacketError(str(error)) from error
        if about["number"] != number:
            raise DamagedPacketError(f"{folder} holds packet {about['number']}")
        if about["config"] != self.store.config.to_dict() or about["storage"] != self.store.storage:
            raise ArtefactError(f"{folder} was published by a store of other slots or precision than this one")
        left_out = sum(self.applied < other < number for other in self._left_out)
        if not about["whole"] and (number != self.applied + 1 + left_out or (left_out and not self.applied)):
            raise ArtefactError(f"{folder} builds on packet {number - 1}, which is missing from {self.directory}")
        return about

    def _may_still_arrive(self, number: int, error: ArtefactError) -> bool:
        if isinstance(error, DamagedPacketError):
            return False
        if number not in self._waiting:
            self._waiting[number] = time.monotonic()
            return True
        return time.monotonic() - self._waiting[number] <= self.patience

    def _leave_out(self, number: int, error: ArtefactError) -> None:
        self._left_out[number], self._unraised = self._files(number), error
        self.problem = (
            f"{error}; packet {number} was left out, and what it changed stays as it was until a packet that holds "
            f"everything comes: publish one, or copy this one again"
        )
        log.error("%s", self.problem)

    def _files(self, number: int) -> list[tuple[str, int, int]]:
        """What a packet's files look like from outside: another copy of it looks different."""
        found = []
        with suppress(OSError):
            for path in sorted(packet_path(self.directory, number).rglob("*")):
                about = path.stat()
                found.append((path.name, about.st_size, about.st_mtime_ns))
        return found


def _is_no_manifest(path: Path) -> bool:
    """Whether a file is whole JSON and yet no manifest: waiting for more of it would not help."""
    try:
        manifest = json.loads(path.read_bytes()[:_LARGEST_MANIFEST])
    except RecursionError:
        return True
    except (OSError, ValueError):
        return False
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict) or not {"penstock", "version"} <= set(manifest):
        return True
    return not all(isinstance(about, dict) and {"bytes", "sha256"} <= set(about) for about in files.values())


def _empty_like(store: Store) -> TableSet:
    """Tables without a row, made as the store's are; what was counted so far is carried on."""
    old = store.tables
    threads = old.threads.num_threads
    fresh = TableSet(store.config, store.optimizer, store.storage, old.admission, old.eviction, threads, store.seed)
    fresh.tallies = old.tallies
    return fresh
