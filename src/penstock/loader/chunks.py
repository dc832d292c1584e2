"""What has to be done for one chunk: read frames, draw the row order, then fill one column after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from penstock.core.batch import BlockSpec, ListSpec
from penstock.kernels.cpu_gather import copy_column, gather_column, gather_lists, list_offsets
from penstock.loader.blocks import BufferPool, Segment, Slab
from penstock.loader.columns import ColumnSource
from penstock.loader.parquet import Workspace
from penstock.loader.plan import Chunk, EpochPlan

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

    `slabs` are those its rows go to, one after the other: a chunk completes the batch that the one before it began, fills
    its own batches, and begins one that the next completes.
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
    ) -> None:
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
                tasks.append(lambda space, p=partition, c=columns: self._read_frame(p, c))
        if self._shuffle_here and (self._plan.shuffle or self._sampling is not None):
            tasks.append(self._draw_order)
        return tasks

    def fill(self) -> list[Task]:
        """The second stage: one task for each column."""
        tasks: list[Task] = []
        for b, spec in enumerate(self._layout.blocks):
            for row, name in enumerate(spec.names):
                tasks.append(lambda space, b=b, row=row, spec=spec, name=name: self._dense(space, b, row, spec, name))
        for lists in self._layout.lists:
            tasks.append(lambda space, spec=lists: self._ragged(space, spec))
        return tasks

    def release(self) -> None:
        """Drop frames, files and buffers once the slab is filled."""
        self._frames.clear()
        self._order = None
        self._targets.clear()
        self._slabs.clear()
        del self._files

    def _read_frame(self, partition: int, columns: list[str]) -> None:
        self._frames[partition] = self._source.read_frame(partition, columns)

    def _draw_order(self, space: Workspace) -> None:
        start = time.perf_counter()
        if self._sampling is None:
            self._order = self._plan.row_order(self.chunk)
        else:
            weights = self._assembled(space, self._sampling.column)
            self._order = self._sampling.draw(weights, self._plan.row_seed(self.chunk))
        self._source.stats.add("shuffle", time.perf_counter() - start)

    def _values(self, space: Workspace, partition: int, name: str, out: np.ndarray | None = None) -> np.ndarray:
        frame = self._frames.get(partition)
        if frame is None and (columns := self._source.frame_columns(partition)) and name in columns:
            frame = self._source.read_frame(partition, [name])  # only the sampling weights come before the frames
        return self._source.dense(partition, name, frame, self._files, space, out)

    def _assembled(self, space: Workspace, name: str) -> np.ndarray:
        """The column over the whole chunk, in stored order, in a buffer of the worker (or where it lies already)."""
        pieces = self.chunk.pieces
        if len(pieces) == 1:
            return self._values(space, pieces[0].partition, name)[pieces[0].start : pieces[0].stop]
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

    def _dense(self, space: Workspace, block: int, row: int, spec: BlockSpec, name: str) -> None:
        if self._order is None:
            self._dense_in_place(space, block, row, spec, name)
            return
        values = self._assembled(space, name)
        start = time.perf_counter()
        width, stride = self._layout.batch_size, self._layout.stride(spec)
        for target in self._targets:
            out = target.slab.arrays[block][row]
            gather_column(values, self._order[target.start : target.stop], out, target.at, width, stride)
        self._source.stats.add("shuffle", time.perf_counter() - start, self.chunk.num_rows * spec.dtype.itemsize)

    def _dense_in_place(self, space: Workspace, block: int, row: int, spec: BlockSpec, name: str) -> None:
        """Unshuffled: decode straight into the slab where a piece is whole and its place contiguous."""
        at = 0
        contiguous = self._layout.stride(spec) == self._layout.batch_size
        for piece in self.chunk.pieces:
            end, out = at + piece.num_rows, None
            if contiguous and piece.num_rows == self._source.rows[piece.partition]:
                inside = [t for t in self._targets if t.start <= at and end <= t.stop]
                out = inside[0].slab.arrays[block][row][inside[0].at + at - inside[0].start :][: end - at] if inside else None
            values = self._values(space, piece.partition, name, out)
            if values is not out:
                self._copy(values[piece.start : piece.stop], at, block, row, spec)
            at = end

    def _copy(self, values: np.ndarray, at: int, block: int, row: int, spec: BlockSpec) -> None:
        """Rows of the chunk from `at` on into the slabs that they belong to."""
        start = time.perf_counter()
        width, stride = self._layout.batch_size, self._layout.stride(spec)
        for target in self._targets:
            low, high = max(target.start, at), min(target.stop, at + len(values))
            if low < high:
                out = target.slab.arrays[block][row]
                copy_column(values[low - at : high - at], out, target.at + low - target.start, width, stride)
        self._source.stats.add("shuffle", time.perf_counter() - start, len(values) * spec.dtype.itemsize)

    def _ragged(self, space: Workspace, spec: ListSpec) -> None:
        """All lists of the chunk in their new order, as segments of the slabs."""
        parts = []
        for piece in self.chunk.pieces:
            values, offsets = self._source.lists(piece.partition, spec.name, self._frames.get(piece.partition))
            parts.append((values, offsets[piece.start : piece.stop + 1]))
        start = time.perf_counter()
        values, offsets = self._ordered(*_concatenate(parts), spec.dtype)
        for target in self._targets:
            target.slab.lists[spec.name].append(Segment(target.at, values, offsets[target.start : target.stop + 1]))
        self._source.stats.add("shuffle", time.perf_counter() - start, values.nbytes)

    def _ordered(self, values: np.ndarray, offsets: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        if self._order is None:
            return values.astype(dtype, copy=False), offsets
        out_offsets = self._pool.acquire(8 * len(offsets)).view(np.int64)
        total = list_offsets(offsets, self._order, out_offsets)
        out = self._pool.acquire(max(total, 1) * dtype.itemsize).view(dtype)[:total]
        gather_lists(values, offsets, self._order, out_offsets, out)
        return out, out_offsets


def _concatenate(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Lists of several pieces end to end, offsets into the joint values."""
    if len(parts) == 1:
        return parts[0]
    offsets, total = [np.zeros(1, np.int64)], 0
    for _, part in parts:
        offsets.append(part[1:] - part[0] + total)
        total = int(offsets[-1][-1]) if len(offsets[-1]) else total
    values = np.concatenate([v[o[0] : o[-1]] for v, o in parts])
    return values, np.concatenate(offsets)
