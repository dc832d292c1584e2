"""What has to be done for one chunk: read frames, draw the row order, then fill one column after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from penstock.core.batch import BlockSpec, ListSpec, Ragged
from penstock.core.runtime.buffers import BufferPool
from penstock.kernels.cpu_gather import (
    LIST_SLACK,
    NO_CODES,
    as_bits,
    copy_column,
    gather_codes,
    gather_column,
    gather_lists,
    list_offsets,
)
from penstock.loader.blocks import Segment, Slab
from penstock.loader.columns import ColumnSource
from penstock.loader.encoded import EncodedColumns
from penstock.loader.parquet import DecodedColumn, Workspace
from penstock.loader.plan import Chunk, EpochPlan, Piece
from penstock.loader.records import ChunkRecords, stretches

if TYPE_CHECKING:
    from penstock.loader.sampling import WeightedSampling

Task = Callable[[Workspace], None]


@dataclass(frozen=True)
class _Target:
    """Rows `[start, stop)` of the chunk go to the slab's rows from `at` on."""

    slab: Slab
    start: int
    stop: int
    at: int

    @classmethod
    def of(cls, chunk: Chunk, slab: Slab) -> _Target:
        start, stop = max(chunk.first, slab.first), min(chunk.end, slab.first + slab.num_rows)
        return cls(slab, start - chunk.first, stop - chunk.first, start - slab.first)


class ChunkJob:
    """The work on one chunk, in two stages of tasks that run in any order on any thread.

    `slabs` are those its rows go to, one after the other: a chunk completes the batch that the one before it began,
    fills its own batches, and begins one that the next completes.
    """

    def __init__(
        self,
        source: ColumnSource,
        plan: EpochPlan,
        chunk: Chunk,
        slabs: list[Slab],
        pool: BufferPool,
        shuffle_here: bool = True,
        sampling: WeightedSampling | None = None,
        device_decodes: bool = False,
    ) -> None:
        self._device_decodes = device_decodes
        self.chunk, self._slabs, self._layout = chunk, slabs, slabs[0].layout
        self._source, self._plan, self._pool, self._sampling = source, plan, pool, sampling
        self._frames: dict[int, pl.DataFrame] = {}
        self._files = source.open_files()
        self._order: np.ndarray | None = None
        self._shuffle_here = shuffle_here
        self._targets = [t for t in (_Target.of(chunk, slab) for slab in slabs) if t.start < t.stop]

    def prepare(self) -> list[Task]:
        """The first stage: frames and the row order."""
        tasks: list[Task] = []
        for partition in sorted({p.partition for p in self.chunk.pieces}):
            columns = self._source.frame_columns(partition)
            if columns:
                tasks.append(partial(self._read_frame, partition, columns))
            if self._shuffle_here and self._plan.shuffle:
                tasks.append(partial(self._join_columns, partition))
            if self._source.is_asked_for(partition):
                tasks.append(partial(self._fetch, partition))
        if self._shuffle_here and (self._plan.shuffle or self._sampling is not None):
            tasks.append(self._draw_order)
        elif self._plan.shuffle:
            tasks.append(self._order_for_device)
        if self._device_decodes:
            self._make_room_for_pages()
        return tasks

    def _make_room_for_pages(self) -> None:
        """For the columns that a device can decode from their files' bytes."""
        if not (partitions := self._whole_partitions(self.chunk.pieces)):
            return
        names = [name for spec in self._layout.blocks for name in spec.names]
        sizes = [
            size for name in names if (size := self._source.for_device.sizes_to_read(partitions, name)) is not None
        ]
        if sizes:
            self._slabs[0].encoded = EncodedColumns.acquire(self._pool, [size for own in sizes for size in own])

    def fill(self) -> list[Task]:
        """The second stage: a task for each column, the long ones first, or for rows that lie together."""
        tasks: list[Task] = [partial(self._ragged, lists) for lists in self._layout.lists]
        blocks = enumerate(self._layout.blocks)
        columns = [(b, row, spec, name) for b, spec in blocks for row, name in enumerate(spec.names)]
        together: list[tuple[int, int, BlockSpec, str]] = []
        if self._order is not None and (records := self._source.chunk_records(self.chunk.pieces)) is not None:
            together = [column for column in columns if records.holds(column[3], column[2].dtype)]
            tasks += self._by_rows(records, together)
        apart = {name for *_, name in columns} - {name for *_, name in together}
        return tasks + [partial(self._dense, *column) for column in columns if column[3] in apart]

    def _by_rows(self, records: ChunkRecords, columns: list[tuple[int, int, BlockSpec, str]]) -> list[Task]:
        """Tasks that bring all these columns of some rows each."""
        tasks: list[Task] = []
        for target in self._targets if columns else ():
            table = records.columns(target.slab, columns)
            for low, high in stretches(target.at, target.stop - target.start, self._layout.batch_size):
                tasks.append(partial(self._rows, records, table, target, low, high))
        return tasks

    def _rows(
        self, records: ChunkRecords, table: np.ndarray, target: _Target, low: int, high: int, space: Workspace
    ) -> None:
        assert self._order is not None
        start = time.perf_counter()
        order = self._order[target.start + low : target.start + high]
        records.gather(order, table, target.at + low, self._layout.batch_size)
        self._source.stats.add("shuffle", time.perf_counter() - start, (high - low) * self._layout.row_bytes())

    def _found(self, space: Workspace, name: str) -> bool:
        """Whether a device gets the column as its files have it."""
        encoded = self._slabs[0].encoded
        if encoded is None:
            return False
        partitions = [piece.partition for piece in self.chunk.pieces]
        return self._source.for_device.find_at_once(partitions, name, self._files, space, encoded)

    def release(self) -> None:
        """Drop frames, files and buffers once the slab is filled."""
        self._frames.clear()
        self._order = None
        self._targets.clear()
        self._slabs.clear()
        del self._files

    def _join_columns(self, partition: int, space: Workspace) -> None:
        self._source.join_columns(partition)

    def _fetch(self, partition: int, space: Workspace) -> None:
        self._source.fetch(partition, self._files)

    def _read_frame(self, partition: int, columns: list[str], space: Workspace) -> None:
        self._frames[partition] = self._source.read_frame(partition, columns)

    def _draw_order(self, space: Workspace) -> None:
        start = time.perf_counter()
        if self._sampling is None:
            self._order = self._drawn()
        else:
            weights = self._assembled(space, self._sampling.column)
            self._order = self._sampling.draw(weights, self._plan.row_seed(self.chunk))
        self._source.stats.add("shuffle", time.perf_counter() - start)

    def _order_for_device(self, space: Workspace) -> None:
        start = time.perf_counter()
        self._slabs[0].order = order = self._drawn()
        self._source.stats.add("shuffle", time.perf_counter() - start, order.nbytes)

    def _drawn(self) -> np.ndarray:
        """The order of the chunk's rows, in memory that is used again."""
        memory = self._pool.acquire(4 * self.chunk.num_rows).view(np.uint32)
        self._plan.row_order(self.chunk, memory)
        return memory

    def _values(self, space: Workspace, partition: int, name: str, out: np.ndarray | None = None) -> np.ndarray:
        frame = self._frames.get(partition)
        if frame is None and (columns := self._source.frame_columns(partition)) and name in columns:
            frame = self._source.read_frame(partition, [name])  # only the sampling weights come before the frames
        return self._source.dense(partition, name, frame, self._files, space, out)

    def _assembled(self, space: Workspace, name: str) -> np.ndarray:
        """The column over the whole chunk, in stored order, in a buffer of the worker (or where it lies already)."""
        pieces = self.chunk.pieces
        if len(pieces) == 1:
            values = self._values(space, pieces[0].partition, name)[pieces[0].start : pieces[0].stop]
            if space.owns(values):
                return values
        # Copying in order first is cheaper than reading at random what is not in the cache.
        first = self._source.dtype(pieces[0].partition, name, self._frames.get(pieces[0].partition))
        column = space.array("joined", self.chunk.num_rows, first)
        if self._at_once(space, name, pieces, column):
            return column
        joined, at = None, 0
        for piece in pieces:
            dtype = self._source.dtype(piece.partition, name, self._frames.get(piece.partition))
            if joined is None:
                joined = space.array("joined", self.chunk.num_rows, dtype)
            elif dtype != joined.dtype:
                joined = joined.astype(np.result_type(joined.dtype, dtype))
            target = joined[at : at + piece.num_rows]
            whole = piece.start == 0 and piece.num_rows == self._source.rows[piece.partition]
            values = self._values(space, piece.partition, name, target if whole else None)
            if not np.shares_memory(values, target):
                np.copyto(target, values[piece.start : piece.stop])
            at += piece.num_rows
        assert joined is not None
        return joined

    def _dense(self, block: int, row: int, spec: BlockSpec, name: str, space: Workspace) -> None:
        if self._found(space, name):
            return
        if self._order is None:
            self._dense_in_place(space, block, row, spec, name)
            return
        values, codes = self._to_shuffle(space, name)
        start = time.perf_counter()
        width, stride = self._layout.batch_size, self._layout.stride(spec)
        for target in self._targets:
            source, out = as_bits(values, target.slab.arrays[block][row])
            place = self._order[target.start : target.stop], out, target.at, width, stride
            if len(codes):
                gather_codes(source, codes, *place)
            else:
                gather_column(source, *place)
        self._source.stats.add("shuffle", time.perf_counter() - start, self.chunk.num_rows * spec.dtype.itemsize)

    def _to_shuffle(self, space: Workspace, name: str) -> DecodedColumn:
        """The column over the whole chunk in stored order, as codes where that is less to read at random."""
        decoded = None
        if self._source.cache is None and (whole := self._whole_partitions(self.chunk.pieces)):
            stored = self._source.dtype(whole[0], name, self._frames.get(whole[0]))
            room = space.array("joined", self.chunk.num_rows, stored)
            decoded = self._source.decode_at_once(whole, name, self._files, space, room, may_be_codes=True)
        return decoded or DecodedColumn(self._assembled(space, name), NO_CODES)

    def _whole_partitions(self, pieces: Sequence[Piece]) -> list[int]:
        """The partitions of these pieces; none where one has not all its rows."""
        is_cut = any(p.start or p.num_rows != self._source.rows[p.partition] for p in pieces)
        return [] if is_cut else [p.partition for p in pieces]

    def _at_once(self, space: Workspace, name: str, pieces: Sequence[Piece], out: np.ndarray) -> bool:
        """The pieces' column into `out` by one call, which is what lets many threads work at the same time."""
        start = time.perf_counter()
        if self._source.cached_at_once([(p.partition, p.start, p.stop) for p in pieces], name, out):
            self._source.stats.add("shuffle", time.perf_counter() - start, out.nbytes)
            return True
        whole = self._whole_partitions(pieces)
        return bool(whole) and self._source.decode_at_once(whole, name, self._files, space, out) is not None

    def _dense_in_place(self, space: Workspace, block: int, row: int, spec: BlockSpec, name: str) -> None:
        """Unshuffled: decode straight into the slab where pieces are whole and their place contiguous."""
        for _, stretch in groupby(self._placed(spec), key=lambda placed: id(placed[0])):
            found = list(stretch)
            (target, _, start), pieces = found[0], [piece for _, piece, _ in found]
            slab = None if target is None else target.slab.arrays[block][row][target.at + start - target.start :]
            stored = self._source.dtype(pieces[0].partition, name, self._frames.get(pieces[0].partition))
            rows = sum(piece.num_rows for piece in pieces)
            is_direct = slab is not None and stored == spec.dtype
            out = slab[:rows] if is_direct and slab is not None else space.array("joined", rows, stored)
            if self._at_once(space, name, pieces, out):
                if not is_direct:
                    self._copy(out, start, block, row, spec)
                continue
            for _, piece, at in found:
                place = None if slab is None else slab[at - start :][: piece.num_rows]
                values = self._values(space, piece.partition, name, place)
                if values is not place:
                    self._copy(values[piece.start : piece.stop], at, block, row, spec)

    def _placed(self, spec: BlockSpec) -> Iterator[tuple[_Target | None, Piece, int]]:
        """Each piece with its first row in the chunk and the target it may be decoded into: whole, and without gaps."""
        at = 0
        contiguous = self._layout.stride(spec) == self._layout.batch_size
        for piece in self.chunk.pieces:
            end = at + piece.num_rows
            may_go = contiguous and piece.num_rows == self._source.rows[piece.partition]
            inside = (t for t in self._targets if may_go and t.start <= at and end <= t.stop)
            yield next(inside, None), piece, at
            at = end

    def _copy(self, values: np.ndarray, at: int, block: int, row: int, spec: BlockSpec) -> None:
        """Rows of the chunk from `at` on into the slabs that they belong to."""
        start = time.perf_counter()
        width, stride = self._layout.batch_size, self._layout.stride(spec)
        for target in self._targets:
            low, high = max(target.start, at), min(target.stop, at + len(values))
            if low < high:
                source, out = as_bits(values[low - at : high - at], target.slab.arrays[block][row])
                copy_column(source, out, target.at + low - target.start, width, stride)
        self._source.stats.add("shuffle", time.perf_counter() - start, len(values) * spec.dtype.itemsize)

    def _ragged(self, spec: ListSpec, space: Workspace) -> None:
        """All lists of the chunk in their new order, as segments of the slabs."""
        values, offsets = self._assembled_lists(spec, space)
        start = time.perf_counter()
        if self._order is not None:
            values, offsets = self._ordered(values, offsets, spec.dtype)
        elif values.dtype != spec.dtype:
            values = values.astype(spec.dtype)
        for target in self._targets:
            target.slab.lists[spec.name].append(Segment(target.at, values, offsets[target.start : target.stop + 1]))
        self._source.stats.add("shuffle", time.perf_counter() - start, values.nbytes)

    def _assembled_lists(self, spec: ListSpec, space: Workspace) -> Ragged:
        """The lists of the chunk in stored order: in a worker's buffer before a shuffle, else in one to keep."""
        pieces, rows = self.chunk.pieces, self.chunk.num_rows
        source, name = self._source, spec.name
        dtype = np.dtype(source.schema[name].dtype)
        room = sum(source.num_values(p.partition, name, self._frames.get(p.partition)) for p in pieces)
        values, offsets = self._list_buffers(space, room, rows, dtype)
        offsets[0] = at = row = 0
        for piece in pieces:
            whole = piece.num_rows == source.rows[piece.partition]
            size = source.num_values(piece.partition, name, self._frames.get(piece.partition))
            if whole:
                out = Ragged(values[at : at + size], offsets[row : row + piece.num_rows + 1])
            else:
                out = Ragged(
                    space.array("piece_values", size, dtype),
                    space.array("piece_offsets", source.rows[piece.partition] + 1, np.dtype(np.int64)),
                )
            found = source.lists(piece.partition, name, self._frames.get(piece.partition), self._files, space, out)
            low, high = int(found.offsets[piece.start]), int(found.offsets[piece.stop])
            if not np.shares_memory(found.values, values):
                values[at : at + high - low] = found.values[low:high]
            # In place this moves offsets that begin at 0 to where the values begin.
            np.add(found.offsets[piece.start : piece.stop + 1], at - low, out=offsets[row : row + piece.num_rows + 1])
            at, row = at + high - low, row + piece.num_rows
        return Ragged(values[:at], offsets)

    def _list_buffers(self, space: Workspace, room: int, rows: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        int64 = np.dtype(np.int64)
        if self._order is not None:
            return space.array("list_values", room, dtype), space.array("list_offsets", rows + 1, int64)
        values = self._pool.acquire(max(room, 1) * dtype.itemsize).view(dtype)[:room]
        return values, self._pool.acquire(8 * (rows + 1)).view(int64)

    def _ordered(self, values: np.ndarray, offsets: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        assert self._order is not None
        rows = len(self._order)
        starts = np.empty(0, np.int64) if not rows else self._pool.acquire(8 * rows).view(np.int64)
        out_offsets = self._pool.acquire(8 * (rows + 1)).view(np.int64)
        total = list_offsets(offsets, self._order, starts, out_offsets)
        out = self._pool.acquire((total + LIST_SLACK) * dtype.itemsize).view(dtype)
        source, target = as_bits(values, out)
        gather_lists(source, starts, out_offsets, target)
        return out[:total], out_offsets
