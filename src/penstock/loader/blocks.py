"""The memory that batches are cut from: column-major blocks, in buffers that are used again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.core.batch import Batch, BlockSpec, ListSpec, Ragged
from penstock.core.runtime.buffers import ALIGNMENT, BufferPool
from penstock.core.schema import Role, Schema
from penstock.loader.encoded import EncodedColumns


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


@dataclass(frozen=True)
class SlabLayout:
    """Which columns lie in which block, and how batches are spaced in it."""

    blocks: tuple[BlockSpec, ...]
    lists: tuple[ListSpec, ...]
    batch_size: int
    padded: bool = True

    @classmethod
    def of(cls, schema: Schema, dtypes: dict[str, np.dtype], batch_size: int, padded: bool = True) -> SlabLayout:
        """Dense columns grouped by role and dtype, in the schema's order."""
        groups: dict[tuple[Role, np.dtype], list[str]] = {}
        for column in schema:
            if not column.is_list:
                groups.setdefault((column.role, dtypes[column.name]), []).append(column.name)
        blocks = tuple(BlockSpec(role, dtype, tuple(names)) for (role, dtype), names in groups.items())
        lists = tuple(ListSpec(c.name, c.role, dtypes[c.name]) for c in schema if c.is_list)
        return cls(blocks, lists, batch_size, padded)

    def stride(self, spec: BlockSpec) -> int:
        """Places from one batch to the next in a block, so that each batch begins aligned."""
        if not self.padded:
            return self.batch_size
        return round_up(self.batch_size * spec.dtype.itemsize, ALIGNMENT) // spec.dtype.itemsize

    def places(self, spec: BlockSpec, rows: int) -> int:
        """Length of a block's rows (a multiple of the alignment) that hold `rows` rows of batches."""
        batches, rest = divmod(rows, self.batch_size)
        return round_up(batches * self.stride(spec) + rest, ALIGNMENT)

    def row_bytes(self) -> int:
        """Bytes of one row: exact for dense columns, eight values for each list."""
        dense = sum(len(s.names) * s.dtype.itemsize for s in self.blocks)
        return dense + sum(8 + 8 * s.dtype.itemsize for s in self.lists)


@dataclass(slots=True)
class Segment:
    """Lists of consecutive rows of a slab: those from `start` on."""

    start: int
    values: np.ndarray
    offsets: np.ndarray

    @property
    def num_rows(self) -> int:
        return len(self.offsets) - 1

    def cut(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """`(values, offsets from 0)` of the slab's rows `[start, stop)`, as far as they are here."""
        low, high = max(start - self.start, 0), min(stop - self.start, self.num_rows)
        offsets = self.offsets[low : high + 1]
        base = offsets[0]
        return self.values[base : offsets[-1]], offsets - base


class Slab:
    """Whole batches in blocks `(columns, places)`, in a buffer that has room for `capacity` rows.

    `first` is the position of its first row in the epoch. For a device that shuffles by itself `order` is the order of
    the rows; for one that decodes, `encoded` has bytes in the place of values.
    """

    def __init__(self, layout: SlabLayout, first: int, num_rows: int, pool: BufferPool, capacity: int = 0) -> None:
        self.layout, self.first, self.num_rows = layout, first, num_rows
        self.lists: dict[str, list[Segment]] = {spec.name: [] for spec in layout.lists}
        self.order: np.ndarray | None = None
        self.encoded: EncodedColumns | None = None
        self._pool, self._capacity = pool, capacity
        self._arrays: list[np.ndarray] | None = None
        self._lock = threading.Lock()

    @property
    def arrays(self) -> list[np.ndarray]:
        """The blocks. Memory is taken when they are first asked for: of pages that a device decodes nobody asks."""
        with self._lock:
            if self._arrays is None:
                self._arrays = self._acquired()
            return self._arrays

    def _acquired(self) -> list[np.ndarray]:
        layout = self.layout
        shapes = [(len(s.names), layout.places(s, self.num_rows), s.dtype) for s in layout.blocks]
        sizes = [round_up(n * places * dtype.itemsize, ALIGNMENT) for n, places, dtype in shapes]
        room = sum(
            len(s.names) * layout.places(s, self._capacity) * s.dtype.itemsize + ALIGNMENT for s in layout.blocks
        )
        buffer = self._pool.acquire(max(sum(sizes), room))
        arrays, at = [], 0
        for (columns, places, dtype), size in zip(shapes, sizes, strict=True):
            used = columns * places * dtype.itemsize
            arrays.append(buffer[at : at + used].view(dtype).reshape(columns, places))
            at += size
        return arrays

    def batch(self, start: int, stop: int) -> Batch:
        """Rows `[start, stop)` of the epoch, which lie in one batch of this slab."""
        local, width = start - self.first, self.layout.batch_size
        number, rest = divmod(local, width)
        blocks = []
        for spec, array in zip(self.layout.blocks, self.arrays, strict=True):
            place = number * self.layout.stride(spec) + rest
            blocks.append(array[:, place : place + stop - start])
        ragged = {name: _join(self.lists[name], local, local + stop - start) for name in self.lists}
        return Batch(self.layout.blocks, blocks, ragged, stop - start)


def _join(segments: Sequence[Segment], start: int, stop: int) -> Ragged:
    """The lists of rows `[start, stop)`, which may come from two chunks."""
    inside = [s for s in segments if s.start < stop and s.start + s.num_rows > start]
    inside.sort(key=lambda segment: segment.start)  # chunks are finished in any order
    parts = [s.cut(start, stop) for s in inside]
    if len(parts) == 1:
        return Ragged(*parts[0])
    offsets, total = [np.zeros(1, np.int64)], 0
    for values, part in parts:
        offsets.append(part[1:] + total)
        total += len(values)
    return Ragged(np.concatenate([values for values, _ in parts]), np.concatenate(offsets))
