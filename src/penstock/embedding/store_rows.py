"""A store's rows by number, for whoever remembers the numbers and so hashes an id only once: a cache in front of it.

Rows are asked for by their signs, those of one table together in the order of the tables; `cuts` says where each
table's begin, and where the last ones end. Numbers hold until the store is cleared or loaded, or rows are removed. From
then on they are `stale`: nothing is read or written by them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock.core.runtime.threads import thread_pool
from penstock.embedding.evicting import fit_rows
from penstock.embedding.store import Store
from penstock.kernels import cpu_embedding_cache as kernel
from penstock.kernels import cpu_embedding_index as index
from penstock.kernels.cpu_intrinsics import address_of

_PER_THREAD = 2048  # rows for which another thread is worth waking
_PIECE = 4096  # rows a thread takes at a time, at most
_SMALL_PIECE = 512  # and at least: the first rows of a piece come slowly, as nobody has asked memory for them before
_ROUNDS = 8  # pieces for each thread, within these bounds: then all end at about the same time


class StoreRows:
    """Rows of some slots of a store. Columns are arrays named as below, as many rows as there are signs.

    `weight` holds stored weights (bfloat16 as its bits), `state` and `second_state` the optimizer's vectors and
    `scalar` its number a row, as far as it has them.

    >>> from penstock.embedding import SGD, SlotConfig
    >>> store = Store([SlotConfig("user", 4), SlotConfig("item", 4)], SGD(lr=0.1))
    >>> rows, cuts = StoreRows(store, ["user", "item"]), np.array([0, 2, 3])
    >>> signs = np.array([4, 8, 6], np.uint64)  # users 3 and 7, item 5
    >>> rows.find(signs, cuts, insert=False)
    array([-1, -1, -1])
    >>> numbers = rows.find(signs, cuts)
    >>> rows.move(cuts, numbers, {"weight": np.ones((3, 4), np.float32)}, out=False)
    >>> float(store.lookup({"user": [7], "item": [5]}, train=False).packed.sum()), store.stats()["rows"]
    (8.0, 3)
    >>> store.close()
    """

    def __init__(self, store: Store, names: Sequence[str]) -> None:
        self.store, config = store, store.config
        groups = [config[name].group for name in names]
        self.groups = np.array([config.groups.index(group) for group in groups], np.int64)
        self.prefixes = np.array([config.prefix(group) for group in groups], np.uint64)
        self.layout = store.tables.tables[self.groups[0]].layout
        self._evicting = threading.Lock()
        self.renew()

    @property
    def stale(self) -> bool:
        """Whether numbers may name other rows than they did, or none; but for those that went with `evict`."""
        with self._evicting:
            return self._generation() != self._known

    def renew(self) -> None:
        """Whoever keeps numbers has forgotten them."""
        self._known = self._generation()

    def _generation(self) -> tuple[int, ...]:
        tables = self.store.tables
        return id(tables), *(int(g) for g in tables.headers[self.groups, index.GENERATION])

    def find(self, signs: np.ndarray, cuts: np.ndarray, insert: bool = True, step: int | None = None) -> np.ndarray:
        """The numbers of signs; those not seen before are inserted with their initial values, or have -1.

        Inserting is a step of its own, or part of `step`. No row goes: a store with a bound is told when (`evict`).
        """
        tables, numbers, fresh = self.store.tables, np.empty(len(signs), np.int64), np.zeros(len(signs), np.bool_)
        scratch = np.empty(self.layout.dim, np.float32)
        common = tables.headers, tables.settings, signs, numbers, fresh
        with self.store._lock:
            tables.clock += insert and step is None
            stamp = np.uint64(tables.clock if step is None else step)
            tables._stamp_if_needed()
            pieces = self._pieces(cuts, len(signs))
            with self._without_values():
                while len(pieces):
                    self._run(kernel.resolve_pieces, pieces, *common, stamp, insert, scratch)
                    pieces = pieces[pieces[:, kernel.STATUS] != 0]
                    for table, first, last, status in pieces.tolist():
                        tables.tables[table].grow(status, last - first)
            if insert:
                # Touching new memory is what takes time, so all threads do it.
                self._run(kernel.initialise_pieces, self._pieces(cuts), *common, scratch)
                tables.split_crowded()
        return numbers

    def evict(self) -> list[np.ndarray]:
        """Rows beyond the store's `max_rows` go as after a look-up; their signs, by slot. Other numbers hold.

        Raises:
            MemoryBudgetError: the rows of this step alone are more.
        """
        tables = self.store.tables
        with self.store._lock, self._evicting:
            most = None if tables.eviction is None else tables.eviction.max_rows
            gone = fit_rows(tables, tables.rows if most is None else most)
            self.renew()
        return [gone[group] for group in self.groups]

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

    def on_all_tables(self, function: Callable[[int], None]) -> None:
        """Call it for each table's place among them, on as many threads as the store has."""
        with self.store._lock, thread_pool(self.store.tables.threads.num_threads, "store") as pool:
            list(pool.map(function, range(len(self.groups))))

    def touch(self, signs: np.ndarray, cuts: np.ndarray, stamps: np.ndarray) -> None:
        """Say in which steps rows were used or changed last."""
        with self.store._lock:
            for group, low, high in zip(self.groups, cuts[:-1], cuts[1:], strict=True):
                self.store.tables.tables[group].touch(signs[low:high], stamps[low:high])

    def _pieces(self, cuts: np.ndarray, most: int = _PIECE) -> np.ndarray:
        """What threads draw: stretches of at most `most` rows of one table, `(table, first, last, status)`."""
        counts = -(-np.diff(cuts) // max(most, 1))
        table = np.repeat(np.arange(len(counts)), counts)
        pieces = np.zeros((len(table), kernel.STATUS + 1), np.int64)
        pieces[:, kernel.TABLE] = self.groups[table]
        pieces[:, kernel.FIRST] = cuts[table] + most * (np.arange(len(table)) - (np.cumsum(counts) - counts)[table])
        pieces[:, kernel.LAST] = np.minimum(pieces[:, kernel.FIRST] + most, cuts[table + 1])
        return pieces

    def move(self, cuts: np.ndarray, numbers: np.ndarray, columns: Mapping[str, Any], out: bool) -> None:
        """Copy rows out to the columns, or in from them; then none twice."""
        if not len(numbers):
            return
        tables, rows = self.store.tables, np.ascontiguousarray(numbers, np.int64)
        threads = min(tables.native_threads.num_threads, max(1, len(rows) // _PER_THREAD))
        pieces = self._pieces(cuts, min(_PIECE, max(_SMALL_PIECE, len(rows) // (_ROUNDS * threads))))
        places = [address_of(columns[n]) if n in columns else 0 for n in ("weight", "state", "second_state", "scalar")]
        addresses = np.array(places, np.uint64)
        arrays = [address_of(a) for a in (tables.native_threads.counter, pieces, tables.headers, rows, addresses)]
        move = np.array((*arrays, len(pieces), len(tables.headers), len(rows), out), kernel.MOVE)
        with self.store._lock:
            if self.stale:
                return
            if not out:
                for group in self.groups:
                    tables.tables[group].complete_copy()
            tables.native_threads.run(kernel.move_job(), move, threads)
