"""Cached rows that lie together: what a shuffled epoch reads of a row are a line or two, whatever its columns."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.core.batch import BlockSpec
from penstock.core.runtime.buffers import ALIGNMENT
from penstock.kernels.cpu_records import SPARE_BYTES, WORD, blocks_of, gather_records
from penstock.loader.blocks import Slab, round_up
from penstock.loader.cache import Cache
from penstock.loader.plan import Piece

FEWEST = 4  # columns, below which a row is not worth it
STRETCH = 32_768  # rows that a task brings to a slab


def record_dtype(columns: Mapping[str, np.dtype]) -> np.dtype:
    """Columns side by side, wide ones first, so that each is aligned; filled up to whole cache lines if that is near.

    >>> record_dtype({"a": np.dtype("int8"), "b": np.dtype("float32"), "c": np.dtype("int16")}).fields["a"]
    (dtype('int8'), 6)
    """
    names = sorted(columns, key=lambda name: -columns[name].itemsize)
    ends = np.cumsum([columns[name].itemsize for name in names])
    size, lines = round_up(int(ends[-1]), WORD), round_up(int(ends[-1]), ALIGNMENT)
    formats = [columns[name] for name in names]
    offsets = [int(end) - kind.itemsize for end, kind in zip(ends, formats, strict=True)]
    itemsize = lines if lines - size <= size // 8 else size
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": itemsize})


class Records:
    """The cached columns of partitions, moved together when first asked for.

    Args:
        cache: where columns are, and are left as views of their records.
        names: of the columns without lists.
    """

    def __init__(self, cache: Cache, names: Sequence[str]) -> None:
        self._cache, self._names = cache, list(names)
        self._rows: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()

    def join(self, partition: int) -> np.ndarray | None:
        """The records of a partition; None while not all of its columns are in the cache."""
        with self._lock:
            found = self._rows.get(partition)
            if found is None and len(self._names) >= FEWEST:
                found = self._joined(partition)
            return found

    def _joined(self, partition: int) -> np.ndarray | None:
        columns = {name: self._cache.get(partition, name) for name in self._names}
        arrays = {name: column for name, column in columns.items() if isinstance(column, np.ndarray)}
        if len(arrays) < len(columns) or any(array.dtype.kind not in "biuf" for array in arrays.values()):
            return None
        kind, rows = record_dtype({name: array.dtype for name, array in arrays.items()}), len(arrays[self._names[0]])
        memory = np.empty(rows * kind.itemsize + SPARE_BYTES + ALIGNMENT, np.uint8)
        skip = -memory.ctypes.data % ALIGNMENT
        records: np.ndarray = memory[skip : skip + rows * kind.itemsize].view(kind)
        for name, array in arrays.items():
            records[name] = array
            self._cache.put(partition, name, records[name])
        self._rows[partition] = records
        return records


@dataclass(frozen=True)
class ChunkRecords:
    """The records of a chunk's pieces, one behind the other."""

    pieces: list[np.ndarray]

    @classmethod
    def of(cls, records: Records, pieces: Sequence[Piece]) -> ChunkRecords | None:
        """Those of a chunk; None where some are missing or of other dtypes."""
        found = [records.join(piece.partition) for piece in pieces]
        if any(one is None or one.dtype != found[0].dtype for one in found):  # type: ignore[union-attr]
            return None
        return cls([one[p.start : p.stop] for one, p in zip(found, pieces, strict=True) if one is not None])

    def holds(self, name: str, delivered: np.dtype) -> bool:
        """Whether a column can be taken from here: as it is, or as another integer."""
        stored = self.pieces[0].dtype[name]
        return bool(stored == delivered or (stored.kind in "iu" and delivered.kind in "iu"))

    def columns(self, slab: Slab, taken: Sequence[tuple[int, int, BlockSpec, str]]) -> np.ndarray:
        """What the kernel is told of columns `(block, row, spec, name)` on their way to a slab."""
        kind, table = self.pieces[0].dtype, list[tuple[int, ...]]()
        for block, row, spec, name in taken:
            stored, place = kind.fields[name][:2]  # type: ignore[index]
            address, stride = slab.arrays[block][row].ctypes.data, slab.layout.stride(spec)
            table.append((place, stored.itemsize, spec.dtype.itemsize, int(stored.kind == "i"), address, stride))
        return np.array(table, np.int64)

    def gather(self, order: np.ndarray, columns: np.ndarray, at: int, batch_size: int) -> None:
        """Rows of the chunk in this order to the slab's rows from `at` on."""
        starts = np.cumsum([0, *map(len, self.pieces)])
        addresses = np.array([piece.ctypes.data for piece in self.pieces], np.uint64)
        size = self.pieces[0].itemsize
        gather_records(addresses, starts, blocks_of(starts), size, order, columns, at, batch_size)


def stretches(at: int, rows: int, batch_size: int) -> list[tuple[int, int]]:
    """Rows `[0, rows)` that go to places from `at` on, cut where a batch begins or so many rows into it.

    >>> stretches(90_000, 100_000, 100_000)
    [(0, 8304), (8304, 10000), (10000, 42768), (42768, 75536), (75536, 100000)]
    """
    step = STRETCH if batch_size >= STRETCH else STRETCH // batch_size * batch_size
    found, low = [], 0
    while low < rows:
        place = (at + low) % batch_size if batch_size >= STRETCH else (at + low) % step
        high = min(low + step - place % step, rows)
        if batch_size >= STRETCH:
            high = min(high, low + batch_size - place)
        found.append((low, high))
        low = high
    return found
