"""A store's rows by number, for a cache in front of it that remembers the numbers and so hashes an id only once.

The tables have known sizes and lie one above the other; a *key* is a row of that joint table. Numbers hold until the
store is cleared or loaded, or rows are removed. From then on they are `stale`: nothing is read or written by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock.core.runtime.threads import thread_pool
from penstock.embedding.row_layout import RowColumns
from penstock.embedding.store import Store
from penstock.kernels import cpu_embedding_cache as kernel
from penstock.kernels import cpu_embedding_index as index
from penstock.kernels.cpu_intrinsics import address_of

_PER_THREAD = 2048  # rows for which another thread is worth waking
_PIECE = 4096  # rows a thread takes at a time, at most
_SMALL_PIECE = 512  # and at least: the first rows of a piece come slowly, as nobody has asked memory for them before
_ROUNDS = 8  # pieces for each thread, within these bounds: then all end at about the same time
_BLOCK = 1 << 20  # rows held twice while all are read or written
_LOW32 = np.uint64(0xFFFFFFFF)


class NumberedRows:
    """Rows of a store's slots, `sizes` ids each. Columns are arrays named as below, as many rows as there are keys.

    `weight` holds stored weights (bfloat16 as its bits), `state` and `second_state` the optimizer's vectors and
    `scalar` its number a row, as far as it has them.

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
        self.store, config = store, store.config
        self.starts = np.cumsum([0, *sizes.values()])
        groups = [config[name].group for name in sizes]
        self.groups = np.array([config.groups.index(group) for group in groups], np.int64)
        self._prefixes = np.array([config.prefix(group) for group in groups], np.uint64)
        self.layout = store.tables.tables[self.groups[0]].layout
        self.renew()

    @property
    def stale(self) -> bool:
        """Whether numbers may name other rows than they did, or none."""
        return self._generation() != self._known

    def renew(self) -> None:
        """Whoever keeps numbers has forgotten them."""
        self._known = self._generation()

    def _generation(self) -> tuple[int, ...]:
        tables = self.store.tables
        return id(tables), *(int(g) for g in tables.headers[self.groups, index.GENERATION])

    def find(self, keys: np.ndarray) -> np.ndarray:
        """The numbers of keys in ascending order; ids not seen before are inserted with their initial values."""
        tables, numbers, fresh = self.store.tables, np.empty(len(keys), np.int64), np.zeros(len(keys), np.bool_)
        signs, dim = self._signs(keys), self.layout.dim
        common = tables.headers, tables.settings, signs, numbers, fresh
        with self.store._lock:
            tables.clock += 1
            tables._stamp_if_needed()
            pieces = self._pieces(keys, len(keys))
            with self._without_values():
                while len(pieces):
                    self._run(
                        kernel.resolve_pieces, pieces, *common, np.uint64(tables.clock), np.empty(dim, np.float32)
                    )
                    pieces = pieces[pieces[:, kernel.STATUS] != 0]
                    for table, first, last, status in pieces.tolist():
                        tables.tables[table].grow(status, last - first)
            # Touching new memory is what takes time, so all threads do it.
            self._run(kernel.initialise_pieces, self._pieces(keys), *common, np.empty(dim, np.float32))
            tables._upkeep()
        return numbers

    @contextmanager
    def _without_values(self) -> Iterator[None]:
        """Inserting takes one thread a table; rows of no columns leave their values for later."""
        headers = self.store.tables.headers
        widths = headers[:, index.DIM].copy()
        headers[:, index.DIM] = 0
        try:
            yield
        finally:
            headers[:, index.DIM] = widths

    def _run(self, function: Any, pieces: np.ndarray, *arguments: Any) -> None:
        """A kernel on all threads; its last argument is memory of a thread's own."""
        threads, (*common, own) = self.store.tables.threads, arguments
        rows = int((pieces[:, kernel.LAST] - pieces[:, kernel.FIRST]).sum())
        threads.run(lambda: function(threads.counter, pieces, *common, np.empty_like(own)), len(pieces), rows)

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

        self._on_all_tables(list_rows)
        return numbers

    def _on_all_tables(self, function: Callable[[int], None]) -> None:
        with self.store._lock, thread_pool(self.store.tables.threads.num_threads, "store") as pool:
            list(pool.map(function, range(len(self.groups))))

    def read(self, keys: np.ndarray, numbers: np.ndarray, columns: Mapping[str, Any]) -> None:
        """Copy rows out to the columns; keys in ascending order."""
        self._move(keys, numbers, columns, True)

    def write(self, keys: np.ndarray, numbers: np.ndarray, columns: Mapping[str, Any]) -> None:
        """Copy rows in from the columns; keys in ascending order, none twice."""
        self._move(keys, numbers, columns, False)
        tables = self.store.tables
        if tables.watchers:  # someone follows which rows change
            signs, cuts = self._signs(keys), np.searchsorted(keys, self.starts)
            for group, low, high in zip(self.groups, cuts[:-1], cuts[1:], strict=True):
                tables.tables[group].touch(signs[low:high], tables.clock)

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

        self._on_all_tables(write)  # one thread a table: its index has one writer

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
        counts = np.diff(np.searchsorted(keys, self.starts))
        # A prefix and an id share no bits, so what takes a key to its sign is one number a table.
        return keys.astype(np.uint64) + np.repeat(self._prefixes - self.starts[:-1].astype(np.uint64), counts)

    def _pieces(self, keys: np.ndarray, most: int = _PIECE) -> np.ndarray:
        """What threads draw: stretches of at most `most` keys of one table, `(table, first, last, status)`."""
        cuts = np.searchsorted(keys, self.starts)
        counts = -(-np.diff(cuts) // max(most, 1))
        table = np.repeat(np.arange(len(counts)), counts)
        pieces = np.zeros((len(table), kernel.STATUS + 1), np.int64)
        pieces[:, kernel.TABLE] = self.groups[table]
        pieces[:, kernel.FIRST] = cuts[table] + most * (np.arange(len(table)) - (np.cumsum(counts) - counts)[table])
        pieces[:, kernel.LAST] = np.minimum(pieces[:, kernel.FIRST] + most, cuts[table + 1])
        return pieces

    def _move(self, keys: np.ndarray, numbers: np.ndarray, columns: Mapping[str, Any], out: bool) -> None:
        if not len(keys):
            return
        tables, rows = self.store.tables, np.ascontiguousarray(numbers, np.int64)
        threads = min(tables.native_threads.num_threads, max(1, len(keys) // _PER_THREAD))
        pieces = self._pieces(keys, min(_PIECE, max(_SMALL_PIECE, len(keys) // (_ROUNDS * threads))))
        places = [address_of(columns[n]) if n in columns else 0 for n in ("weight", "state", "second_state", "scalar")]
        addresses = np.array(places, np.uint64)
        arrays = [address_of(a) for a in (tables.native_threads.counter, pieces, tables.headers, rows, addresses)]
        move = np.array((*arrays, len(pieces), len(tables.headers), len(rows), out), kernel.MOVE)
        with self.store._lock:
            if self.stale:
                return
            tables.native_threads.run(kernel.move_job(), move, threads)
