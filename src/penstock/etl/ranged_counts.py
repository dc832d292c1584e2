"""Counts of one column that many threads have made, put together on all cores: each takes a range of hashed values.

One after another, tables would go into the largest by a single thread, which is where many cores wait for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.engine import Engine

if TYPE_CHECKING:
    from penstock.kernels.cpu_table_merge import Piece
    from penstock.kernels.cpu_vocab import Counter

_MOST_RANGES = 256


class RangedCounter:
    """What several `Counter`s of integers have counted, range by range; a table again when more is to be counted.

    >>> from penstock.engine.local import LocalEngine
    >>> from penstock.kernels.cpu_vocab import Counter
    >>> tables = [Counter("uint32"), Counter("uint32")]
    >>> for table, values in zip(tables, ([5, 7, 5], [7, 9])):
    ...     table.add(np.array(values, np.uint32))
    >>> counted = RangedCounter.merged(tables, LocalEngine(2))
    >>> sorted(zip(*(part.tolist() for part in counted.items())))
    [(5, 2), (7, 2), (9, 1)]
    """

    def __init__(self, kind: str, pieces: list[Piece], num_rows: int, num_null: int) -> None:
        self.kind, self.num_rows, self.num_null = kind, num_rows, num_null
        self._pieces = pieces  # no value in two of them
        self._counter: Counter | None = None  # which has them all, once more was counted

    @classmethod
    def merged(cls, tables: list[Counter | RangedCounter], engine: Engine) -> RangedCounter:
        """What all tables have counted, which are given up for it: the list is empty then."""
        return cls.all_merged([tables], engine)[0]

    @classmethod
    def all_merged(cls, columns: Sequence[list[Counter | RangedCounter]], engine: Engine) -> list[RangedCounter]:
        """The same of the tables of several columns, a range of all of them at a time: threads start once."""
        from penstock.kernels.cpu_table_merge import RangeMerge

        out = [cls(own[0].kind, [], sum(t.num_rows for t in own), sum(t.num_null for t in own)) for own in columns]
        num_ranges = min(2 * engine.num_workers, _MOST_RANGES)
        for kind in sorted({own.kind for own in out}):
            places = [place for place, own in enumerate(out) if own.kind == kind]
            merge = RangeMerge([list(engine.map(_alike, columns[place])) for place in places])
            for pieces in engine.map(partial(merge.merged, num_ranges=num_ranges), range(num_ranges)):
                for place, piece in zip(places, pieces, strict=True):
                    out[place]._pieces.append(piece)
        for own in columns:
            own.clear()
        return out

    def add(self, keys: np.ndarray, valid: np.ndarray | None = None, weights: np.ndarray | None = None) -> None:
        """Count more rows, as `Counter.add` does."""
        self._whole().add(keys, valid, weights)

    def merge(self, other: Counter | RangedCounter) -> None:
        """Add another's values and counts."""
        self._whole().merge(other)  # type: ignore[arg-type]

    def reserve(self, num_values: int) -> None:
        """Make room for so many more values."""
        self._whole().reserve(num_values)

    def items(self) -> Piece:
        """Values and their counts."""
        if self._counter is not None:
            return self._counter.items()
        return np.concatenate([keys for keys, _ in self._pieces]), np.concatenate([own for _, own in self._pieces])

    def __len__(self) -> int:
        return len(self._counter) if self._counter is not None else sum(len(keys) for keys, _ in self._pieces)

    @property
    def nbytes(self) -> int:
        """Memory held."""
        if self._counter is not None:
            return self._counter.nbytes
        return sum(keys.nbytes + counts.nbytes for keys, counts in self._pieces)

    def _whole(self) -> Counter:
        if self._counter is None:
            self._counter = _counted(self)
            self._pieces = []
        return self._counter


def _alike(table: Counter | RangedCounter) -> Counter:
    """The table, under the key that all have; one that is not is built again."""
    from penstock.kernels.cpu_table import shared_key

    return table if not isinstance(table, RangedCounter) and table.key == shared_key() else _counted(table)


def new_counter(kind: str) -> Any:
    """An empty table for keys of a kind, under the key that all have."""
    from penstock.kernels.cpu_table import shared_key
    from penstock.kernels.cpu_text_vocab import TextCounter
    from penstock.kernels.cpu_vocab import Counter

    return TextCounter(key=shared_key()) if kind == "bytes" else Counter(kind, key=shared_key())


def _counted(table: Counter | RangedCounter) -> Counter:
    keys, counts = table.items()
    counter: Counter = new_counter(table.kind)
    counter.reserve(len(counts))
    counter.add(keys, weights=counts)
    return counter
