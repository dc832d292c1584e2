"""The rows of hashed ids in a store, by number (`StoreRows`). A *key* is a table's number and an id, `(n, 2)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.embedding.store import Store
from penstock.embedding.store_rows import StoreRows


class SignedRows:
    """Rows of slots of a store whose ids are of any number. Keys come in order: by the table, then by the id.

    >>> from penstock.embedding import SGD, SlotConfig
    >>> store = Store([SlotConfig("user", 4), SlotConfig("item", 4)], SGD(lr=0.1))
    >>> rows, keys = SignedRows(store, ["user", "item"]), np.array([[0, 2**60], [1, 5]])
    >>> rows.find(keys, insert=False), rows.find(keys)
    (array([-1, -1]), array([0, 0]))
    >>> rows.write(keys, np.array([0, 0]), {"weight": np.ones((2, 4), np.float32)})
    >>> float(store.lookup({"user": [2**60], "item": [5]}, train=False).packed.sum())
    8.0
    >>> store.close()
    """

    def __init__(self, store: Store, names: Sequence[str]) -> None:
        self.store, self._rows = store, StoreRows(store, names)

    @property
    def stale(self) -> bool:
        """Whether numbers may name other rows than they did, or none."""
        return self._rows.stale

    def renew(self) -> None:
        """Whoever keeps numbers has forgotten them."""
        self._rows.renew()

    def known(self) -> None:
        """Which rows the store has is not told beforehand: whoever wants to know asks by key."""

    def find(self, keys: np.ndarray, insert: bool = True) -> np.ndarray:
        """The numbers of keys; ids not seen before are inserted with their initial values, or have -1."""
        return self._rows.find(self._signs(keys), self._cuts(keys), insert)

    def read(self, keys: np.ndarray, numbers: np.ndarray, columns: Mapping[str, Any]) -> None:
        """Copy rows out to the columns."""
        self._rows.move(self._cuts(keys), numbers, columns, out=True)

    def write(self, keys: np.ndarray, numbers: np.ndarray, columns: Mapping[str, Any]) -> None:
        """Copy rows in from the columns; none twice."""
        cuts = self._cuts(keys)
        self._rows.move(cuts, numbers, columns, out=False)
        if self.store.tables.watchers:  # someone follows which rows change
            self._rows.touch(self._signs(keys), cuts)

    def _signs(self, keys: np.ndarray) -> np.ndarray:
        signs: np.ndarray = keys[:, 1].astype(np.uint64) + self._rows.prefixes[keys[:, 0]]
        return signs

    def _cuts(self, keys: np.ndarray) -> np.ndarray:
        return np.searchsorted(keys[:, 0], np.arange(len(self._rows.groups) + 1))
