"""The order of an epoch: a pure function of (seed, epoch, rank, world), computed before a row is read.

Units (row groups, or slices of frames in memory) are permuted over the whole data set and laid end to end; rank `r`
of `w` takes the r-th of w equal stretches of that line, so ranks need not have a unit of their own. A rank's stretch
is cut into chunks of whole units, rows are permuted inside each chunk, and batches are consecutive rows of the
result.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from penstock.core.errors import ParameterError
from penstock.kernels.cpu_gather import mix_seed, permutation

LastBatch = Literal["keep", "drop", "wrap"]
LAST_BATCH = ("keep", "drop", "wrap")


@dataclass(frozen=True)
class Piece:
    """Rows `[start, stop)` of one partition."""

    partition: int
    start: int
    stop: int

    @property
    def num_rows(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Chunk:
    """What is decoded and shuffled together. `first` is the position of its first row in the rank's epoch."""

    index: int
    first: int
    pieces: tuple[Piece, ...]
    num_rows: int

    @property
    def end(self) -> int:
        return self.first + self.num_rows


def units_of(partition_rows: Sequence[int], divisible: Sequence[bool], chunk_rows: int) -> list[Piece]:
    """The pieces that are permuted: whole partitions, cut smaller only where cutting costs nothing.

    >>> units_of([5, 2], [True, False], chunk_rows=3)
    [Piece(partition=0, start=0, stop=3), Piece(partition=0, start=3, stop=5), Piece(partition=1, start=0, stop=2)]
    """
    units = []
    for index, (rows, can_cut) in enumerate(zip(partition_rows, divisible, strict=True)):
        step = chunk_rows if can_cut else max(rows, 1)
        units += [Piece(index, at, min(at + step, rows)) for at in range(0, rows, step)]
    return units


@dataclass(frozen=True)
class EpochPlan:
    """One rank's epoch.

    `last_batch` says what happens to the rows that do not fill a batch on every rank:
    "keep" delivers each row exactly once over all ranks, the last batch being shorter;
    "drop" leaves them out, so that every batch is full;
    "wrap" fills up with rows from the start of the epoch's line, so that every batch is full and no row is missing.
    In all three every rank has the same number of batches.

    Args:
        batch_size: rows of a full batch.
        num_batches: of every rank.
        num_rows: of this rank.
        chunks: what is decoded together, in order.
        seed: of the orders.
        epoch: its number.
        rank: of this reader.
        world: how many readers there are.
        shuffle: whether rows are permuted.

    >>> plan = EpochPlan.build([Piece(0, 0, 5), Piece(1, 0, 5)], batch_size=2, chunk_rows=4, rank=1, world=2)
    >>> plan.num_rows, plan.num_batches, [plan.bounds(b) for b in range(plan.num_batches)]
    (5, 3, [(0, 2), (2, 4), (4, 5)])
    """

    batch_size: int
    num_batches: int
    num_rows: int
    chunks: tuple[Chunk, ...] = field(repr=False)
    seed: int
    epoch: int
    rank: int
    world: int
    shuffle: bool

    @classmethod
    def build(
        cls,
        units: Sequence[Piece],
        *,
        batch_size: int,
        chunk_rows: int,
        shuffle: bool = False,
        seed: int = 0,
        epoch: int = 0,
        rank: int = 0,
        world: int = 1,
        last_batch: LastBatch = "keep",
    ) -> EpochPlan:
        """Plan an epoch.

        Args:
            units: the pieces that are permuted.
            batch_size: rows of a full batch.
            chunk_rows: rows that are decoded together.
            shuffle: whether pieces and rows are permuted.
            seed: of the orders.
            epoch: its number.
            rank: of this reader.
            world: how many readers there are.
            last_batch: what becomes of rows that fill no batch.

        Returns:
            The plan of one rank.
        """
        total = sum(u.num_rows for u in units)
        line = list(units)
        if shuffle:
            line = [line[i] for i in permutation(len(line), mix_seed(seed, epoch, -1))]
        start, stop, num_batches = _stretch(total, batch_size, rank, world, last_batch)
        pieces = _cut(line, start, stop)
        chunks = _group(pieces, max(chunk_rows, batch_size))
        return cls(batch_size, num_batches, stop - start, chunks, seed, epoch, rank, world, shuffle)

    def bounds(self, batch: int) -> tuple[int, int]:
        """Where batch number `batch` begins and ends in the rank's epoch.

        Args:
            batch: its number.

        Returns:
            The first row and the one behind the last.
        """
        start = batch * self.batch_size
        if batch < self.num_batches - 1:
            return start, start + self.batch_size - (self._borrows and batch == self.num_batches - 2)
        return start - self._borrows, self.num_rows

    @cached_property
    def _borrows(self) -> int:
        """1 where the other ranks have one row more, which makes a batch, and this one has to stretch to as many."""
        return int(self.num_batches > 1 and self.num_rows == (self.num_batches - 1) * self.batch_size)

    def chunk_of(self, row: int) -> int:
        """The chunk that holds this row of the epoch.

        Args:
            row: its number in the rank's epoch.

        Returns:
            The number of the chunk.
        """
        return max(0, bisect_right(self._firsts, row) - 1)

    @cached_property
    def _firsts(self) -> list[int]:
        return [c.first for c in self.chunks]

    def slab_rows(self, chunk: Chunk) -> tuple[int, int]:
        """`[start, stop)` of the epoch's rows that are in batches made of this chunk alone.

        Args:
            chunk: one of `chunks`.

        Returns:
            The first row and the one behind the last.
        """
        start = -(-chunk.first // self.batch_size) * self.batch_size
        stop = chunk.end // self.batch_size * self.batch_size if chunk.end < self.num_rows else self.num_rows
        return min(start, stop), stop

    def bridge_rows(self, chunk: Chunk) -> tuple[int, int] | None:
        """`[start, stop)` of the batch that the chunk before began and this one completes; None if there is none.

        Args:
            chunk: one of `chunks`.

        Returns:
            The first row and the one behind the last, or None.
        """
        start = chunk.first // self.batch_size * self.batch_size
        if start == chunk.first:
            return None
        return start, min(start + self.batch_size, self.num_rows)

    def row_seed(self, chunk: Chunk) -> int:
        """The seed of the row permutation of one chunk; no two chunks of any rank share it.

        Args:
            chunk: one of `chunks`.

        Returns:
            64 bits.
        """
        return mix_seed(self.seed, self.epoch, self.rank * 0x1_0000_0000 + chunk.index, self.world)

    def row_order(self, chunk: Chunk, out: np.ndarray | None = None) -> np.ndarray | None:
        """The order of the rows inside a chunk (uint32), or None where they stay as they are.

        Args:
            chunk: one of `chunks`.
            out: memory for it; by default it gets its own.

        Returns:
            Row numbers, or None.
        """
        return permutation(chunk.num_rows, self.row_seed(chunk), out) if self.shuffle else None


def _stretch(total: int, batch_size: int, rank: int, world: int, last_batch: str) -> tuple[int, int, int]:
    """`(start, stop, number of batches)` of a rank on the line of all rows."""
    if not 0 <= rank < world:
        raise ParameterError(f"rank must be from 0 to world - 1 = {world - 1}, got {rank}")
    if last_batch == "drop":
        num_batches = total // world // batch_size
        return rank * num_batches * batch_size, (rank + 1) * num_batches * batch_size, num_batches
    num_batches = -(-total // (world * batch_size))
    if last_batch == "wrap":
        return rank * num_batches * batch_size, (rank + 1) * num_batches * batch_size, num_batches
    each, extra = divmod(total, world)
    if each < num_batches:
        raise ParameterError(
            f"{total} rows cannot give each of {world} ranks {num_batches} batches; use fewer ranks, "
            f"last_batch='wrap' to repeat rows, or last_batch='drop'"
        )
    start = rank * each + min(rank, extra)
    return start, start + each + (rank < extra), num_batches


def _cut(line: Sequence[Piece], start: int, stop: int) -> list[Piece]:
    """Rows `[start, stop)` of the line, which repeats itself for ever."""
    pieces: list[Piece] = []
    total = sum(p.num_rows for p in line)
    at = start // total * total if total else stop
    while at < stop:
        for piece in line:
            low, high = max(start - at, 0), min(stop - at, piece.num_rows)
            if low < high:
                pieces.append(Piece(piece.partition, piece.start + low, piece.start + high))
            at += piece.num_rows
            if at >= stop:
                break
    return pieces


def _group(pieces: Sequence[Piece], chunk_rows: int) -> tuple[Chunk, ...]:
    """Chunks of whole pieces, at least `chunk_rows` rows each except the last."""
    chunks: list[Chunk] = []
    first, rows, group = 0, 0, []
    for piece in pieces:
        group.append(piece)
        rows += piece.num_rows
        if rows >= chunk_rows:
            chunks.append(Chunk(len(chunks), first, tuple(group), rows))
            first, rows, group = first + rows, 0, []
    if group:
        chunks.append(Chunk(len(chunks), first, tuple(group), rows))
    return tuple(chunks)
