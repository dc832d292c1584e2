"""Text is parsed once: whoever reads a part of it first leaves the parsed columns for those who come after.

They stay in memory as long as they take a small share of it, and go to scratch beyond that: a disk may be slower than
parsing is. A spill is a convenience. Where there is no room for it, or while it is being written no room is left, rows
are read from the text again; nothing of it is left behind when the work ends, and what a killed process leaves is swept
by the next one that takes a scratch folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.core.errors import DataError
from penstock.core.runtime.memory import available_memory
from penstock.data.bad_lines import BadLines, collecting, pass_on
from penstock.data.dataset import Dataset
from penstock.data.formats.text import SpooledPartition
from penstock.data.formats.text_bytes import read_bytes
from penstock.data.formats.text_partition import TextPartition
from penstock.data.partition import Partition, WrappedPartition, decoded_bytes, select
from penstock.data.scratch import Scratch
from penstock.engine import Engine
from penstock.engine.local import LocalEngine

_SHARE_OF_FREE = 0.5  # of what scratch has left; the rest belongs to others
_SHARE_OF_MEMORY = 0.125  # of what the machine has left


@dataclass(frozen=True)
class _Held:
    """One partition's columns in memory, and what was wrong with its lines."""

    frame: pl.DataFrame
    bad_lines: BadLines

    @property
    def num_rows(self) -> int:
        return self.frame.height


@dataclass(frozen=True)
class _Kept:
    """One partition's columns in scratch, its rows, and what was wrong with its lines."""

    path: Path
    num_bytes: int
    checksum: int
    num_rows: int
    bad_lines: BadLines


class Spill:
    """The parsed columns of text partitions: an eighth of the free memory, then half of what is free in scratch.

    Raises:
        OSError: there is no scratch to be had.
    """

    def __init__(self) -> None:
        self._scratch: Scratch | None = Scratch()
        self.room = int(shutil.disk_usage(self._scratch.path).free * _SHARE_OF_FREE)
        self.memory = int((available_memory() or 0) * _SHARE_OF_MEMORY)
        self._lock = threading.Lock()
        self._kept: dict[int, _Kept | _Held] = {}

    def find(self, number: int) -> _Kept | _Held | None:
        """What is there of a partition."""
        with self._lock:
            return self._kept.get(number)

    def keep(self, number: int, frame: pl.DataFrame, bad_lines: BadLines) -> None:
        """Put a partition's columns aside, if there is room."""
        size = int(frame.estimated_size())
        with self._lock:
            scratch = self._scratch
            if scratch is None or number in self._kept or size > max(self.room, self.memory):
                return
            if size <= self.memory:
                self.memory -= size
                self._kept[number] = _Held(frame, bad_lines)
                return
            self.room -= size
        path = None
        try:
            path = _new_file(scratch.path)
            frame.write_ipc(path, compression="uncompressed")
            written = path.stat().st_size
            checksum = _checksum(read_bytes(str(path), 0, written))
        except (OSError, DataError, pl.exceptions.PolarsError):  # a full disk, say: the text is still there
            if path is not None:
                _remove(path)
            with self._lock:
                self.room = 0
            return
        with self._lock:
            if self._scratch is not None:
                self._kept[number] = _Kept(path, written, checksum, frame.height, bad_lines)

    def lose(self, number: int) -> None:
        """Forget what cannot be read any more, or is no longer what was put there."""
        with self._lock:
            kept = self._kept.pop(number, None)
        if isinstance(kept, _Kept):
            _remove(kept.path)

    def close(self) -> None:
        """Remove all of it; its partitions are read from the text from now on."""
        with self._lock:
            self._kept.clear()
            self.room = self.memory = 0
            self._scratch = None


def _new_file(folder: Path) -> Path:
    """A file that nobody has made before: what was put in the place of an old one is never written through."""
    handle, name = tempfile.mkstemp(suffix=".arrow", dir=folder)
    os.close(handle)
    return Path(name)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _checksum(content: np.ndarray) -> int:
    from penstock.kernels.cpu_checksum import crc32

    return int(crc32(content, 0, len(content), 0))


@dataclass(frozen=True, eq=False)
class SpilledPartition(WrappedPartition):
    """A text partition some columns of which are kept once they were read."""

    source: Partition
    columns: tuple[str, ...]
    number: int
    spill: Spill = field(repr=False)
    keeps_rows: bool = True
    is_as_read = True

    @property
    def num_rows(self) -> int | None:  # type: ignore[override]
        kept = self.spill.find(self.number)
        return self.source.num_rows if kept is None else kept.num_rows

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        wanted = None if columns is None else list(columns)
        if wanted is None or not set(wanted) <= set(self.columns):
            return self.source.read(wanted)
        kept = self.spill.find(self.number)
        if isinstance(kept, _Held):
            _pass_on(kept.bad_lines)
            return select(kept.frame, wanted, self.path or "the text")
        frame = None if kept is None else self._from_scratch(kept, wanted)
        return self._from_text(wanted) if frame is None else frame

    def _from_scratch(self, kept: _Kept, wanted: list[str]) -> pl.DataFrame | None:
        try:
            # Memory that was used before, in place of pages that the system has to clear.
            content = read_bytes(str(kept.path), 0, kept.num_bytes)
        except DataError:  # somebody has emptied the folder
            content = None
        if content is None or _checksum(content) != kept.checksum:  # Arrow would believe other bytes
            self.spill.lose(self.number)
            return None
        table = pa.ipc.open_file(pa.py_buffer(content)).read_all()
        _pass_on(kept.bad_lines)
        return pl.DataFrame(pl.from_arrow(table.select(wanted), rechunk=False))

    def _from_text(self, wanted: list[str]) -> pl.DataFrame:
        with collecting() as bad:
            frame = self.source.read(self.columns)
        _pass_on(bad)
        self.spill.keep(self.number, frame, bad)
        return select(frame, wanted, self.path or "the text")

    def count(self) -> int:
        known = self.num_rows
        if known is not None:
            return known
        return (
            self._from_text(list(self.columns[:1])).height
            if self.spill.room + self.spill.memory > 0
            else self.source.count()
        )

    def __reduce__(self) -> tuple[object, ...]:
        """To other processes only the text goes: they have no part in what this one keeps."""
        return _itself, (self.source,)


def _pass_on(bad_lines: BadLines) -> None:
    if bad_lines.count:
        pass_on(BadLines(bad_lines.count, bad_lines.first))


def _itself(part: Partition) -> Partition:
    return part


@contextmanager
def spilling(data: Dataset, columns: Sequence[str], engine: Engine) -> Iterator[Dataset]:
    """The data set with its text parsed once, for as long as this lasts; as it is where that is not possible.

    Args:
        data: of text files; any other is left alone.
        columns: that will be read.
        engine: where the work runs; only threads of this process share what was parsed.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "clicks.csv"
    >>> _ = file.write_text("click,user\\n1,7\\n0,8\\n")
    >>> with spilling(Dataset(file), ["click", "user"], LocalEngine(1)) as data:
    ...     parsed = data.to_polars()
    ...     _ = file.write_text("click,user\\n9,9\\n9,9\\n")  # nobody looks at the text again
    ...     data.to_polars().equals(parsed)
    True
    """
    spill = _spill_for(data, columns, engine)
    if spill is None:
        yield data
        return
    kept = tuple(name for name in data.schema.names if name in set(columns))
    parts = [SpilledPartition(part, kept, number, spill) for number, part in enumerate(data.partitions)]
    try:
        yield Dataset.from_partitions(parts, data.schema)
    finally:
        spill.close()


def _spill_for(data: Dataset, columns: Sequence[str], engine: Engine) -> Spill | None:
    """A spill, where the rows are text, threads of this process read it, and there is room for all of it."""
    parts = data.partitions
    dtypes = {name: dtype for name, dtype in data.schema.polars_schema.items() if name in set(columns)}
    is_text = all(isinstance(part, (TextPartition, SpooledPartition)) for part in parts)
    if not is_text or not dtypes or not isinstance(engine, LocalEngine):
        return None
    needed = sum(part.estimated_rows for part in parts) * decoded_bytes(dtypes)
    if any(dtype == pl.String for dtype in dtypes.values()):
        needed += sum(part.num_bytes for part in parts)
    try:
        spill = Spill()
    except OSError:
        return None
    return spill if needed <= spill.room + spill.memory else None
