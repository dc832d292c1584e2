"""The rows of tables of known sizes in a store, by number (`StoreRows`).

The tables lie one above the other; a *key* is a row of that joint table.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.embedding.keyed_rows import KeyedRows
from penstock.embedding.row_layout import RowColumns
from penstock.embedding.store import Store
from penstock.kernels import cpu_embedding_cache as kernel
from penstock.kernels import cpu_embedding_index as index
from penstock.kernels.cpu_intrinsics import address_of

_BLOCK = 1 << 20  # rows held twice while all are read or written
_LOW32 = np.uint64(0xFFFFFFFF)


class NumberedRows(KeyedRows):
    """Rows of a store's slots, `sizes` ids each. Columns are arrays named as `StoreRows` has them.

    >>> from penstock.embedding import SGD, SlotConfig, Store
    >>> store = Store([SlotConfig("user", 4), SlotConfig("item", 4)], SGD(lr=0.1))
    >>> rows = NumberedRows(store, {"user": 100, "item": 10})
    >>> keys = np.array([3, 7, 105])  # users 3 and 7, item 5
    >>> numbers = rows.find(keys)
    >>> rows.write(keys, numbers, {"weight": np.ones((3, 4), np.float32)})
    >>> float(store.lookup({"user": [7], "item": [5]}, train=False).packed.sum()), store.stats()["rows"]
    (8.0, 3)
    >>> store.close()
    """

    def __init__(self, store: Store, sizes: Mapping[str, int]) -> None:
        super().__init__(store, list(sizes))
        self.starts = np.cumsum([0, *sizes.values()])
        self.groups, self._prefixes, self.layout = self._rows.groups, self._rows.prefixes, self._rows.layout

    def known(self) -> np.ndarray | None:
        """For every key the number of its row, or -1 where the store has none; None for an empty store."""
        tables = self.store.tables
        if not sum(tables.tables[group].rows for group in self.groups):
            return None
        numbers = np.full(self.starts[-1], -1, np.int32)

        def list_rows(number: int) -> None:
            signs, values = tables.tables[self.groups[number]].entries()
            keys = (signs - self._prefixes[number]).astype(np.int64) + self.starts[number]
            inside = (keys >= self.starts[number]) & (keys < self.starts[number + 1])  # ids beyond 2^63 are negative
            numbers[keys[inside]] = (values[inside] & _LOW32).astype(np.int32)

        self._rows.on_all_tables(list_rows)
        return numbers

    def read_all(self, columns: Mapping[str, np.ndarray]) -> None:
        """Every row of every table; those not seen yet as they will begin."""
        for number, group in enumerate(self.groups):
            table, start, end = self.store.tables.tables[group], self.starts[number], self.starts[number + 1]
            for low in range(start, end, _BLOCK):
                self._read_initial(number, low, min(low + _BLOCK, end), columns)
            signs, values = table.entries()
            keys = (signs - self._prefixes[number]).astype(np.int64) + start
            chosen = np.flatnonzero((keys >= start) & (keys < end))
            chosen = chosen[np.argsort(keys[chosen])]
            for low in range(0, len(chosen), _BLOCK):
                part = chosen[low : low + _BLOCK]
                held = {name: np.empty((len(part), *c.shape[1:]), c.dtype) for name, c in columns.items()}
                self.read(keys[part], (values[part] & _LOW32).astype(np.int64), held)
                for name, column in columns.items():
                    column[keys[part]] = held[name]

    def write_all(self, columns: Mapping[str, np.ndarray]) -> None:
        """Every row of every table; ids not seen yet are inserted."""

        def write(number: int) -> None:
            table = self.store.tables.tables[self.groups[number]]
            for low in range(self.starts[number], self.starts[number + 1], _BLOCK):
                high = min(low + _BLOCK, self.starts[number + 1])
                table.write(self._as_columns(np.arange(low, high), columns))

        self._rows.on_all_tables(write)  # one thread a table: its index has one writer

    def _as_columns(self, keys: np.ndarray, columns: Mapping[str, np.ndarray]) -> RowColumns:
        rows = slice(keys[0], keys[-1] + 1)
        states = [columns[name][rows] for name in ("state", "second_state")[: self.layout.states]]
        return RowColumns(
            self._signs(keys),
            np.full(len(keys), self.store.tables.clock, np.uint32),
            np.ascontiguousarray(columns["weight"][rows]),
            np.concatenate(states, 1) if states else np.empty((len(keys), 0), np.float32),
            np.ascontiguousarray(columns["scalar"][rows]) if self.layout.scalar else np.empty(0, np.float32),
            np.zeros(len(keys) if self.layout.count else 0, np.uint32),
        )

    def _read_initial(self, number: int, low: int, high: int, columns: Mapping[str, np.ndarray]) -> None:
        """Rows as they begin: written by the store's own kernel, into memory that a borrowed header describes."""
        layout, rows, group = self.layout, high - low, self.groups[number]
        memory = np.empty(rows * (layout.stride + 4 * layout.scalar), np.uint8)
        chunks, header = np.array([address_of(memory)], np.uint64), self.store.tables.headers[group].copy()
        header[index.CHUNKS], header[index.SHIFT], header[index.COUNT_OFFSET] = address_of(chunks), 40, 0
        header[index.SCALAR_OFFSET] = rows * layout.stride if layout.scalar else 0
        signs = self._signs(np.arange(low, high))
        kernel.initial_rows(header, self.store.tables.settings[group], signs, np.empty(layout.dim, np.float32))
        kept, width = memory[: rows * layout.stride].reshape(rows, layout.stride), 4 * layout.dim
        item = columns["weight"].dtype
        columns["weight"][low:high] = np.ascontiguousarray(kept[:, : layout.dim * layout.item]).view(item)
        for state, name in enumerate(("state", "second_state")[: layout.states]):
            begin = layout.state_offset + state * width
            columns[name][low:high] = np.ascontiguousarray(kept[:, begin : begin + width]).view(np.float32)
        if layout.scalar:
            columns["scalar"][low:high] = memory[rows * layout.stride :].view(np.float32)

    def _signs(self, keys: np.ndarray) -> np.ndarray:
        """Of keys in ascending order."""
        counts = np.diff(self._cuts(keys))
        # A prefix and an id share no bits, so what takes a key to its sign is one number a table.
        return keys.astype(np.uint64) + np.repeat(self._prefixes - self.starts[:-1].astype(np.uint64), counts)

    def _cuts(self, keys: np.ndarray) -> np.ndarray:
        """Where each table's keys begin."""
        return np.searchsorted(keys, self.starts)
