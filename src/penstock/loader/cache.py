"""Decoded columns kept for later epochs, in memory or as memory-mapped Arrow files."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.core.arrow_arrays import arrow_of, numpy_of
from penstock.core.batch import Ragged
from penstock.core.errors import DataError
from penstock.data.scratch import Scratch

Cached = np.ndarray | Ragged


class Cache:
    """Columns by partition, in memory.

    >>> cache = Cache()
    >>> _ = cache.put(0, "user", np.arange(3))
    >>> cache.get(0, "user"), cache.get(0, "item")
    (array([0, 1, 2]), None)
    """

    def __init__(self) -> None:
        self._columns: dict[tuple[int, str], Cached] = {}

    def get(self, partition: int, column: str) -> Cached | None:
        return self._columns.get((partition, column))

    def put(self, partition: int, column: str, values: Cached) -> Cached:
        """Keep a column and give back what is kept; the arrays belong to the cache from here on."""
        self._columns[partition, column] = values
        return values

    @property
    def num_bytes(self) -> int:
        arrays = [a for c in list(self._columns.values()) for a in (c if isinstance(c, Ragged) else (c,))]
        return sum(a.nbytes for a in arrays)


class DiskCache(Cache):
    """The same, each column an Arrow IPC file that is memory-mapped, so that the system keeps what fits in memory.

    The files lie in a folder of their own under `folder` (the system's temporary one by default) and go with it.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        super().__init__()
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
        try:
            self._scratch = Scratch(None if folder is None else Path(folder))
        except OSError as error:
            raise DataError(f"cannot write a cache under {folder}: {error.strerror}; pass cache_folder=") from error
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()
        self.folder = self._scratch.path

    def put(self, partition: int, column: str, values: Cached) -> Cached:
        with self._lock:
            number = self._numbers.setdefault(column, len(self._numbers))
        path = self.folder / f"{partition}-{number}.arrow"
        parts = [values.offsets, values.values] if isinstance(values, Ragged) else [values]
        try:
            mapped = [_spill(part, path.with_suffix(f".{i}.arrow")) for i, part in enumerate(parts)]
        except OSError as error:
            raise DataError(
                f"cannot write the cache file {path}: {error.strerror}; free space or use cache=None"
            ) from error
        return super().put(partition, column, Ragged(mapped[1], mapped[0]) if len(mapped) == 2 else mapped[0])


def _spill(array: np.ndarray, path: Path) -> np.ndarray:
    """Write an array as Arrow and give it back as a view of the file."""
    batch = pa.record_batch([arrow_of(array)], names=["values"])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pa.memory_map(str(path)) as source:
        column = pa.ipc.open_file(source).get_batch(0).column(0)
    return numpy_of(column)
