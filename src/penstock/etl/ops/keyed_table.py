"""Rows of a small table by their key, for each row of a large frame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from penstock.etl.vocabulary import VALUE, Codes, Vocabulary

_LAYOUT = Codes(null=0, oov=1, num_buckets=1)  # which rows of a table belong to what


class KeyedTable:
    """A table with a key in every row, no key twice; null is a key like any other.

    One key column is looked up as categories are, which takes a third of the time of a join and needs the interpreter
    once; several are joined.

    Args:
        frame: keys and what belongs to them.
        keys: which columns are keys.

    >>> table = KeyedTable(pl.DataFrame({"k": ["a", None], "x": [1, 2]}), ["k"])
    >>> table.rows_of(pl.DataFrame({"k": ["b", "a", None]}))["x"].to_list()
    [None, 1, 2]
    """

    def __init__(self, frame: pl.DataFrame, keys: Sequence[str]) -> None:
        self.frame, self._keys = frame, list(keys)
        self._values: pl.DataFrame | None = None
        if len(self._keys) == 1 and frame[self._keys[0]].n_unique() == frame.height:
            is_null = pl.col(self._keys[0]).is_null()
            known, of_null = frame.filter(~is_null), frame.filter(is_null)
            # First the row of null, then one without values, for keys that are not there.
            nothing = frame.clear(1)
            rows = [of_null if of_null.height else nothing, nothing, known]
            self._values = pl.concat(rows, rechunk=True).drop(self._keys)
            self._known = Vocabulary(known[self._keys[0]].alias(VALUE))

    def rows_of(self, keys: pl.DataFrame) -> pl.DataFrame:
        """What belongs to each row's key, null where it is not there.

        Args:
            keys: the key columns, under the names of the table's.

        Returns:
            As many rows, without the keys.
        """
        if self._values is None:
            found = keys.join(self.frame, on=self._keys, how="left", nulls_equal=True, maintain_order="left")
            return found.drop(self._keys)
        places = self._known.encode(keys[self._keys[0]], _LAYOUT, np.dtype(np.int32))
        return self._values[pl.Series(places.view(np.uint32))]
