"""Parquet pages that a device copies from where the system keeps them: in the page cache, pinned.

Reading a file copies it out of the page cache into memory that the device can read, and that copy is most of what a
loader's threads do when the device decodes. From its second epoch on a loader has the system's own pages pinned
instead, as many as there is room for, and remembers the runs that were found in them: the host does not look at a byte
of them again. It must not: a processor that touches a page of a file that has become shorter ends the process, while
pinned pages stay what they were, for the device.

Whether a file is still the one that was opened is asked at each chunk, as ever.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from penstock.core.errors import PenstockError
from penstock.core.runtime.memory import available_memory
from penstock.core.runtime.threads import start_thread
from penstock.kernels import parquet_runs_contract as contract
from penstock.loader.device_pins import HostPins
from penstock.loader.encoded import FoundPiece, PinnedBytes
from penstock.loader.open_file import OpenFile
from penstock.loader.parquet_chunks import ColumnChunk
from penstock.loader.remote_file import joined

_SHARE_OF_MEMORY = 0.25  # of what the machine has left, for all loaders of a process
_MOST_RANGES = 8192  # of a process, which Linux allows 65,530 mappings
_POPULATE_READ = 22  # MADV_POPULATE_READ, which the module mmap does not name
_NOWHERE = ctypes.c_void_p(-1).value  # MAP_FAILED

Open = Callable[[str], OpenFile]


class PinnedRoom:
    """What may be pinned: a share of the memory that the machine has left when it is first asked, in so many ranges.

    >>> room = PinnedRoom(limit=100)
    >>> room.take(60), room.take(60)
    (True, False)
    >>> room.give_back(60)
    >>> room.take(60)
    True
    """

    def __init__(self, limit: int | None = None, ranges: int = _MOST_RANGES) -> None:
        self._left, self._ranges, self._lock = limit, ranges, threading.Lock()

    def take(self, size: int, ranges: int = 0) -> bool:
        """Take some bytes or ranges; False where there are not so many."""
        with self._lock:
            if self._left is None:
                self._left = int((available_memory() or 0) * _SHARE_OF_MEMORY)
            if size > self._left or ranges > self._ranges:
                return False
            self._left, self._ranges = self._left - size, self._ranges - ranges
            return True

    def give_back(self, size: int, ranges: int = 0) -> None:
        """What is not pinned any more."""
        with self._lock:
            self._left, self._ranges = (self._left or 0) + size, self._ranges + ranges


ROOM = PinnedRoom()  # of this process


@dataclass(frozen=True, eq=False)
class _Found:
    """A column of partitions that follow one another in a chunk, as it was found there."""

    partitions: tuple[int, ...]
    paths: tuple[str, ...]
    column: str
    chunks: tuple[tuple[ColumnChunk, ...], ...]  # of each partition
    runs: np.ndarray
    pages: np.ndarray
    first_byte: int

    @cached_property
    def cut(self) -> dict[int, list[tuple[FoundPiece, ColumnChunk]]]:
        """Its column chunks by themselves, by partition."""
        return _cut(self)


class _Range:
    """Bytes of a file in the page cache, mapped until this is gone; Python's own mappings hold a file open each."""

    def __init__(self, file: OpenFile, low: int, high: int) -> None:
        start = low // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        self.low, self.high, self.size = low, high, high - start
        self._system = _system()
        self.address: int = self._system.mmap(None, self.size, mmap.PROT_READ, mmap.MAP_SHARED, file.handle, start)
        if self.address == _NOWHERE:
            raise OSError(ctypes.get_errno(), "a file cannot be mapped")
        self._system.madvise(self.address, self.size, _POPULATE_READ)  # older systems map pages as they are pinned
        # Seen as writable, which torch wants of what it is given; nobody reads or writes it here.
        whole = (ctypes.c_uint8 * self.size).from_address(self.address)
        self.bytes = np.ctypeslib.as_array(whole)[low - start :]

    def __del__(self) -> None:
        if getattr(self, "address", _NOWHERE) != _NOWHERE:
            self._system.munmap(self.address, self.size)


@cache
def _system() -> ctypes.CDLL:
    """The system's calls for mappings."""
    found = ctypes.CDLL(None, use_errno=True)
    found.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
    ]  # fmt: skip
    found.mmap.restype = ctypes.c_void_p
    found.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    found.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return found


class KeptPages:
    """The pages that a loader has pinned.

    Args:
        pins: pins memory for the device.
        open_file: opens a file, if it is still the one that was read.
        processes: that read shares of the same rows, each of which takes as much of the machine's memory.
    """

    def __init__(self, pins: HostPins, open_file: Open, processes: int = 1) -> None:
        self._open = open_file
        self._noted: set[tuple[int, str]] = set()  # whatever became of it: what was refused once is not asked for again
        self._found: dict[int, dict[str, _Found]] = {}
        self._pieces: dict[tuple[int, str], list[FoundPiece]] = {}
        self._epochs, self._is_full = 0, False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._held = _Held(pins, ROOM, processes)
        weakref.finalize(self, self._held.let_go).atexit = False

    def begin_epoch(self) -> None:
        """From the second one on, what was read is pinned beside the reading: who reads twice will read again."""
        with self._lock:
            self._epochs += 1
            waits = self._epochs > 1 and self._found
            if waits and (self._thread is None or not self._thread.is_alive()):
                self._thread = start_thread("pages", self._pin_all)

    def note(
        self, partitions: Sequence[int], paths: Sequence[str], column: str,
        chunks: Sequence[Sequence[ColumnChunk]], runs: np.ndarray, pages: np.ndarray, first_byte: int,
    ) -> None:  # fmt: skip
        """Remember the runs and pages of a column of partitions that follow one another from `first_byte` on."""
        with self._lock:
            own = tuple(tuple(c) for c in chunks)
            new = {p: c for p, c in zip(partitions, own, strict=True) if (p, column) not in self._noted}
            if self._is_full or not new:
                return
            size = sum(chunk.size for of_partition in new.values() for chunk in of_partition)
            self._is_full = not self._held.take(size + runs.nbytes + pages.nbytes)
            if self._is_full:
                return
            found = _Found(tuple(partitions), tuple(paths), column, own, runs, pages, first_byte)
            for partition in new:
                self._noted.add((partition, column))
                self._found.setdefault(partition, {})[column] = found

    def is_pinned(self, partition: int, column: str) -> bool:
        """Whether nothing needs to be read."""
        return (partition, column) in self._pieces

    def pieces(self, partition: int, column: str) -> list[FoundPiece]:
        """What the device reads of a column that is pinned."""
        return self._pieces[partition, column]

    def wait(self) -> None:
        """Wait until all that was read in former epochs is pinned, or there is no more room."""
        if self._thread is not None:
            self._thread.join()

    def _pin_all(self) -> None:
        while True:
            with self._lock:
                if not self._found:
                    return
                partition = next(iter(self._found))
                columns = self._found.pop(partition)
            with contextlib.suppress(PenstockError, OSError, ValueError):  # of a changed file, say: reading tells
                self._pin(partition, columns)

    def _pin(self, partition: int, columns: dict[str, _Found]) -> None:
        """Pin the pages of a partition's columns, all or none."""
        first = next(iter(columns.values()))
        file = self._open(first.paths[first.partitions.index(partition)])
        cut = {name: found.cut[partition] for name, found in columns.items()}
        spans = [(chunk.offset, chunk.offset + chunk.size) for pieces in cut.values() for _, chunk in pieces]
        ranges = [_Range(file, low, high) for low, high in joined(spans)]
        if not self._held.pin(ranges):
            return
        for name, pieces in cut.items():
            self._pieces[partition, name] = [replace(piece, source=_place(ranges, chunk)) for piece, chunk in pieces]


class _Held:
    """What is pinned, and the room that is taken for it; let go of when the loader is gone."""

    def __init__(self, pins: HostPins, room: PinnedRoom, processes: int) -> None:
        self._pins, self._room, self._processes = pins, room, processes
        self._ranges: list[_Range] = []
        self._taken = 0

    def take(self, size: int) -> bool:
        """Room for some bytes, if there is any."""
        found = self._room.take(size * self._processes)
        self._taken += size * self._processes if found else 0
        return found

    def pin(self, ranges: list[_Range]) -> bool:
        """Pin all of them or none."""
        if not self._room.take(0, len(ranges)):
            return False
        for number, one in enumerate(ranges):
            if not self._pins.pin(one.address, one.size):
                for other in ranges[:number]:
                    self._pins.unpin(other.address, other)
                self._room.give_back(0, len(ranges))
                return False
        self._ranges += ranges
        return True

    def let_go(self) -> None:
        """Undo it."""
        for one in self._ranges:
            self._pins.unpin(one.address, one)
        self._room.give_back(self._taken, len(self._ranges))
        self._ranges.clear()


def _place(ranges: list[_Range], chunk: ColumnChunk) -> PinnedBytes:
    inside = next(r for r in ranges if r.low <= chunk.offset and chunk.offset + chunk.size <= r.high)
    return PinnedBytes(inside, chunk.offset - inside.low, chunk.size)


def _cut(found: _Found) -> dict[int, list[tuple[FoundPiece, ColumnChunk]]]:
    """What was found, a column chunk each; rows, pages and bytes from its first ones on. By partition."""
    chunks = [chunk for of_partition in found.chunks for chunk in of_partition]
    rows, places = (np.cumsum([0, *(getattr(chunk, name) for chunk in chunks)]) for name in ("num_rows", "size"))
    runs, pages = found.runs.copy(), found.pages.copy()
    first_run = np.searchsorted(runs[:, contract.ROW], rows)
    page_of = np.append(runs[:, contract.PAGE], len(pages))
    first_page, at = page_of[first_run], (places + found.first_byte).astype(np.int32)
    num_runs, num_pages = np.diff(first_run), np.diff(first_page)
    runs[:, contract.ROW] -= np.repeat(rows[:-1].astype(np.int32), num_runs)
    runs[:, contract.PAGE] -= np.repeat(first_page[:-1], num_runs)
    runs[:, contract.PLACE] -= np.where(runs[:, contract.COUNT] > 0, np.repeat(at[:-1], num_runs), 0)
    pages = pages[first_page[0] :]
    dictionaries = pages[:, contract.DICTIONARY]
    dictionaries -= np.where(dictionaries >= 0, np.repeat(at[:-1], num_pages), 0)
    pieces = deque(
        FoundPiece(runs[low:high], pages[first : first + count], chunk.num_rows)
        for chunk, low, high, first, count in zip(
            chunks, first_run, first_run[1:], first_page - first_page[0], num_pages, strict=False
        )
    )
    pairs = zip(found.partitions, found.chunks, strict=True)
    return {partition: [(pieces.popleft(), chunk) for chunk in own] for partition, own in pairs}
