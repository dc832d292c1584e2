"""One table: the rows of one group of slots, their optimizer state, and the index that finds them.

The kernels read the table through its header (see `penstock.kernels.cpu_embedding_index`); this class owns the memory
behind it: segments of the index, chunks of rows, the list of free rows. Memory is added in pieces, so nothing is ever
copied to grow except one segment of the index at a time.
"""

from __future__ import annotations

import secrets
import weakref
from typing import TYPE_CHECKING

import numpy as np

from penstock.embedding.native_memory import HUGE_PAGES_FROM, huge_page_memory, memory_at, zeroed_memory
from penstock.embedding.optimizers import Optimizer
from penstock.embedding.policies import Admission, Eviction
from penstock.embedding.row_layout import RowColumns, RowLayout
from penstock.embedding.row_seeds import row_seed
from penstock.embedding.slots import Init
from penstock.kernels import cpu_embedding_index as index
from penstock.kernels import cpu_embedding_upkeep as upkeep
from penstock.kernels.cpu_half import BFLOAT16, FLOAT16, FLOAT32
from penstock.kernels.cpu_intrinsics import address_of

if TYPE_CHECKING:
    from penstock.embedding.table_copies import TableCopy

STORAGES = {"float32": FLOAT32, "float16": FLOAT16, "bfloat16": BFLOAT16}
_LARGEST_BLOCK = 1 << 26
_FIRST_SEGMENT = 64
_SPLITS_AT_ONCE = 64  # segments; some 20 ms
_NOTHING = np.empty(0, np.uint64)
SEGMENTS_AT_ONCE = 16  # about half a million entries: what is held in memory while rows are read in bulk


class Table:
    """The rows of one group. `header` and `settings` are its lines in the arrays that the kernels read.

    >>> header, settings = np.zeros(index.NUM_FIELDS, np.uint64), np.zeros(index.NUM_SETTINGS, np.float32)
    >>> table = Table("user", header, settings, dim=4)
    >>> table.rows, table.bytes > 0
    (0, True)
    """

    def __init__(
        self,
        name: str,
        header: np.ndarray,
        settings: np.ndarray,
        dim: int,
        init: Init = Init(),  # noqa: B008 - frozen
        optimizer: Optimizer | None = None,
        storage: str = "float32",
        admission: Admission | None = None,
        eviction: Eviction | None = None,
        seed: int = 0,
    ) -> None:
        self.name, self.header, self.settings = name, header, settings
        self.optimizer, self.admission, self.eviction = optimizer, admission or Admission(), eviction
        self.layout = RowLayout(
            dim,
            storage,
            optimizer.formula.num_vectors if optimizer else 0,
            bool(optimizer and optimizer.formula.has_number),
            bool(eviction and eviction.policy == "lfu"),
        )
        self._init, self._seed = init, seed
        self.copying: weakref.ref[TableCopy] | None = None  # what was begun last
        self._describe()
        self.reset()

    def _describe(self) -> None:
        """The fields of the header that never change."""
        header, layout, optimizer = self.header, self.layout, self.optimizer
        rows = 1 << layout.shift
        header[index.SHIFT], header[index.STRIDE] = layout.shift, layout.stride
        header[index.STATE_OFFSET], header[index.DIM] = layout.state_offset, layout.dim
        header[index.SCALAR_OFFSET] = rows * layout.stride if layout.scalar else 0
        header[index.COUNT_OFFSET] = rows * (layout.stride + 4 * layout.scalar) if layout.count else 0
        header[index.NUM_STATES], header[index.STORAGE] = layout.states, STORAGES[layout.storage]
        header[index.INIT] = {"uniform": index.UNIFORM, "normal": index.NORMAL, "zeros": index.ZEROS}[self._init.kind]
        second_setting = self._init.b
        if self._init.generator == "xoshiro256++":
            header[index.INIT], second_setting = index.XOSHIRO, xoshiro_width(self._init)
        header[index.KEY] = secrets.randbits(64)  # of this process alone: no result and no checkpoint depends on it
        header[index.SEED] = row_seed(self._seed)
        header[index.MIN_COUNT], header[index.ADMIT_BELOW] = self.admission.min_count, self.admission.below
        header[index.TIME_TO_LIVE] = (self.eviction.steps or 0) if self.eviction else 0
        first, second, scalar = optimizer.initial_state if optimizer else (0.0, 0.0, 0.0)
        closed_form = optimizer.closed_form if optimizer else (0.0, 0.0)
        self.settings[:] = (self._init.a, second_setting, first, second, scalar, *closed_form)

    def reset(self) -> None:
        """Empty the table and give its memory back."""
        self.complete_copy()
        self._blocks: list[tuple[np.ndarray, int]] = []  # memory and the number of chunks carved from it
        self._chunks = np.zeros(16, np.uint64)
        self._free = np.empty(0, np.uint32)
        self._arenas: list[np.ndarray] = [zeroed_memory(_segment_bytes(_FIRST_SEGMENT))]
        self._spare: list[int] = []
        self._segments = np.array([address_of(self._arenas[0])], np.uint64)
        self._depths = [0]
        self._directory = self._segments.copy()
        for field in (index.ROWS, index.PENDING, index.NEXT_ROW, index.CAPACITY, index.FREE_COUNT, index.DEPTH):
            self.header[field] = 0
        self.header[index.CROWDED] = self.header[index.FREE] = 0
        self.header[index.MASK] = _FIRST_SEGMENT - 1
        self.header[index.GENERATION] += np.uint64(1)
        self._point()

    def copy_under_way(self) -> TableCopy | None:
        """The copy of this table whose rows are not all copied yet."""
        found = self.copying() if self.copying else None
        if found is not None and not found.is_whole:
            return found
        self.copying = None
        return None

    def complete_copy(self) -> None:
        """Rows are about to be written, moved or removed: a copy that is under way must have them first."""
        found = self.copy_under_way()
        if found is not None:
            found.complete()

    def _point(self) -> None:
        self.header[index.DIRECTORY] = address_of(self._directory)
        self.header[index.CHUNKS] = address_of(self._chunks)
        self.header[index.FREE] = address_of(self._free)

    @property
    def rows(self) -> int:
        return int(self.header[index.ROWS])

    @property
    def pending(self) -> int:
        return int(self.header[index.PENDING])

    @property
    def capacity(self) -> int:
        return int(self.header[index.CAPACITY])

    @property
    def bytes(self) -> int:
        """All memory this table has allocated."""
        blocks = sum(block.nbytes for block, _ in self._blocks) + sum(arena.nbytes for arena in self._arenas)
        return blocks + self._chunks.nbytes + self._directory.nbytes + self._segments.nbytes + self._free.nbytes

    # Growing

    def grow(self, status: int, rows: int) -> None:
        """Make room after a kernel stopped with `status`, for up to `rows` more rows."""
        if status == index.NEED_ROWS:
            self.add_rows(rows)
        else:  # the fullest only: all segments fill up at about the same time, and splitting all would take long
            self.split_crowded(fraction=0.7, most=_SPLITS_AT_ONCE)

    def add_rows(self, rows: int) -> None:
        """Memory for at least `rows` more rows: an eighth of the table at a time, so little of it lies idle."""
        layout, per_chunk = self.layout, 1 << self.layout.shift
        biggest = max(1, _LARGEST_BLOCK // layout.chunk_bytes)
        while rows > 0:
            used = self.capacity // per_chunk
            least = -(-HUGE_PAGES_FROM // layout.chunk_bytes) if used * layout.chunk_bytes >= 4 * HUGE_PAGES_FROM else 1
            chunks = min(max(least, used // 8, -(-rows // per_chunk)), biggest)
            block = huge_page_memory(chunks * layout.chunk_bytes)
            if used + chunks > len(self._chunks):
                self._chunks = np.concatenate([self._chunks, np.zeros(max(chunks, used), np.uint64)])
            first = np.uint64(address_of(block))
            self._chunks[used : used + chunks] = first + np.arange(chunks, dtype=np.uint64) * np.uint64(
                layout.chunk_bytes
            )
            self._blocks.append((block, chunks))
            self.header[index.CAPACITY] += np.uint64(chunks * per_chunk)
            rows -= chunks * per_chunk
        self._point()

    def split_crowded(self, fraction: float = 0.6, most: int = _SPLITS_AT_ONCE) -> None:
        """Split the segments that are fuller than `fraction`, `most` of them at a time."""
        mask = int(self.header[index.MASK])
        if mask + 1 < index.MAX_SEGMENT:
            self._widen_only_segment()
            return
        counts = _counts(self._segments)
        crowded = np.flatnonzero(counts > fraction * (mask + 1))
        self.header[index.CROWDED] = int(len(crowded) > most)
        crowded = crowded[np.argsort(-counts[crowded], kind="stable")][:most]
        for number in crowded:
            self._split(int(number))
        self._point()

    def _widen_only_segment(self) -> None:
        """A small table has one segment, which doubles (four times over while it is tiny) until it is full-sized."""
        size = int(self.header[index.MASK]) + 1
        grown = min(size * 4, index.MAX_SEGMENT)
        arena = zeroed_memory(_segment_bytes(grown))
        entries = self._entries(0)
        address = np.uint64(address_of(arena))
        index.redistribute(self.header, entries, np.uint64(grown - 1), address, address, np.uint64(0))
        self._arenas, self._segments = [arena], np.array([address])
        self._directory = self._segments.copy()
        self.header[index.MASK], self.header[index.CROWDED] = grown - 1, 0
        self._point()

    def _split(self, number: int) -> None:
        depth, old = self._depths[number], self._segments[number]
        if depth == int(self.header[index.DEPTH]):
            self._directory = np.repeat(self._directory, 2)
            self.header[index.DEPTH] += np.uint64(1)
        entries = self._entries(number).copy()
        new = np.uint64(self._take_segment())
        self._raw(number)[:] = 0
        mask = self.header[index.MASK]
        index.redistribute(self.header, entries, mask, old, new, np.uint64(63 - depth))
        owned = np.flatnonzero(self._directory == old)
        self._directory[owned[len(owned) // 2 :]] = new
        self._segments = np.append(self._segments, new)
        self._depths[number] = depth + 1
        self._depths.append(depth + 1)

    def _take_segment(self) -> int:
        if not self._spare:
            count = 1 if len(self._segments) < 8 else min(64, max(8, len(self._segments) // 8))
            size = _segment_bytes(index.MAX_SEGMENT)
            arena = zeroed_memory(count * size)
            self._arenas.append(arena)
            self._spare = [address_of(arena) + i * size for i in range(count)]
        return self._spare.pop()

    @property
    def segment_bytes(self) -> int:
        """Memory of one segment of the index."""
        return _segment_bytes(int(self.header[index.MASK]) + 1)

    def _raw(self, number: int) -> np.ndarray:
        return memory_at(int(self._segments[number]), self.segment_bytes)

    def _entries(self, number: int) -> np.ndarray:
        return self._raw(number)[index.SEGMENT_HEADER :].view(np.uint64).reshape(-1, 2)

    # Evicting

    def histogram(self, by_count: bool, clock: int, upper: int, bins: np.ndarray) -> None:
        upkeep.histogram(self.header, self._segments, by_count, clock, upper, bins)

    def ties(self, by_count: bool, clock: int, priority: int, most: int) -> np.ndarray:
        out = np.empty(most, np.uint64)
        return out[: upkeep.ties(self.header, self._segments, by_count, clock, priority, out)]

    def remove(
        self, what: int, by_count: bool, clock: int, limit: int, tie: int = 0, listed: np.ndarray = _NOTHING
    ) -> np.ndarray:
        """Take out entries (see the kernel); the signs of the rows that went."""
        self.complete_copy()
        if len(self._free) < self.capacity:
            free = np.empty(self.capacity, np.uint32)
            free[: len(self._free)] = self._free
            self._free = free
            self._point()
        scratch = np.empty((int(self.header[index.MASK]) + 1, 2), np.uint64)
        removed = np.empty(max(self.rows, 1), np.uint64)
        gone = upkeep.remove(
            self.header, self._segments, what, by_count, clock, limit, np.uint64(tie), listed, scratch, removed
        )
        if gone:
            self.header[index.GENERATION] += np.uint64(1)
        return removed[:gone].copy()

    def shrink(self) -> None:
        """Give memory back when a quarter of the rows is free and a whole block can go."""
        per_chunk, spare = 1 << self.layout.shift, self.capacity - self.rows
        if spare * 4 < self.capacity:
            return
        keep = len(self._blocks)
        while keep and (room := self._blocks[keep - 1][1] * per_chunk) <= spare:
            spare -= room
            keep -= 1
        if keep == len(self._blocks):
            return
        self.complete_copy()
        capacity = sum(chunks for _, chunks in self._blocks[:keep]) * per_chunk
        # Rows between NEXT_ROW and the new capacity were never given out; the kernel finds room in the free list only.
        if (unused := capacity - int(self.header[index.NEXT_ROW])) > 0:
            self._offer(range(int(self.header[index.NEXT_ROW]), capacity), unused)
        upkeep.compact(self.header, self._segments, capacity)
        self.header[index.GENERATION] += np.uint64(1)
        self._blocks = self._blocks[:keep]
        self._free = self._free[: max(int(self.header[index.FREE_COUNT]), 1)].copy()
        self._point()

    def _offer(self, rows: range, count: int) -> None:
        given = int(self.header[index.FREE_COUNT])
        free = np.empty(max(given + count, len(self._free)), np.uint32)
        free[:given] = self._free[:given]
        free[given : given + count] = np.arange(rows.start, rows.stop, dtype=np.uint32)
        self._free = free
        self.header[index.FREE_COUNT] = given + count
        self.header[index.NEXT_ROW] = rows.stop
        self._point()

    def touch(self, signs: np.ndarray, stamps: np.ndarray) -> None:
        """Stamp rows that are there, each with its step unless it has a later one."""
        upkeep.touch(self.header, signs, stamps.astype(np.uint64))

    def drop(self, signs: np.ndarray) -> None:
        """Remove rows by sign."""
        self.remove(upkeep.BY_SIGN, False, 0, 0, listed=np.sort(signs))

    # Rows in bulk

    def num_segments(self) -> int:
        return len(self._segments)

    def read(self, first: int, last: int, since: int = -1, moved: np.ndarray = _NOTHING) -> RowColumns:
        """The rows of segments `first` to `last` that were touched after step `since`, or are listed in `moved`."""
        signs, values = self.entries(first, last - first)
        stamps = values >> np.uint64(32)
        if since >= 0:
            chosen = stamps > since
            if len(moved):
                places = np.minimum(np.searchsorted(moved, signs), len(moved) - 1)
                chosen |= moved[places] == signs
            signs, values, stamps = signs[chosen], values[chosen], stamps[chosen]
        columns = self.empty_columns(len(signs))
        columns.signs[:], columns.stamps[:] = signs, stamps
        upkeep.read_rows(self.header, values, *columns.addresses())
        return columns

    def share_touched(self, since: int) -> float:
        """How large a share of the rows was touched after step `since`, by the rows of one segment."""
        _, values = self.entries(0, 1)
        return float((values >> np.uint64(32) > since).mean()) if len(values) else 0.0

    def entries(self, first: int = 0, count: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Signs, and rows with stamps, of everything in `count` segments from `first` on."""
        segments = self._segments[first : None if count is None else first + count]
        most = int(_counts(segments).sum())
        signs, values = np.empty(most, np.uint64), np.empty(most, np.uint64)
        found = upkeep.list_entries(self.header, segments, -1, False, signs, values)
        return signs[:found], values[:found]

    def read_pending(self) -> tuple[np.ndarray, np.ndarray]:
        """Signs that wait for admission, and how often each was seen."""
        signs, values = np.empty(self.pending, np.uint64), np.empty(self.pending, np.uint64)
        upkeep.list_entries(self.header, self._segments, -1, True, signs, values)
        return signs, (values >> np.uint64(32)).astype(np.uint32)

    def empty_columns(self, rows: int) -> RowColumns:
        """Columns of this table's layout, uninitialised."""
        layout = self.layout
        item = np.dtype(np.float32 if layout.storage == "float32" else np.uint16)
        return RowColumns(
            np.empty(rows, np.uint64),
            np.empty(rows, np.uint32),
            np.empty((rows, layout.dim), item),
            np.empty((rows, layout.states * layout.dim), np.float32),
            np.zeros(rows if layout.scalar else 0, np.float32),
            np.zeros(rows if layout.count else 0, np.uint32),
        )

    def write(self, columns: RowColumns, pending: bool = False) -> None:
        """Insert rows, or overwrite those that are there."""
        self.complete_copy()
        start = 0
        while start < len(columns):
            start, status = upkeep.write_rows(
                self.header, columns.signs, columns.stamps, start, pending, *columns.addresses()
            )
            if status:
                self.grow(status, len(columns) - start)


def _segment_bytes(entries: int) -> int:
    return index.SEGMENT_HEADER + entries * index.ENTRY_BYTES


def _counts(segments: np.ndarray) -> np.ndarray:
    counts = np.empty(len(segments), np.int64)
    index.segment_counts(segments, counts)
    return counts


def xoshiro_width(init: Init) -> float:
    """`b - a` in float32, so much smaller where needed that no number of xoshiro256++ is rounded up to b."""
    low, high = np.float32(init.a), np.float32(init.b)
    width, most = high - low, np.float32(1 - 2.0**-23)
    if not (width > 0 and width * most + low >= high):
        return float(width)
    # Positive floats are ordered as their bits are: the largest that stays below is found by halving.
    fits, reaches = 0, int(width.view(np.uint32))
    while reaches - fits > 1:
        middle = (fits + reaches) // 2
        if np.uint32(middle).view(np.float32) * most + low >= high:
            reaches = middle
        else:
            fits = middle
    return float(np.uint32(fits).view(np.float32))
