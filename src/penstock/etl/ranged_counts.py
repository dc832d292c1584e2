"""Counts of one column that many threads have made, put together on all cores: each takes a range of hashed values.

One after another, tables would go into the largest by a single thread, which is where many cores wait for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from penstock.engine import Engine

if TYPE_CHECKING:
    from penstock.kernels.cpu_vocab import Counter

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
        return cls.all_merged([tables], engine)[0]

    @classmethod
    def all_merged(cls, columns: Sequence[list[Counter | RangedCounter]], engine: Engine) -> list[RangedCounter]:
        """The same of the tables of several columns, side by side: threads start once for all of them."""
        about = [(own[0].kind, sum(t.num_rows for t in own), sum(t.num_null for t in own)) for own in columns]
        num_ranges = min(engine.num_workers, _MOST_RANGES)
        sources = [place for place, own in enumerate(columns) for _ in own]
        cut: list[list[list[Piece]]] = [[] for _ in columns]
        for place, pieces in zip(
            sources, engine.map(lambda p: _cut(columns[p].pop(), num_ranges), sources), strict=True
        ):
            cut[place].append(pieces)
        targets = [(place, number) for place in range(len(columns)) for number in range(num_ranges)]

        def count(target: tuple[int, int]) -> Counter:
            place, number = target
            return _counted(about[place][0], [pieces[number] for pieces in cut[place]])

        parts = list(engine.map(count, targets))
        firsts = range(0, len(parts), num_ranges)
        return [
            cls(parts[first : first + num_ranges], rows, nulls)
            for first, (_, rows, nulls) in zip(firsts, about, strict=True)
        ]

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
    """A table's values with their counts, range by range; the lock is taken a few times, however many they are."""
    from penstock.kernels.cpu_table import cut_ranges

    keys, counts = table.items()
    sorted_keys, sorted_counts = np.empty_like(keys), np.empty_like(counts)
    bounds = cut_ranges(keys, counts, num_ranges, sorted_keys, sorted_counts).tolist()
    return [(sorted_keys[begin:end], sorted_counts[begin:end]) for begin, end in pairwise(bounds)]


def _counted(kind: str, pieces: Sequence[Piece]) -> Counter:
    from penstock.kernels.cpu_vocab import Counter

    # Room for half of the pieces: growing on the way took as long as the counting.
    counter = Counter(kind, expected=min(sum(len(keys) for keys, _ in pieces) // 2, 1 << 30))
    for keys, counts in pieces:
        counter.add(keys, weights=counts)
    return counter
