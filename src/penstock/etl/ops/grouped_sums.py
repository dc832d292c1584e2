"""Counts, sums and extremes by key that merge in any order to the same bits: what TargetEncoding and JoinGroupby learn.

A float64 sum depends on the order of its terms, an integer sum does not. So each value is cut into whole multiples of
a few powers of two ("limbs", 80 bits each), every limb is added up as a 128-bit integer, and only the totals are
turned into floats again, as pairs of float64 (about 106 bits), which keeps variances honest far from zero. What is
smaller than 2**-140 is taken for zero, so a standard deviation is known to within 2**-68 at best.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from penstock.core.errors import DataError, SchemaError
from penstock.data.keys import one_zero

SUM_LIMBS = (20, -60, -140)  # multiples of 2**20, then of 2**-60 and 2**-140
SQUARE_LIMBS = (100, *SUM_LIMBS)
LARGEST = 2.0**90  # beyond it, squares would leave no room for adding up
SPLITTER = 134217729.0  # 2**27 + 1 cuts a float64 into two halves of 26 bits

Pair = tuple[np.ndarray, np.ndarray]  # an unevaluated sum of two float64, the second below the first's last bit


class GroupedSums:
    """Totals by key. Columns named `min:` and `max:` merge as extremes, all others by addition.

    >>> sums = GroupedSums(["k0"])
    >>> sums.add(pl.DataFrame({"k0": ["a", "b", "a"], "count:x": [1, 1, 1]}))
    >>> sums.add(pl.DataFrame({"k0": ["a"], "count:x": [5]}))
    >>> sums.frame().rows()
    [('a', 7), ('b', 1)]
    """

    def __init__(self, keys: Sequence[str], frames: Iterable[pl.DataFrame] = ()) -> None:
        self.keys = list(keys)
        self._frames = list(frames)  # the first is the largest: the others are merged in when they outgrow it

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows of totals; keys may repeat."""
        self._frames.append(self._merged([frame]))
        pending = sum(f.height for f in self._frames[1:])
        if pending > self._frames[0].height + 10_000:
            self._frames = [self._merged(self._frames)]

    def merge(self, other: GroupedSums) -> GroupedSums:
        merged = GroupedSums(self.keys, self._frames)
        for frame in other._frames:
            merged.add(frame)
        return merged

    def frame(self) -> pl.DataFrame:
        """One row a key, sorted by key; columns by name, since which limbs there are is found on the way."""
        whole = self._merged(self._frames).sort(self.keys, nulls_last=False)
        self._frames = [whole.select(*self.keys, *sorted(set(whole.columns) - set(self.keys)))]
        return self._frames[0]

    def _merged(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        if len(frames) > 1 and any(frame.columns != frames[0].columns for frame in frames):
            frames = _aligned(frames)
        whole = frames[0] if len(frames) == 1 else pl.concat(frames)
        return whole.group_by(self.keys).agg(
            pl.col(n).min() if n.startswith("min:") else pl.col(n).max() if n.startswith("max:") else pl.col(n).sum()
            for n in whole.columns
            if n not in self.keys
        )


def _aligned(frames: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Totals with the same columns: limbs that are all zero are left out, and infinities where there are none."""
    dtypes = {name: dtype for frame in frames for name, dtype in frame.schema.items()}
    return [
        f.with_columns(pl.lit(0, dtype=d).alias(n) for n, d in dtypes.items() if n not in f.columns).select(
            list(dtypes)
        )
        for f in frames
    ]


def key_frame(frame: pl.DataFrame, names: Sequence[str], what: str) -> pl.DataFrame:
    """Key columns under the neutral names k0, k1, …; NaN is a missing key, -0.0 is 0.0."""
    keys = []
    for i, name in enumerate(names):
        series = frame[name]
        if isinstance(series.dtype, (pl.List, pl.Array)):
            raise SchemaError(f"{what} groups by single values; column {name!r} holds lists")
        if series.dtype.is_float():
            series = one_zero(series.fill_nan(None))
        keys.append(series.alias(f"k{i}"))
    return pl.DataFrame(keys)


class Terms(NamedTuple):
    """A column to add up: the nearest float64 of each value, NaN for null, and what integers beyond 2**53 have more."""

    values: np.ndarray
    rest: np.ndarray | None = None


def numbers(series: pl.Series, what: str) -> Terms:
    """A column of numbers to add up."""
    if series.dtype == pl.Boolean:
        series = series.cast(pl.UInt8)
    if not (series.dtype.is_numeric() or series.dtype == pl.Null):
        raise SchemaError(f"{what} needs numbers; column {series.name!r} is {series.dtype}")
    values = series.cast(pl.Float64).fill_null(np.nan).to_numpy(writable=True)
    finite = np.abs(values[np.isfinite(values)])
    if finite.max(initial=0.0) > LARGEST:
        raise DataError(f"{what}: column {series.name!r} holds values beyond {LARGEST:.0e}; clip them first (ops.Clip)")
    if series.dtype not in (pl.Int64, pl.UInt64) or finite.max(initial=0.0) < 2.0**53:
        return Terms(values)
    near = pl.Series(values).fill_nan(None).cast(pl.Int128)
    return Terms(values, (series.cast(pl.Int128) - near).fill_null(0).cast(pl.Float64).to_numpy())


def totals(name: str, terms: Terms, squares: bool = False, sums: bool = True) -> dict[str, pl.Series]:
    """What each row adds to `count:`, `sum<i>:` and `square<i>:` of its key."""
    values, rest = terms
    out = {f"count:{name}": pl.Series((~np.isnan(values)).astype(np.int64))}
    finite = np.isfinite(values)
    if sums or squares:
        for sign, infinity in (("+", np.inf), ("-", -np.inf)):
            if (infinite := values == infinity).any():
                out[f"infinite{sign}:{name}"] = pl.Series(infinite.astype(np.int64))
    values = np.where(finite, values, 0.0)
    if sums:
        for i, limb in _limbs([values] if rest is None else [values, rest], SUM_LIMBS):
            out[f"sum{i}:{name}"] = limb
    if squares:
        high = SPLITTER * values
        high = high - (high - values)
        low = values - high
        products = [high * high, 2.0 * high * low, low * low]
        if rest is not None:  # 11 bits at most: these products are exact too
            products += [2.0 * high * rest, 2.0 * low * rest, rest * rest]
        for i, limb in _limbs(products, SQUARE_LIMBS):
            out[f"square{i}:{name}"] = limb
    return out


def _limbs(terms: list[np.ndarray], exponents: Sequence[int]) -> Iterator[tuple[int, pl.Series]]:
    """The terms' sum in whole multiples of `2**exponent`, and of which; every subtraction here is exact.

    A limb that is 0 in all rows is left out: of numbers as they come, two of three are.
    """
    for number, exponent in enumerate(exponents):
        limb: pl.Series | None = None
        unit = 2.0**exponent
        for i, term in enumerate(terms):
            if np.abs(term).max(initial=0.0) <= unit / 2:
                continue
            whole = np.rint(term * (1.0 / unit))
            terms[i] = term - whole * unit
            part = pl.Series(whole).cast(pl.Int128)
            limb = part if limb is None else limb + part
        if limb is not None:
            yield number, limb


def _infinities(frame: pl.DataFrame, name: str) -> np.ndarray | None:
    """What infinities make of each key's sum: ±inf, NaN where both are there, 0 where none is."""
    found = [
        frame[n].to_numpy() > 0 if n in frame.columns else None for n in (f"infinite+:{name}", f"infinite-:{name}")
    ]
    if all(f is None for f in found):
        return None
    positive, negative = (np.zeros(frame.height, np.bool_) if f is None else f for f in found)
    return np.where(positive & negative, np.nan, np.where(positive, np.inf, np.where(negative, -np.inf, 0.0)))


def total_of(frame: pl.DataFrame, name: str) -> np.ndarray:
    """Each key's sum as float64, infinities included."""
    total, infinite = sum_of(frame, name)[0], _infinities(frame, name)
    return total if infinite is None else np.where(infinite == 0, total, infinite)


def sum_of(frame: pl.DataFrame, name: str) -> Pair:
    """Each key's sum of finite values."""
    return _from_limbs(frame, "sum", name, SUM_LIMBS)


def mean_of(frame: pl.DataFrame, name: str) -> np.ndarray:
    """Each key's mean; NaN where nothing was counted."""
    count = frame[f"count:{name}"].to_numpy().astype(np.float64)
    high, low = _divided(sum_of(frame, name), np.where(count > 0, count, np.nan))
    infinite = _infinities(frame, name)
    return high + low if infinite is None else np.where(infinite == 0, high + low, infinite)


def variance_of(frame: pl.DataFrame, name: str) -> np.ndarray:
    """Each key's sample variance; NaN below two values."""
    count = frame[f"count:{name}"].to_numpy().astype(np.float64)
    usable = np.where(count > 1, count, np.nan)
    squares = _from_limbs(frame, "square", name, SQUARE_LIMBS)
    total = sum_of(frame, name)
    expected = _divided(_product(total, total), usable)
    high, low = _plus(squares, (-expected[0], -expected[1]))
    difference = high + low
    # Whole numbers are exact here while they are short; of others, what two long numbers leave may be all rounding.
    is_whole = [np.rint(pair[0]) == pair[0] for pair in (squares, total)] + [squares[0] < 2.0**53, squares[1] == 0]
    cancelled = np.abs(difference) <= squares[0] * 2.0**-50
    doubtful = (count > 1) & (squares[0] > 0) & cancelled & ~np.logical_and.reduce(is_whole)
    if doubtful.any():
        difference[doubtful] = _exact_differences(frame.filter(pl.Series(doubtful)), name)
    variance = np.maximum(difference / (usable - 1.0), 0.0)
    infinite = _infinities(frame, name)  # the spread around an infinity is not defined
    return variance if infinite is None else np.where(infinite == 0, variance, np.nan)


def _exact_differences(frame: pl.DataFrame, name: str) -> list[float]:
    """Sum of squares less square of the sum over the count, in Python's integers: for the few keys that need it."""
    units = -SUM_LIMBS[-1]  # everything in multiples of the smallest limb's power of two
    totals_, squares = ([0] * frame.height for _ in range(2))
    for kind, exponents, into in (("sum", SUM_LIMBS, totals_), ("square", SQUARE_LIMBS, squares)):
        for i, exponent in enumerate(exponents):
            column = f"{kind}{i}:{name}"
            for row, limb in enumerate(frame[column].to_list() if column in frame.columns else ()):
                into[row] += limb << (exponent + units)
    counts = frame[f"count:{name}"].to_list()
    return [
        ((n * square << units) - total * total) / (n << (2 * units))
        for n, total, square in zip(counts, totals_, squares, strict=True)
    ]


def _from_limbs(frame: pl.DataFrame, kind: str, name: str, exponents: Sequence[int]) -> Pair:
    """The sum of the limbs that are there."""
    total: Pair = (np.zeros(frame.height), np.zeros(frame.height))
    for number, exponent in enumerate(exponents):
        if (column := f"{kind}{number}:{name}") not in frame.columns:
            continue
        limb = frame[column]
        high = limb.cast(pl.Float64)
        low = (limb - high.cast(pl.Int128)).cast(pl.Float64)
        total = _plus(total, (np.ldexp(high.to_numpy(), exponent), np.ldexp(low.to_numpy(), exponent)))
    return total


def _two_sum(a: np.ndarray, b: np.ndarray) -> Pair:
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def _two_product(a: np.ndarray, b: np.ndarray) -> Pair:
    product = a * b
    a_high, b_high = SPLITTER * a, SPLITTER * b
    a_high, b_high = a_high - (a_high - a), b_high - (b_high - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _plus(left: Pair, right: Pair) -> Pair:
    high, low = _two_sum(left[0], right[0])
    tail, rest = _two_sum(left[1], right[1])
    high, low = _two_sum(high, low + tail)
    return _two_sum(high, low + rest)


def _product(left: Pair, right: Pair) -> Pair:
    high, low = _two_product(left[0], right[0])
    return _two_sum(high, low + (left[0] * right[1] + left[1] * right[0]))


def _divided(left: Pair, by: np.ndarray) -> Pair:
    first = left[0] / by
    product = _two_product(first, by)
    rest = _plus(left, (-product[0], -product[1]))
    return _two_sum(first, (rest[0] + rest[1]) / by)
