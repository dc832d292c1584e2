"""Rows that come as ids do, found by an index on the device: the home of `HashedEmbeddings`' rows."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch

from penstock.embedding.fused.ids import Ids
from penstock.embedding.fused.row_home import RowHome
from penstock.embedding.fused.table_group import STATES, TableGroup
from penstock.embedding.hashed.eviction import LOW32, least_recent
from penstock.embedding.hashed.hash_index import HashIndex, ids_by_table
from penstock.embedding.hashed.known_counts import KnownCounts
from penstock.kernels.gpu_triton import is_interpreted
from penstock.kernels.hashed_contract import CLOCK, NUMBER, NewRows, state_kind


class OpenLookup:
    """A training look-up whose backward pass is still to come: its rows stay."""

    def __init__(self, located: Ids) -> None:
        self.rows = [located.singles] if located.lists is None else [located.singles, located.lists[0]]


class HashedRows(RowHome):
    """`capacity` rows of the weight for whatever ids come, and one more of zeros; `open` gives it the tables."""

    joint = True
    tables: TableGroup
    index: HashIndex

    def __init__(self, capacity: int, max_rows: int | None, scale: float) -> None:
        self.capacity, self.max_rows, self.scale = capacity, max_rows, scale
        self.evicted = 0

    def rows_on_device(self, total: int) -> int:
        return self.capacity + 1

    def open(self, tables: TableGroup, seeds: list[int]) -> None:
        """Begin without a row."""
        self.tables = tables
        self.index = HashIndex(seeds, self.capacity, tables.weight.device)
        self.begin_anew()

    def begin_anew(self) -> None:
        """The index was replaced, or has moved to another device."""
        self.counts = KnownCounts(self.index.num_tables)
        self.counts.wait(self.index.counters)
        self._in_capture = np.zeros(self.index.num_tables + 1, np.int64)  # ids that one run of a captured step asks for
        self._open: weakref.WeakSet[OpenLookup] = weakref.WeakSet()

    # A look-up.

    def locate(self, tables: TableGroup, ids: Ids, given: Any, training: bool) -> tuple[Ids, Any]:
        wanted = ids_by_table(ids, self.index.num_tables)
        captured = tables.weight.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        if captured:
            self._in_capture += wanted * training
        elif training:
            self.make_room(wanted)
        else:
            self.trim()
        with torch.no_grad():
            located = self.index.find(self._kernels, ids, self.capacity, self._new_rows() if training else None)
        if not training or captured or self.max_rows is None:
            return located, None
        token = OpenLookup(located)
        self._open.add(token)
        return located, token

    def before_step(self, token: Any) -> None:
        if token is not None:
            self._open.discard(token)

    def _new_rows(self) -> NewRows:
        tables, index = self.tables, self.index
        states = tables.states
        first, second, number = tables.optimizer.initial_state
        kinds = [state_kind(state) for state in states]
        starts = float(number if kinds[0] == NUMBER else first), float(number if kinds[1] == NUMBER else second)
        width = float(np.float32(self.scale) - np.float32(-self.scale))
        return NewRows(
            index.starts, index.seeds, index.free, self.capacity, self.max_rows is not None, tables.weight, states,
            -float(self.scale), width, starts,
        )  # fmt: skip

    # Room.

    def make_room_for_replay(self) -> bool:
        """Room for one run of the step that was captured last; whether memory has moved."""
        moved = self.make_room(self._in_capture)
        if moved:
            self._in_capture = np.zeros_like(self._in_capture)
        return moved

    def make_room(self, wanted: np.ndarray) -> bool:
        """Room for so many new ids of each table, and of all; rows beyond `max_rows` go first. Whether memory moved."""
        counts, index, moved = self.counts, self.index, False
        self.trim()
        while not self._fits(wanted) and counts.advance():
            pass
        if not self._fits(wanted):
            counts.wait(index.counters)
            by_table, total = wanted[:-1], int(wanted[-1])
            if counts.rows + total > self.capacity:
                self._grow(counts.rows + total, total)
                moved = True
            if not index.has_place_for(counts.signs + by_table):
                index.grow(self._kernels, counts.signs + 2 * by_table)
                counts.wait(index.counters)
                moved = True
        counts.ask(wanted, index.counters)
        return moved

    def _fits(self, wanted: np.ndarray) -> bool:
        counts = self.counts
        return counts.rows + wanted[-1] <= self.capacity and self.index.has_place_for(counts.signs + wanted[:-1])

    def trim(self) -> None:
        """Rows beyond `max_rows` go: the least recently used."""
        most, counts = self.max_rows, self.counts
        if most is None:
            return
        while counts.rows > most and counts.advance():
            pass
        if counts.rows <= most:
            return
        counts.wait(self.index.counters)
        if counts.rows <= most:
            return
        with torch.no_grad():
            signs, values = self.index.entries[: sum(self.index.sizes)].unbind(1)
            kept = torch.zeros(self.capacity + 2, dtype=torch.bool, device=values.device)
            for rows in (rows for token in self._open for rows in token.rows):
                kept[rows.reshape(-1).long()] = True
            last_step = self.index.counters[CLOCK] - 1
            may_go = (values >= 0) & (values >> 32 < last_step) & ~kept[values.clamp(min=0) & LOW32]
            doomed = least_recent(signs, values, may_go.nonzero().flatten(), counts.rows, most)
            self.index.release(doomed)
        self.evicted += len(doomed)
        counts.wait(self.index.counters)

    def _grow(self, rows: int, in_batch: int) -> None:
        """A larger weight: twice as large, or as large as it can be needed."""
        wanted = max(rows, 2 * self.capacity)
        if self.max_rows is not None:
            wanted = max(rows, min(wanted, self.max_rows + in_batch))
        self.resize(wanted)

    def resize(self, capacity: int) -> None:
        """Room for another number of rows; those that there are keep their numbers."""
        tables, before = self.tables, self.capacity
        for name in map(tables.key, STATES):
            held = getattr(tables.module, name)
            if held is not None:
                larger = torch.zeros((capacity + 1, *held.shape[1:]), dtype=held.dtype, device=held.device)
                larger[: min(before, capacity)] = held[: min(before, capacity)]
                setattr(tables.module, name, larger)
        free = torch.empty(capacity, dtype=torch.int64, device=tables.weight.device)
        free[: min(before, capacity)] = self.index.free[: min(before, capacity)]
        self.index.free, self.capacity = free, capacity

    @property
    def _kernels(self) -> Any:
        if self.tables.weight.device.type == "cuda" or is_interpreted():
            from penstock.kernels import gpu_hashed

            return gpu_hashed
        from penstock.embedding.hashed import cpu_index

        return cpu_index
