"""Rows kept by group (a user, a query), for metrics that look at each group as a whole; in bounded memory.

Groups are known by 64 hashed bits. Beyond `max_rows` only those groups stay whose bits are below a threshold, which is
halved until the rest fits: a sample of groups, each of them whole, that is the same whatever the order of batches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Self

import numpy as np

from penstock.core.errors import DataError
from penstock.metrics.inputs import ScoredRows, read_state
from penstock.metrics.protocol import State

_ALL = 2**64
_COLUMNS = ("group", "score", "label", "weight")
_STATE = (*_COLUMNS, "threshold", "num_nan")


class GroupedRows:
    """Columns of rows: group, score, label, weight.

    >>> rows = GroupedRows("gauc", max_rows=100)
    >>> rows.add(ScoredRows(np.array([0.5]), np.array([1.0]), None, np.array(["ann"]), 0))
    >>> len(rows.columns()[0]), rows.share
    (1, 1.0)
    """

    def __init__(self, metric: str, max_rows: int) -> None:
        self.metric, self.max_rows = metric, max_rows
        self.num_nan, self._threshold = 0, _ALL
        self._parts: list[Sequence[np.ndarray]] = []
        self._num_rows = 0

    @property
    def share(self) -> float:
        """The share of groups that are kept; 1.0 while all are."""
        return self._threshold / _ALL

    def add(self, rows: ScoredRows) -> None:
        """Keep a batch.

        Raises:
            DataError: it has no groups, or they are fractions.
        """
        if rows.groups is None:
            raise DataError(f"{self.metric} needs groups: which user or query each row belongs to")
        self.num_nan += rows.num_nan
        weights = np.ones(len(rows.scores)) if rows.weights is None else rows.weights
        # -0.0 becomes 0.0, and the copy is this one's own.
        self._keep((_hashed(rows.groups, self.metric), rows.scores + 0.0, rows.labels, weights))

    def merge(self, other: Self) -> None:
        """Keep what another one has kept; a group is in both samples or in neither."""
        self.num_nan += other.num_nan
        self._threshold = min(self._threshold, other._threshold)
        self._keep(other.columns())
        self._shrink()

    def columns(self) -> Sequence[np.ndarray]:
        """All rows that are kept: groups as hashes, scores, labels, weights."""
        if not self._parts:
            return np.empty(0, np.uint64), np.empty(0), np.empty(0), np.empty(0)
        if len(self._parts) > 1:
            self._parts = [tuple(np.concatenate(column) for column in zip(*self._parts, strict=True))]
        return self._parts[0]

    def state(self) -> dict[str, np.ndarray]:
        """The columns, the share of groups (as the largest hash that is kept) and `num_nan`."""
        last = np.array([self._threshold - 1], np.uint64)
        return dict(zip(_STATE, (*self.columns(), last, np.array(self.num_nan)), strict=True))

    def load_state(self, state: State) -> None:
        """Hold what `state` gave.

        Raises:
            DataError: it is not the state of a metric by group.
        """
        *columns, threshold, num_nan = read_state(self.metric, state, _STATE)
        if len({len(column) for column in columns}) != 1:
            raise DataError(f"{self.metric}: the state must have as many groups, scores, labels and weights")
        self._threshold, self.num_nan = int(threshold[0]) + 1, int(num_nan)
        self._parts, self._num_rows = [columns], len(columns[0])

    def _keep(self, columns: Sequence[np.ndarray]) -> None:
        if self._threshold < _ALL:
            kept = columns[0] < np.uint64(self._threshold)
            columns = [column[kept] for column in columns]
        self._parts.append(columns)
        self._num_rows += len(columns[0])
        if self._num_rows > self.max_rows:
            self._shrink()

    def _shrink(self) -> None:
        columns = self.columns()
        while True:
            kept = np.ones(len(columns[0]), bool) if self._threshold == _ALL else columns[0] < self._threshold
            if kept.sum() <= self.max_rows:
                break
            if len(np.unique(columns[0][kept])) == 1:
                raise DataError(
                    f"{self.metric}: one group has more than {self.max_rows:,} rows; raise max_rows, or group by "
                    "another column"
                )
            self._threshold //= 2
        self._parts = [tuple(column[kept] for column in columns)]
        self._num_rows = len(self._parts[0][0])


def _hashed(groups: np.ndarray, metric: str) -> np.ndarray:
    """64 bits of each group: integers through SplitMix64, which keeps them apart, all else through BLAKE2."""
    if groups.dtype.kind == "f":
        raise DataError(f"{metric}: groups must be integers or text, got {groups.dtype}")
    if groups.dtype.kind in "iub":
        bits = groups.astype(np.int64).view(np.uint64) if groups.dtype.kind != "u" else groups.astype(np.uint64)
        bits = bits + np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(bits ^ (bits >> np.uint64(31)))
    names, place = np.unique(groups.astype(str), return_inverse=True)
    digests = b"".join(hashlib.blake2b(str(name).encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, np.uint64)[place]
