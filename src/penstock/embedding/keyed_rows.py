"""A store's rows by number (`StoreRows`) for whoever has keys of its own in place of signs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.embedding.store import Store
from penstock.embedding.store_rows import StoreRows


class KeyedRows(ABC):
    """Rows of slots of a store. Keys come in ascending order; which is a key's sign, and of which table, says `_signs`.

    Args:
        store: whose rows they are.
        names: the slots.
    """

    _step: int | None = None  # that new rows come in; None where that is one of its own

    def __init__(self, store: Store, names: Sequence[str]) -> None:
        self.store, self._rows = store, StoreRows(store, names)

    @property
    def stale(self) -> bool:
        """Whether numbers may name other rows than they did, or none."""
        return self._rows.stale

    def renew(self) -> None:
        """Whoever keeps numbers has forgotten them."""
        self._rows.renew()

    @property
    def count(self) -> int:
        """Rows of the whole store."""
        return self.store.tables.rows

    @abstractmethod
    def known(self) -> np.ndarray | None:
        """The numbers of rows that the store has, as far as they are told beforehand."""

    def find(self, keys: np.ndarray, insert: bool = True) -> np.ndarray:
        """The numbers of keys; ids not seen before are inserted with their initial values, or have -1."""
        return self._rows.find(self._signs(keys), self._cuts(keys), insert, self._step)

    def read(self, keys: np.ndarray, numbers: np.ndarray, columns: Mapping[str, Any]) -> None:
        """Copy rows out to the columns."""
        self._rows.move(self._cuts(keys), numbers, columns, out=True)

    def write(
        self, keys: np.ndarray, numbers: np.ndarray, columns: Mapping[str, Any], stamps: np.ndarray | None = None
    ) -> None:
        """Copy rows in from the columns; none twice. `stamps` are the steps that used them last (0: the store knows).

        Whoever follows which rows change shall see it.
        """
        cuts, tables = self._cuts(keys), self.store.tables
        self._rows.move(cuts, numbers, columns, out=False)
        seen = max(tables.watchers.values(), default=-1)
        if stamps is not None:  # what was looked at before a row's step was done is told again
            self._rows.touch(self._signs(keys), cuts, np.where((stamps > 0) & (stamps <= seen), tables.clock, stamps))
        elif tables.watchers:
            self._rows.touch(self._signs(keys), cuts, np.full(len(keys), tables.clock))

    @abstractmethod
    def _signs(self, keys: np.ndarray) -> np.ndarray:
        """Their signs in the store's index."""

    @abstractmethod
    def _cuts(self, keys: np.ndarray) -> np.ndarray:
        """Where each table's keys begin, and where the last ones end."""
