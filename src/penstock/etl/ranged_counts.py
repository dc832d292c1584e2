"""Counts of one column that many threads have made, put together on all cores: each takes a range of hashed values.

One after another, tables would go into the largest by a single thread, which is where many cores wait for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock.engine import Engine

if TYPE_CHECKING:
    from penstock.kernels.cpu_vocab import Counter

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MOST_RANGES = 256
Piece = tuple[np.ndarray, np.ndarray]  # values and their counts


class RangedCounter:
    """A `Counter` of integers in several, no value in two of them; one again when more is to be counted.

    >>> from penstock.engine.local import LocalEngine
    >>> from penstock.kernels.cpu_vocab import Counter
    >>> tables = [Counter("uint32"), Counter("uint32")]
    >>> for table, values in zip(tables, ([5, 7, 5], [7, 9])):
    ...     table.add(np.array(values, np.uint32))
    >>> counted = RangedCounter.merged(tables, LocalEngine(2))
    >>> sorted(zip(*(part.tolist() for part in counted.items())))
    [(5, 2), (7, 2), (9, 1)]
    """

    def __init__(self, parts: list[Counter], num_rows: int, num_null: int) -> None:
        self.kind, self.num_rows, self.num_null = parts[0].kind, num_rows, num_null
        self._parts = parts

    @classmethod
    def merged(cls, tables: list[Counter | RangedCounter], engine: Engine) -> RangedCounter:
        """What all tables have counted, which are given up for it: the list is empty then."""
        kind, rows, nulls = tables[0].kind, sum(t.num_rows for t in tables), sum(t.num_null for t in tables)
        num_ranges = min(engine.num_workers, _MOST_RANGES)
        cut = list(engine.map(lambda _: _cut(tables.pop(), num_ranges), range(len(tables))))
        parts = list(engine.map(lambda r: _counted(kind, [pieces[r] for pieces in cut]), range(num_ranges)))
        return cls(parts, rows, nulls)

    def add(self, keys: np.ndarray, valid: np.ndarray | None = None, weights: np.ndarray | None = None) -> None:
        """Count more rows, as `Counter.add` does."""
        self._whole().add(keys, valid, weights)

    def merge(self, other: Counter | RangedCounter) -> None:
        """Add another's values and counts."""
        self._whole().merge(other)  # type: ignore[arg-type]

    def items(self) -> Piece:
        """Values and their counts."""
        pieces = [part.items() for part in self._parts]
        return np.concatenate([keys for keys, _ in pieces]), np.concatenate([counts for _, counts in pieces])

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    @property
    def nbytes(self) -> int:
        """Memory held by the tables."""
        return sum(part.nbytes for part in self._parts)

    def _whole(self) -> Counter:
        self._parts.sort(key=len)
        first = self._parts.pop()
        while self._parts:
            first.merge(self._parts.pop())
        self._parts = [first]
        return first


def _cut(table: Counter | RangedCounter, num_ranges: int) -> list[Piece]:
    """A table's values with their counts, range by range."""
    keys, counts = table.items()
    mixed = (keys.astype(np.uint64) * _GOLDEN) >> np.uint64(40)
    ranges = (mixed * np.uint64(num_ranges) >> np.uint64(24)).astype(np.uint8)
    order = np.argsort(ranges, kind="stable")
    bounds = np.cumsum(np.bincount(ranges, minlength=num_ranges))[:-1]
    return list(zip(np.split(keys[order], bounds), np.split(counts[order], bounds), strict=True))


def _counted(kind: str, pieces: Sequence[Piece]) -> Counter:
    from penstock.kernels.cpu_vocab import Counter

    counter = Counter(kind, expected=max(len(keys) for keys, _ in pieces))
    for keys, counts in pieces:
        counter.add(keys, weights=counts)
    return counter
