"""A table as it was at one moment, copied while it goes on.

The entries of the index are copied at that moment. The rows, which take most of the memory, are copied afterwards, by
whoever wants to read them; until then an update keeps rows as they were before it changes them. Whatever else writes,
moves or removes rows has the copy completed first.
"""

from __future__ import annotations

import copy
import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np

from penstock.embedding.native_memory import huge_page_memory
from penstock.kernels import cpu_embedding_batch as layout
from penstock.kernels import cpu_embedding_index as index
from penstock.kernels import cpu_embedding_keep as kernel
from penstock.kernels.cpu_intrinsics import address_of

if TYPE_CHECKING:
    from penstock.embedding.table import Table
    from penstock.embedding.tables import TableSet

_CHUNKS_AT_ONCE = 16  # 4 MiB: what is copied counts as copied that soon


class TableCopy:
    """One table as it is when this is made: `table`, once it is complete.

    Args:
        source: the table. Nobody else calls it meanwhile.
    """

    def __init__(self, source: Table) -> None:
        source.complete_copy()  # updates keep rows for one copy at a time
        self.table = _twin(source)
        self._blocks = [*source._blocks]
        self.given_out = int(source.header[index.NEXT_ROW])  # rows; later ones are not in the copy
        self.copied = 0  # rows below this number
        self.flags = np.zeros(self.given_out, np.uint8)  # which of them were kept
        self._kept: list[tuple[np.ndarray, np.ndarray]] = []
        self._lock = threading.Lock()
        self.is_whole = False
        source.copying = weakref.ref(self)

    def keep(self, numbers: np.ndarray, rows: np.ndarray) -> None:
        """Rows as they were, about to be changed."""
        self._kept.append((numbers, rows))

    def complete(self) -> None:
        """Copy the rows, unless that is done; any thread may, beside updates."""
        with self._lock:
            if not self.is_whole:
                self._copy_blocks()
                # An update that comes now keeps nothing. One that still does has changed nothing that was copied.
                self.copied = self.given_out
                for numbers, rows in self._kept:
                    kernel.put_rows(self.table.header, numbers, np.uint64(address_of(rows)))
                self.is_whole = True
                self._kept, self._blocks = [], []

    def _copy_blocks(self) -> None:
        twin, size = self.table, self.table.layout.chunk_bytes
        left, first = -(-self.given_out >> twin.layout.shift), 0
        for block, chunks in self._blocks:
            used = min(left, chunks)
            if used:  # the rest was never given out
                memory = huge_page_memory(used * size)
                twin._blocks.append((memory, used))
                moved = (address_of(memory) - address_of(block)) % 2**64
                twin._chunks[first : first + used] += np.uint64(moved)
                for start in range(0, used, _CHUNKS_AT_ONCE):
                    stop = min(start + _CHUNKS_AT_ONCE, used)
                    memory[start * size : stop * size] = block[start * size : stop * size]
                    self.copied = (first + stop) << twin.layout.shift
            left, first = left - used, first + chunks


def _twin(source: Table) -> Table:
    """A table with the same entries, whose rows are nowhere yet."""
    twin = copy.copy(source)
    twin.copying = None
    twin.header = source.header.copy()
    twin._blocks, twin._chunks = [], source._chunks.copy()
    size = source.segment_bytes
    arena = huge_page_memory(len(source._segments) * size)
    for number in range(len(source._segments)):
        arena[number * size : (number + 1) * size] = source._raw(number)
    twin._arenas, twin._spare, twin._depths = [arena], [], [*source._depths]
    places = np.arange(len(source._segments), dtype=np.uint64) * np.uint64(size)
    twin._segments = np.uint64(address_of(arena)) + places
    order = np.argsort(source._segments)
    twin._directory = twin._segments[order[np.searchsorted(source._segments, source._directory, sorter=order)]]
    twin._free = source._free.copy()
    twin._point()
    return twin


def keep_before_update(tables: TableSet, groups: np.ndarray, signs: np.ndarray) -> None:
    """Keep the rows of a batch's distinct signs for copies that have not come to them; `groups` as kernels take it."""
    copies = {group: found for group, table in enumerate(tables.tables) if (found := table.copy_under_way())}
    if not copies:
        return
    bounds = np.zeros((len(groups), kernel.NUM_BOUNDS), np.uint64)
    numbers, counts = np.empty(len(signs), np.uint32), np.zeros(len(groups), np.int64)
    rows = {}
    for group, found in copies.items():
        size = kernel.bytes_kept(found.table.layout.stride)
        rows[group] = np.empty(int(groups[group, layout.UNIQUE]) * size, np.uint8)
        bounds[group] = found.copied, found.given_out, address_of(found.flags), address_of(rows[group])
    order = np.array([*copies], np.int64)

    def run() -> None:
        kernel.keep_rows(tables.threads.counter, order, tables.headers, groups, signs, bounds, numbers, counts)

    tables.threads.run(run, len(order), len(signs))
    for group, found in copies.items():
        if counts[group]:
            start = groups[group, layout.START]
            found.keep(numbers[start : start + counts[group]].copy(), rows[group])
