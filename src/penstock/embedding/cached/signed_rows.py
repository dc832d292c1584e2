"""The rows of hashed ids in a store, by number (`StoreRows`). A *key* is a table's number and an id, `(n, 2)`."""

from __future__ import annotations

import numpy as np

from penstock.embedding.keyed_rows import KeyedRows


class SignedRows(KeyedRows):
    """Rows of slots of a store whose ids are of any number. Keys come in order: by the table, then by the id.

    >>> from penstock.embedding import SGD, SlotConfig, Store
    >>> store = Store([SlotConfig("user", 4), SlotConfig("item", 4)], SGD(lr=0.1))
    >>> rows, keys = SignedRows(store, ["user", "item"]), np.array([[0, 2**60], [1, 5]])
    >>> rows.find(keys, insert=False), rows.find(keys)
    (array([-1, -1]), array([0, 0]))
    >>> rows.write(keys, np.array([0, 0]), {"weight": np.ones((2, 4), np.float32)})
    >>> float(store.lookup({"user": [2**60], "item": [5]}, train=False).packed.sum())
    8.0
    >>> store.close()
    """

    def known(self) -> None:
        """Which rows the store has is not told beforehand: whoever wants to know asks by key."""

    # A bound on the rows: whoever counts the steps says which of them used a row last, and when rows go.

    @property
    def clock(self) -> int:
        """The step that the store has come to."""
        return self.store.tables.clock

    def take_steps(self, count: int) -> int:
        """The next steps are these; the first of them, in which new rows come."""
        self._step = self.store.tables.clock + 1
        self.store.tables.clock += count
        return self._step

    def take_back(self, clock: int) -> None:
        """The steps after this one are still to come."""
        self.store.tables.clock = clock

    def num_new(self, keys: np.ndarray) -> int:
        """How many keys have no row."""
        return int((self.find(keys, insert=False) < 0).sum())

    def stamp(self, keys: np.ndarray, stamps: np.ndarray) -> None:
        """Say which steps used rows last."""
        self._rows.touch(self._signs(keys), self._cuts(keys), stamps)

    def evict(self) -> np.ndarray:
        """Least recently used rows go where the store has more than its bound; the keys of those that went."""
        gone = self._rows.evict()
        tables = np.repeat(np.arange(len(gone)), [len(signs) for signs in gone])
        signs = np.concatenate([*gone, np.empty(0, np.uint64)])
        return np.stack([tables, (signs - self._rows.prefixes[tables]).view(np.int64)], 1)

    def _signs(self, keys: np.ndarray) -> np.ndarray:
        signs: np.ndarray = keys[:, 1].astype(np.uint64) + self._rows.prefixes[keys[:, 0]]
        return signs

    def _cuts(self, keys: np.ndarray) -> np.ndarray:
        return np.searchsorted(keys[:, 0], np.arange(len(self._rows.groups) + 1))
