"""Splitting and sampling rows exactly and repeatably, without moving them.

Every row has a number, in its stratum or in the data set. A keyed permutation of these numbers (a Feistel network,
so nothing is stored) spreads them evenly, and the first x % of the permuted numbers are the first split: exact
proportions, the same rows on every run, on any engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

_ROUNDS = 6


def permuted(numbers: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Where a seeded permutation of `range(count)` sends each of `numbers`.

    >>> sorted(permuted(np.arange(10), 10, seed=3).tolist()) == list(range(10))
    True
    """
    half = np.uint64(max(1, (int(count - 1).bit_length() + 1) // 2)) if count > 1 else np.uint64(1)
    mask = (np.uint64(1) << half) - np.uint64(1)
    values = np.asarray(numbers, np.uint64).copy()
    keys = np.random.default_rng(seed).integers(0, 2**63, _ROUNDS, dtype=np.uint64)
    outside = np.ones(len(values), bool)
    while outside.any():  # the network permutes a power of four; numbers that land beyond `count` walk on
        current = values[outside]
        left, right = current >> half, current & mask
        for key in keys:
            left, right = right, (left ^ _mix(right + key)) & mask
        values[outside] = (left << half) | right
        outside = values >= np.uint64(count)
    return values.astype(np.int64)


def _mix(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def cuts(fractions: Sequence[float], count: int) -> np.ndarray:
    """Split points of `count` rows: rounded so that they add up.

    >>> cuts([0.8, 0.2], 11).tolist()
    [9, 11]
    """
    return np.rint(np.cumsum(fractions) / sum(fractions) * count).astype(np.int64)


@dataclass(frozen=True)
class RowSplit:
    """Keeps the rows of one split of one partition. `first` and `counts` are per stratum (None: one stratum)."""

    fractions: tuple[float, ...]
    which: int
    seed: int
    first: Mapping[object, int]
    counts: Mapping[object, int]
    stratify: str | None = None

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        keep = np.zeros(frame.height, bool)
        if self.stratify is None:
            keep[:] = self._chosen(np.arange(frame.height), None)
        else:
            for (value,), rows in _positions(frame[self.stratify]):
                keep[rows] = self._chosen(np.arange(len(rows)), value)
        return frame.filter(pl.Series(keep))

    def _chosen(self, numbers: np.ndarray, stratum: object) -> np.ndarray:
        count = self.counts[stratum]
        spread = permuted(numbers + self.first[stratum], count, self.seed)
        return np.searchsorted(cuts(self.fractions, count), spread, side="right") == self.which


def _positions(series: pl.Series) -> list[tuple[tuple, np.ndarray]]:
    frame = pl.DataFrame({"value": series, "row": np.arange(len(series))})
    grouped = frame.group_by("value", maintain_order=True).agg("row")
    return [((v,), rows.to_numpy()) for v, rows in zip(grouped["value"], grouped["row"], strict=True)]


@dataclass(frozen=True)
class HashSplit:
    """Keeps the rows whose key falls in one split: all rows of a user go together."""

    fractions: tuple[float, ...]
    which: int
    seed: int
    keys: tuple[str, ...]

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        from penstock.data.exchange import row_hashes

        bounds = np.cumsum(self.fractions) / sum(self.fractions)
        share = (row_hashes(frame, self.keys, self.seed) >> np.uint64(11)).astype(np.float64) / 2**53
        return frame.filter(pl.Series(np.searchsorted(bounds, share, side="right") == self.which))


@dataclass(frozen=True)
class TimeSplit:
    """Keeps the rows whose time lies in `[low, high)`; None is open. Rows without a time go with the earliest."""

    column: str
    low: Any
    high: Any

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        keep = pl.lit(True)
        if self.low is not None:
            keep &= pl.col(self.column) >= self.low
        if self.high is not None:
            keep &= pl.col(self.column) < self.high
        return frame.filter(keep.fill_null(self.low is None))
