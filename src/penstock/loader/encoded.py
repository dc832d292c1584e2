"""Columns of a chunk as their files have them: bytes of parquet pages on their way to a device that decodes them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from penstock.core.runtime.buffers import ALIGNMENT, BufferPool
from penstock.kernels import parquet_runs_contract as contract
from penstock.kernels.cpu_parquet_pages import SLACK

if TYPE_CHECKING:
    from penstock.loader.checks import ColumnCheck
    from penstock.loader.open_file import OpenFile

_MOST_BYTES = 2**31 - 2**28  # of a chunk on the device, less what lies between columns


class PinnedMemory(Protocol):
    """Host memory that a device copies from."""

    bytes: np.ndarray


class PinnedBytes(NamedTuple):
    """Some of it."""

    memory: PinnedMemory
    first: int
    size: int


@dataclass(frozen=True)
class FoundPiece:
    """The runs of rows that follow one another in a column.

    Rows and pages are counted from its own first ones, bytes from the first of `source`; without one, from the first
    byte of the chunk's buffer.
    """

    runs: np.ndarray
    pages: np.ndarray
    num_rows: int
    source: PinnedBytes | None = None


@dataclass(frozen=True)
class FoundColumn:
    """The runs of one column, piece by piece."""

    name: str
    dtype: np.dtype
    pieces: Sequence[FoundPiece]
    limits: tuple[int, int, int]  # CHECK, LOW, HIGH of the contract


@dataclass
class EncodedColumns:
    """A chunk's columns, and those of their bytes that were read in one pinned buffer; a thread fills a column each."""

    buffer: np.ndarray
    found: dict[str, FoundColumn] = field(default_factory=dict)
    used: int = 0
    pinned: int = 0  # bytes that come from elsewhere
    files: set[OpenFile] = field(default_factory=set)  # that these are of
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def acquire(cls, pool: BufferPool, sizes: Sequence[int]) -> EncodedColumns:
        """Room for columns of these many bytes."""
        return cls(pool.acquire(sum(_room(size) for size in sizes) + SLACK))

    def reserve(self, size: int) -> int:
        """The first byte of a column's room."""
        with self._lock:
            at, self.used = self.used, self.used + _room(size)
        return at

    def claim(self, size: int, files: Iterable[OpenFile]) -> bool:
        """Whether pinned bytes of a column still have a place on the device, where they are numbers of 32 bits."""
        with self._lock:
            fits = self.buffer.size + self.pinned + size <= _MOST_BYTES
            self.pinned += size if fits else 0
            self.files.update(files)
        return fits

    def check_files(self) -> None:
        """Refuse files that were changed while their pinned bytes travelled: nobody takes a checksum of these."""
        for file in self.files:
            file.check_unchanged()

    def add(self, column: FoundColumn) -> None:
        """Note a column that the device shall decode."""
        with self._lock:
            self.found[column.name] = column


def _room(size: int) -> int:
    return -(-(size + SLACK) // ALIGNMENT) * ALIGNMENT


def limits_of(check: ColumnCheck, stored: np.dtype) -> tuple[int, int, int] | None:
    """What the device looks at so that values may be delivered; None where only the host can tell."""
    if stored.kind in "iu":
        low, high = check.integer_range(stored)
        limits = np.iinfo(stored)
        if low <= limits.min and high >= limits.max:
            return contract.UNCHECKED, 0, 0
        return contract.IN_RANGE, max(low, int(limits.min)), min(high, int(limits.max))
    narrows = check.delivered is not None and (
        check.delivered.kind != "f" or check.delivered.itemsize < stored.itemsize
    )
    if narrows:
        return None
    return (contract.NOT_NAN if check.is_float_label(stored) else contract.UNCHECKED), 0, 0
