"""Splitting and sampling rows exactly and repeatably, without moving them.

Every row has a number in its stratum (all rows are one stratum unless `stratify` is given). A permutation that belongs
to the seed and the stratum spreads these numbers, and the first x % of them are the first split: exact proportions, the
same rows on every run and on any engine. Strata are told apart by the hash of their value, so that a missing value is
one, whatever it looks like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.core.described import described
from penstock.core.errors import DataError
from penstock.data.sharing import once
from penstock.data.written_times import read_times

_SMALL = 4096  # rows up to which a stratum is permuted by sorting: a Feistel network of few bits is not uniform
_GOLDEN = 0x9E3779B97F4A7C15


def permuted(numbers: np.ndarray, stratum: np.ndarray, counts: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Where the permutation of `range(counts[s])` that `keys[s]` names sends each number, `s` being its stratum.

    Short ranges are ordered by a random number for each place; long ones go through a Feistel network, which needs no
    memory.

    >>> places = permuted(np.arange(10), np.zeros(10, np.int64), np.array([10]), np.array([3], np.uint64))
    >>> sorted(places.tolist()) == list(range(10))
    True
    """
    from penstock.kernels.cpu_split import network_places

    is_small = counts <= _SMALL
    if not is_small.any():
        return network_places(numbers, stratum, counts, keys)
    small = is_small[stratum]
    places = np.empty(len(numbers), np.int64)
    places[small] = _sorted_places(numbers[small], counts[stratum[small]], keys[stratum[small]])
    if not small.all():
        places[~small] = network_places(numbers[~small], stratum[~small], counts, keys)
    return places


def _sorted_places(numbers: np.ndarray, counts: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Every range that occurs, written out once, with each place's rank by a random number of its own."""
    distinct, first, which = np.unique(keys, return_index=True, return_inverse=True)
    sizes = counts[first]
    starts = np.cumsum(sizes) - sizes
    owner = np.repeat(np.arange(len(distinct)), sizes)
    inside = np.arange(len(owner)) - starts[owner]
    with np.errstate(over="ignore"):
        draws = _mix(_mix(distinct)[owner] + inside.astype(np.uint64) * np.uint64(_GOLDEN))
    ranks = np.empty(len(owner), np.int64)
    ranks[np.lexsort((draws, owner))] = inside
    chosen: np.ndarray = ranks[starts[which] + numbers]
    return chosen


def _mix(x: np.ndarray) -> np.ndarray:
    """SplitMix64's output function."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: np.ndarray = x ^ (x >> np.uint64(31))
        return mixed


def shares(fractions: Sequence[float | Fraction], counts: np.ndarray | Sequence[int]) -> np.ndarray:
    """Rows of each split in each stratum, `(strata, splits)`: every stratum adds up, and so does every split.

    A stratum whose share is not a whole number gets the rows left over in turn with the strata beside it.

    >>> shares([0.8, 0.2], [11]).tolist(), shares([0.5, 0.5], [1, 1, 1, 1]).tolist()
    ([[9, 2]], [[1, 0], [0, 1], [1, 0], [0, 1]])
    """
    exact = [Fraction(f).limit_denominator(2**30) for f in fractions]
    left, rest = np.asarray(counts, np.int64), sum(exact, Fraction(0))
    given = np.zeros((len(left), len(exact)), np.int64)
    for which, fraction in enumerate(exact):
        part = (fraction / rest).limit_denominator(2**30) if rest else Fraction(0)
        whole, remainder = np.divmod(left * part.numerator, part.denominator)
        seen = np.concatenate([[0], np.cumsum(remainder)]) * 2 + part.denominator  # halves round up
        given[:, which] = whole + np.diff(seen // (2 * part.denominator))
        left, rest = left - given[:, which], rest - fraction
    return given


class Strata(NamedTuple):
    """The strata of one partition, by the hash of their value in ascending order."""

    hashes: np.ndarray
    first: np.ndarray  # the number of the stratum's first row in this partition
    counts: np.ndarray  # the stratum's rows in the whole data set
    keys: np.ndarray  # which permutation
    ends: np.ndarray  # (strata, splits): where each split ends in the permuted numbers


def count_strata(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct hashes of one partition's strata and the rows of each."""
    return np.unique(hashes, return_counts=True)


def allot(counted: Sequence[tuple[np.ndarray, np.ndarray]], fractions: Sequence[Any], seed: int) -> list[Strata]:
    """What each partition must know to choose its rows, from what `count_strata` found in all of them."""
    sizes = [len(hashes) for hashes, _ in counted]
    hashes = np.concatenate([h for h, _ in counted]).astype(np.uint64)
    rows = np.concatenate([c for _, c in counted]).astype(np.int64)
    distinct, which = np.unique(hashes, return_inverse=True)
    order = np.argsort(which, kind="stable")  # by stratum, the partitions in their order
    total = np.bincount(which, rows, len(distinct)).astype(np.int64)
    before = np.cumsum(rows[order]) - rows[order]
    first = np.empty(len(rows), np.int64)
    first[order] = before - (np.cumsum(total) - total)[which[order]]
    keys = _mix(distinct ^ _mix(np.array([seed * _GOLDEN + 1 & 2**64 - 1], np.uint64)))
    turn = np.argsort(keys, kind="stable")  # at random: which strata get a row left over has nothing to do with values
    ends = np.empty((len(distinct), len(fractions)), np.int64)
    ends[turn] = np.cumsum(shares(fractions, total[turn]), axis=1)
    cuts = np.cumsum(sizes)[:-1]
    return [
        Strata(distinct[w], f, total[w], keys[w], ends[w])
        for w, f in zip(np.split(which, cuts), np.split(first, cuts), strict=True)
    ]


def strata_hashes(frame: pl.DataFrame, stratify: str | None) -> np.ndarray:
    """What tells the strata of a frame's rows apart."""
    from penstock.data.keys import stable_hashes

    return np.zeros(frame.height, np.uint64) if stratify is None else stable_hashes(frame[stratify])


@dataclass(frozen=True, eq=False)
class RowSplit:
    """Keeps the rows of one split of one partition."""

    which: int
    strata: Strata
    stratify: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """What it looks at."""
        return () if self.stratify is None else (self.stratify,)

    @property
    def share(self) -> float:
        """Of the rows that it keeps."""
        ends = self.strata.ends[:, self.which].sum() - (self.strata.ends[:, self.which - 1].sum() if self.which else 0)
        return float(ends / max(1, self.strata.counts.sum()))

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        strata = self.strata
        if self.stratify is None and len(strata.counts) == 1 and strata.counts[0] > _SMALL:
            return frame.filter(self._chosen_of_one(frame.height))
        stratum, numbers = self._numbered(frame)
        places = permuted(numbers, stratum, strata.counts, strata.keys)
        ends = strata.ends[0] if len(strata.hashes) == 1 else strata.ends[stratum].T
        chosen = places < ends[self.which]
        if self.which:
            chosen &= places >= ends[self.which - 1]
        return frame.filter(pl.Series(chosen))

    def _chosen_of_one(self, num_rows: int) -> pl.Series:
        """The same for rows of one long stratum: in one call, for the other splits too, which may be read as well."""
        from penstock.kernels.cpu_split import split_masks

        strata = self.strata
        first, count, key = int(strata.first[0]), int(strata.counts[0]), int(strata.keys[0])
        if first + num_rows > count:
            raise _other_rows()
        masks = once((id(strata), num_rows), lambda: split_masks(first, num_rows, count, key, strata.ends[0]))
        bits = pa.py_buffer(masks[self.which])
        return pl.Series(pa.Array.from_buffers(pa.bool_(), num_rows, [None, bits]))

    def _numbered(self, frame: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """The stratum of each row, and its number in it."""
        strata = self.strata
        if self.stratify is None:
            stratum = np.zeros(frame.height, np.int64)
            numbers = np.arange(frame.height) + strata.first[0]
            is_known = strata.first[0] + frame.height <= strata.counts[0]
        else:
            hashes = strata_hashes(frame, self.stratify)
            stratum = np.searchsorted(strata.hashes, hashes)
            known = stratum < len(strata.hashes)
            known[known] = strata.hashes[stratum[known]] == hashes[known]
            numbers = _ranks(stratum, len(strata.hashes) + 1)
            is_known = bool(known.all())
            if is_known:
                numbers += strata.first[stratum]
                is_known = bool((numbers < strata.counts[stratum]).all())
        if not is_known:
            raise _other_rows()
        return stratum, numbers


def _other_rows() -> DataError:
    return DataError(
        "the rows are not those that the split was made of; files must not change, and functions on the way must "
        "always give the same rows: split the data again"
    )


def _ranks(groups: np.ndarray, num_groups: int) -> np.ndarray:
    """The number of each item among those of its group."""
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups, minlength=num_groups)
    ranks = np.empty(len(groups), np.int64)
    ranks[order] = np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ranks


@dataclass(frozen=True)
class HashSplit:
    """Keeps the rows whose key falls in one split: all rows of a user go together."""

    fractions: tuple[float, ...]
    which: int
    seed: int
    keys: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """What it looks at."""
        return self.keys

    @property
    def share(self) -> float:
        """Of the rows that it keeps: not known."""
        return 0.0

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        from penstock.data.exchange import row_hashes

        bounds = np.cumsum(self.fractions)
        bounds /= bounds[-1]  # not by sum(), which may round another way and leave a key beyond the last bound
        share = (row_hashes(frame, self.keys, self.seed) >> np.uint64(11)).astype(np.float64) / 2**53
        return frame.filter(pl.Series(np.searchsorted(bounds, share, side="right") == self.which))


@dataclass(frozen=True)
class TimeSplit:
    """Keeps the rows of one stretch of time: those at or after exactly `which` of the `bounds`.

    A bound of None lies beyond every row. Rows without a time (null, NaN) go to split `missing`. Text is read by `form`
    where there is one.
    """

    column: str
    bounds: tuple[Any, ...]
    which: int
    missing: int
    form: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """What it looks at."""
        return (self.column,)

    @property
    def share(self) -> float:
        """Of the rows that it keeps: not known."""
        return 0.0

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        times = known_times(frame[self.column], self.form)
        passed = np.zeros(frame.height, np.int64)
        for bound in self.bounds:
            if bound is not None:
                passed += (times >= pl.Series([bound], dtype=times.dtype)).fill_null(False).to_numpy()
        return frame.filter(pl.Series(np.where(times.is_null().to_numpy(), self.missing, passed) == self.which))


def known_times(times: pl.Series, form: str | None = None) -> pl.Series:
    """A column of times with NaN as null; categories in the order of their text, and text in that of its times."""
    times = described(times)
    if form is not None:
        return read_times(times.cast(pl.String), form)
    return times.fill_nan(None) if times.dtype.is_float() else times


def time_bounds(times: pl.Series, fractions: Sequence[float], form: str | None = None) -> tuple[Any, ...]:
    """The first time of each split but the first; None where no row is left for it.

    Rows of one time stay together, so a cut inside them moves to the nearer edge.

    >>> time_bounds(pl.Series([1, 2, 3, 4]), [0.5, 0.5]), time_bounds(pl.Series([1, 2]), [0.9, 0.1])
    ((3,), (None,))
    >>> time_bounds(pl.Series([1, 1, 1, 2]), [0.5, 0.5])
    (2,)
    """
    times = known_times(times, form).drop_nulls().sort()
    bounds: list[Any] = []
    for cut in np.cumsum(shares(fractions, [len(times)])[0])[:-1].tolist():
        if cut < len(times):
            low = int(times.search_sorted(times[cut], side="left"))
            high = int(times.search_sorted(times[cut], side="right"))
            cut = low if cut - low <= high - cut else high
        bounds.append(times[cut] if cut < len(times) else None)
    return tuple(bounds)
