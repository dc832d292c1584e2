"""Mergeable medians: how often each value occurs, exactly while the distinct values are few, else in narrow buckets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.core.errors import ParameterError
from penstock.core.params import Int, Real, check
from penstock.kernels.cpu_intrinsics import KERNEL, kernel_input
from penstock.kernels.cpu_vocab import Counter
from penstock.kernels.kernel_cache import njit

BUCKET_BITS = 22  # sign, exponent and 10 bits of mantissa of a float64: buckets are 0.1 % wide
CHUNK = 1 << 15
U64 = np.uint64
NO_MASK = np.empty(0, np.uint8)


class ValueHistogram:
    """Value counts for quantiles of one column.

    Up to `limit` distinct values the counts are exact and so are the quantiles. Beyond it, values fall into buckets by
    the upper 22 bits of their float64, and quantiles are off by at most 0.05 % of the value. Which of the two holds
    depends on the data alone, so partitions may be added and merged in any order. NaN counts as missing, -0.0 as 0.0;
    integers beyond 2**53 are rounded to float64.

    >>> histogram = ValueHistogram()
    >>> histogram.add(np.array([3, 1, 2, 10]))
    >>> histogram.median(), histogram.quantile(1.0), histogram.is_exact
    (2.5, 10.0, True)
    """

    def __init__(self, limit: int = 100_000) -> None:
        check("limit", limit, Int(min=0))
        self.limit, self.count, self.missing = limit, 0, 0
        self.minimum, self.maximum = math.inf, -math.inf
        self._exact: Counter | None = Counter("uint64")
        self._buckets = Counter("uint32")

    @property
    def is_exact(self) -> bool:
        """Whether every value is still counted on its own."""
        return self._exact is not None

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self._buckets.nbytes + (self._exact.nbytes if self._exact is not None else 0)

    def add(self, values: np.ndarray, valid: np.ndarray | None = None) -> None:
        """Count the values of a float or integer array; null and NaN rows are missing."""
        values = np.asarray(values)
        if values.dtype.kind not in "iufb":
            raise ParameterError(f"a histogram takes numbers, got {values.dtype}")
        values = kernel_input(values, np.float32 if values.dtype == np.float16 else None)
        mask = NO_MASK if valid is None else kernel_input(valid, np.uint8)
        patterns = np.empty(min(CHUNK, len(values)), np.uint64)
        for start in range(0, len(values), CHUNK):
            part = values[start : start + CHUNK]
            filled = _sortable_patterns(part, mask[start : start + CHUNK], patterns)
            self.missing += len(part) - filled
            if filled:
                self._add_patterns(patterns[:filled])

    def merge(self, other: ValueHistogram) -> None:
        """Add another histogram's counts."""
        if other.limit != self.limit:
            raise ParameterError(f"histograms must share their limit, got {self.limit} and {other.limit}")
        self.count, self.missing = self.count + other.count, self.missing + other.missing
        self.minimum, self.maximum = min(self.minimum, other.minimum), max(self.maximum, other.maximum)
        if self._exact is not None and other._exact is not None:
            self._exact.merge(other._exact)
            self._check_limit()
            return
        self._degrade()
        if other._exact is not None:
            patterns, counts = other._exact.items()
            self._buckets.add(_bucket_of(patterns), weights=counts)
        else:
            self._buckets.merge(other._buckets)

    def quantile(self, q: float) -> float:
        """The value at rank `q * (count - 1)`, interpolated between neighbours as NumPy does; NaN where empty."""
        check("q", q, Real(min=0, max=1))
        if not self.count:
            return math.nan
        values, counts = self._sorted_values()
        rank = q * (self.count - 1)
        below, fraction = int(rank), rank - int(rank)
        ends = np.cumsum(counts)
        low = float(values[np.searchsorted(ends, below, side="right")])
        high = float(values[np.searchsorted(ends, min(below + 1, self.count - 1), side="right")])
        if low == high or fraction == 0:  # also keeps infinities out of the differences below
            return low
        return low + (high - low) * fraction if fraction < 0.5 else high - (high - low) * (1 - fraction)

    def median(self) -> float:
        """`quantile(0.5)`."""
        return self.quantile(0.5)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, and the same for the same data in any order; floats as the integers of their sortable bits."""
        keys, counts = (self._exact if self._exact is not None else self._buckets).items()
        order = np.argsort(keys)
        ends = _patterns_of(np.array([self.minimum, self.maximum])).tolist()
        return {
            "limit": self.limit, "count": self.count, "missing": self.missing, "exact": self.is_exact, "ends": ends,
            "keys": keys[order].tolist(), "counts": counts[order].tolist(),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> ValueHistogram:
        """The inverse of `to_dict`."""
        histogram = cls(state["limit"])
        histogram.count, histogram.missing = state["count"], state["missing"]
        histogram.minimum, histogram.maximum = _values_of(np.array(state["ends"], np.uint64)).tolist()
        counts = np.array(state["counts"], np.int64)
        if state["exact"]:
            histogram._exact = Counter("uint64")
            histogram._exact.add(np.array(state["keys"], np.uint64), weights=counts)
        else:
            histogram._exact = None
            histogram._buckets.add(np.array(state["keys"], np.uint32), weights=counts)
        return histogram

    def _add_patterns(self, patterns: np.ndarray) -> None:
        self.count += len(patterns)
        ends = _values_of(np.array([patterns.min(), patterns.max()]))
        self.minimum, self.maximum = min(self.minimum, float(ends[0])), max(self.maximum, float(ends[1]))
        if self._exact is None:
            self._buckets.add(_bucket_of(patterns))
            return
        self._exact.add(patterns)
        self._check_limit()

    def _check_limit(self) -> None:
        if self._exact is not None and len(self._exact) > self.limit:
            self._degrade()

    def _degrade(self) -> None:
        if self._exact is not None:
            patterns, counts = self._exact.items()
            self._exact = None
            self._buckets.add(_bucket_of(patterns), weights=counts)

    def _sorted_values(self) -> tuple[np.ndarray, np.ndarray]:
        """Values in ascending order with their counts; a bucket stands for its middle, within the extremes seen."""
        if self._exact is not None:
            patterns, counts = self._exact.items()
        else:
            buckets, counts = self._buckets.items()
            spare = U64(64 - BUCKET_BITS)
            patterns = (buckets.astype(np.uint64) << spare) | (U64(1) << (spare - U64(1)))
        order = np.argsort(patterns)
        values = _values_of(patterns[order])
        nan = np.isnan(values)  # the middle of an infinity's bucket, which holds nothing else
        values[nan] = np.copysign(math.inf, values[nan])
        return np.clip(values, self.minimum, self.maximum), counts[order]


def _bucket_of(patterns: np.ndarray) -> np.ndarray:
    return (patterns >> U64(64 - BUCKET_BITS)).astype(np.uint32)


def _patterns_of(values: np.ndarray) -> np.ndarray:
    patterns = np.empty(len(values), np.uint64)
    return patterns[: _sortable_patterns(values, NO_MASK, patterns)]


def _values_of(patterns: np.ndarray) -> np.ndarray:
    """The floats whose sortable patterns these are."""
    top = U64(1) << U64(63)
    return np.where(patterns & top, patterns ^ top, ~patterns).view(np.float64)


@njit(**KERNEL)
def _sortable_patterns(values: np.ndarray, mask: np.ndarray, out: np.ndarray) -> Any:
    """The present values as uint64 in the same order: `bits ^ (all ones if negative, else the sign bit)`."""
    filled = U64(0)
    one = np.empty(1, np.float64)
    bits = one.view(np.uint64)
    for row in range(values.shape[0]):
        one[0] = np.float64(values[row]) + 0.0  # -0.0 + 0.0 is 0.0
        word = bits[0]
        out[filled] = word ^ ((U64(0) - (word >> U64(63))) | (U64(1) << U64(63)))
        present = (mask.shape[0] == 0 or mask[row] != 0) and one[0] == one[0]
        filled += U64(present)
    return np.int64(filled)
