"""Exact sums: counts, sums, sums of squares and extremes whose bits do not depend on order, partitions or threads.

Formula: a float is `±m * 2**e` with an integer `m`; the integers of each exponent are added in 64-bit bins, in two or
three parts of 32 bits so that no bin can overflow within a chunk, and the bins are put together as one Python integer.
Nothing is rounded, squares included, until `mean` or `variance` divides, once, with correct rounding.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.core.errors import ParameterError
from penstock.kernels.cpu_histogram import ValueHistogram
from penstock.kernels.cpu_intrinsics import KERNEL, kernel_input
from penstock.kernels.kernel_cache import njit

__all__ = ["SCALE", "SQUARE_SCALE", "Moments", "ValueHistogram", "exact_moments", "scaled_to_float"]

SCALE = 1074  # every float64 is an integer times 2**-1074
SQUARE_SCALE = 2 * SCALE
CHUNK = 1 << 19  # rows between two hand-overs to Python integers; the widest bins take 2**20
BLOCK = 4096  # rows that are binned, then compared, while they sit in the first-level cache
U64, I64, LOW = np.uint64, np.int64, np.uint64(0xFFFFFFFF)
NO_MASK = np.empty(0, np.uint8)
BINS_FLOAT32, BINS_FLOAT64 = (256, 3), (2048, 5)  # exponents, and what `bin_block32` and `bin_block64` add up of each
# The exponents of infinity and NaN, and what is known of no rows: how many are finite, the least and the greatest.
SPECIAL_FLOAT32, SPECIAL_FLOAT64 = np.int32(0x7F800000), np.int64(0x7FF0000000000000)
NO_FLOAT32 = I64(0), np.int32(2**31 - 1), np.int32(-(2**31))
NO_FLOAT64 = I64(0), I64(2**63 - 1), I64(-(2**63))


@dataclass(frozen=True, slots=True)
class Moments:
    """The exact moments of a column, or of a part of one; `merge` in any order gives the same bits.

    `sum_scaled` is the sum times `2**SCALE`, `sumsq_scaled` the sum of squares times `2**SQUARE_SCALE`. NaN counts as
    missing. Infinities are counted and left out of everything else.

    >>> moments = exact_moments(np.array([0.1, 0.2, np.nan, 0.3])).merge(exact_moments(np.array([1e300, -1e300])))
    >>> moments.count, moments.nan_count, moments.mean(), moments.minimum
    (5, 1, 0.12, -1e+300)
    """

    count: int = 0
    nan_count: int = 0
    sum_scaled: int = 0
    sumsq_scaled: int = 0
    minimum: float | int | None = None
    maximum: float | int | None = None
    positive_infinities: int = 0
    negative_infinities: int = 0

    def merge(self, other: Moments) -> Moments:
        """The moments of both parts together."""
        return Moments(
            self.count + other.count,
            self.nan_count + other.nan_count,
            self.sum_scaled + other.sum_scaled,
            self.sumsq_scaled + other.sumsq_scaled,
            min((m for m in (self.minimum, other.minimum) if m is not None), default=None),
            max((m for m in (self.maximum, other.maximum) if m is not None), default=None),
            self.positive_infinities + other.positive_infinities,
            self.negative_infinities + other.negative_infinities,
        )

    def mean(self) -> float:
        """The mean of the finite values, correctly rounded; NaN where there are none."""
        return _to_float(Fraction(self.sum_scaled, self.count << SCALE)) if self.count else math.nan

    def variance(self, ddof: int = 0) -> float:
        """The variance with `count - ddof` as divisor, correctly rounded; NaN where that is not positive."""
        if self.count <= ddof:
            return math.nan
        deviations = self.count * self.sumsq_scaled - self.sum_scaled**2
        return _to_float(Fraction(deviations, (self.count * (self.count - ddof)) << SQUARE_SCALE))

    def std(self, ddof: int = 0) -> float:
        """The standard deviation."""
        return math.sqrt(self.variance(ddof))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; the long integers as hexadecimal text."""
        return {**asdict(self), "sum_scaled": hex(self.sum_scaled), "sumsq_scaled": hex(self.sumsq_scaled)}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Moments:
        """The inverse of `to_dict`."""
        sums = {name: int(state[name], 16) for name in ("sum_scaled", "sumsq_scaled")}
        return cls(**{**state, **sums})


def scaled_to_float(scaled: int, scale: int = SCALE) -> float:
    """`scaled * 2**-scale`, correctly rounded; infinite where that is beyond float64.

    >>> scaled_to_float(3 << 1073)
    1.5
    """
    return _to_float(Fraction(scaled, 1 << scale))


def exact_moments(values: np.ndarray, valid: np.ndarray | None = None) -> Moments:
    """The moments of a float or integer array; rows whose `valid` is false are left out.

    >>> exact_moments(np.array([1, 2, 3], np.int8), np.array([True, False, True])).mean()
    2.0
    """
    values = np.asarray(values)
    if values.dtype.kind not in "iufb" or values.ndim != 1 or values.dtype.itemsize > 8:
        raise ParameterError(f"moments are taken of a 1-D array of numbers, got {values.ndim}-D {values.dtype}")
    values = kernel_input(values, np.float32 if values.dtype == np.float16 else None)
    mask = NO_MASK if valid is None else kernel_input(valid, np.uint8)
    if valid is not None and len(mask) != len(values):
        raise ParameterError(f"valid must have one entry per row ({len(values)}), got {len(mask)}")
    of_chunk = _float_chunk if values.dtype.kind == "f" else _integer_chunk
    total = Moments()
    for start in range(0, len(values), CHUNK):
        total = total.merge(of_chunk(values[start : start + CHUNK], mask[start : start + CHUNK]))
    return total


def _to_float(exact: Fraction) -> float:
    try:
        return exact.numerator / exact.denominator  # int / int rounds once, correctly
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _float_chunk(values: np.ndarray, mask: np.ndarray) -> Moments:
    if values.dtype == np.float32:
        bins = np.zeros(BINS_FLOAT32, np.int64)
        count, least, greatest = _bin_float32(values.view(np.int32), mask, bins)
    else:
        bins = np.zeros(BINS_FLOAT64, np.int64)
        count, least, greatest = _bin_float64(values.view(np.int64), mask, bins)
    moments = moments_of_keys(bins, count, least, greatest)
    if count < (np.count_nonzero(mask) if len(mask) else len(values)):  # rare, so told apart in a second pass
        present = values[mask != 0] if len(mask) else values
        num_nan = int(np.isnan(present).sum())
        infinite = int((present == np.inf).sum()), int((present == -np.inf).sum())
        moments = moments.merge(Moments(0, num_nan, 0, 0, None, None, *infinite))
    return moments


def moments_of_keys(bins: np.ndarray, count: int, least: int, greatest: int) -> Moments:
    """The moments of finite numbers of which `bins` has the sums; the extremes are sortable integers."""
    dtype = np.dtype(np.float32 if bins.shape == BINS_FLOAT32 else np.float64)
    if not count:
        return Moments()
    return moments_of_bins(bins, int(count), _from_sortable(least, dtype), _from_sortable(greatest, dtype))


def moments_of_bins(bins: np.ndarray, count: int, least: float, greatest: float) -> Moments:
    """The moments of finite numbers of which `bins` has the sums, as `bin_block32` and `bin_block64` make them."""
    found = np.flatnonzero(bins[:-1].any(axis=1))
    return _moments(found.tolist(), bins[found].tolist(), count, least, greatest)


def moments_of_columns(bins: np.ndarray, counts: list[int], extremes: list[tuple[float, float]]) -> list[Moments]:
    """`moments_of_bins` of many columns, `(columns, …)`, without a look at each by itself."""
    columns, exponents = np.nonzero(bins[:, :-1].any(axis=2))
    ends = np.searchsorted(columns, np.arange(len(bins) + 1)).tolist()
    listed, parts = exponents.tolist(), bins[columns, exponents].tolist()
    return [
        _moments(listed[first:end], parts[first:end], count, *own) if count else Moments()
        for (first, end), count, own in zip(pairwise(ends), counts, extremes, strict=True)
    ]


def _moments(exponents: list[int], parts: list[list[int]], count: int, least: float, greatest: float) -> Moments:
    if parts and len(parts[0]) == BINS_FLOAT32[1]:
        total, squares = _assemble(exponents, parts, 0, 1, 1, 924), _assemble(exponents, parts, 1, 3, 2, 1848)
    else:
        total, squares = _assemble(exponents, parts, 0, 2, 1, -1), _assemble(exponents, parts, 2, 5, 2, -2)
    return Moments(count, 0, total, squares, least, greatest)


def _from_sortable(key: int, dtype: np.dtype) -> float:
    """The float whose bits were flipped so that they compare as integers."""
    bits = int(key) if key >= 0 else int(key) ^ ((1 << (8 * dtype.itemsize - 1)) - 1)
    return float(np.array([bits], f"int{8 * dtype.itemsize}").view(dtype)[0]) + 0.0  # + 0.0 turns -0.0 into 0.0


def _assemble(exponents: list[int], parts: list[list[int]], first: int, end: int, power: int, offset: int) -> int:
    """One integer from columns of bins: place p of exponent e weighs `2**(32 * p + power * max(e, 1) + offset)`."""
    total = 0
    for exponent, own in zip(exponents, parts, strict=True):
        value = 0
        for part in own[first:end][::-1]:
            value = (value << 32) + part
        total += value << (power * max(exponent, 1) + offset)
    return total


def _integer_chunk(values: np.ndarray, mask: np.ndarray) -> Moments:
    if values.dtype.itemsize <= 4:
        count, total, low, high, minimum, maximum = _sum_narrow(values, mask)
        squares = int(low) + (int(high) << 32)
    else:
        sums = np.zeros(6, np.int64)
        count, minimum, maximum = _sum_wide(values, mask, sums)
        parts = [int(part) for part in sums]
        total = parts[0] + (parts[1] << 32)
        squares = sum(part << (32 * place) for place, part in enumerate(parts[2:]))
    if not count:
        return Moments()
    return Moments(count, 0, int(total) << SCALE, squares << SQUARE_SCALE, int(minimum), int(maximum))


@njit(**KERNEL)
def _bin_float32(bits: np.ndarray, mask: np.ndarray, bins: np.ndarray) -> tuple[Any, ...]:
    """A column's numbers in `bins`: `(finite rows, least, greatest as sortable integers)`."""
    extremes = NO_FLOAT32
    words = np.empty(BLOCK, np.int32)
    for start in range(0, bits.shape[0], BLOCK):
        stop = min(start + BLOCK, bits.shape[0])
        for row in range(start, stop):  # apart from the binning, so that random nulls cost no branch
            words[row - start] = bits[row] if mask.shape[0] == 0 or mask[row] != 0 else SPECIAL_FLOAT32
        extremes = bin_block32(words, stop - start, bins, extremes)
    return extremes


@njit(**KERNEL, forceinline=True)  # what the words and the bins are, and that they lie apart, is known there
def bin_block32(words: np.ndarray, count: int, bins: np.ndarray, extremes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Add the float32 of these bits; columns of `bins`: sum of ±m, low and high halves of m².

    `extremes`, of the rows before and then with these: how many are finite, the least and the greatest as sortable
    integers. Rows to leave out have the bits of `SPECIAL_FLOAT32`.
    """
    for index in range(count):
        word = np.uint32(words[index])
        exponent = U64((word >> np.uint32(23)) & np.uint32(255))
        mantissa = U64(word & np.uint32(0x7FFFFF)) | (U64(exponent != U64(0)) << U64(23))
        sign = -I64(word >> np.uint32(31))
        square = mantissa * mantissa
        bins[exponent, 0] += (I64(mantissa) ^ sign) - sign
        bins[exponent, 1] += I64(square & LOW)
        bins[exponent, 2] += I64(square >> U64(32))
    finite_rows, least, greatest = extremes
    for index in range(count):
        word = words[index]
        key = np.int32(word ^ ((word >> np.int32(31)) & np.int32(0x7FFFFFFF)))
        finite = (word & SPECIAL_FLOAT32) != SPECIAL_FLOAT32
        finite_rows += I64(finite)
        least = min(least, key if finite else np.int32(2**31 - 1))
        greatest = max(greatest, key if finite else np.int32(-(2**31)))
    return finite_rows, least, greatest


@njit(**KERNEL)
def _bin_float64(bits: np.ndarray, mask: np.ndarray, bins: np.ndarray) -> tuple[Any, ...]:
    """`_bin_float32` for float64."""
    extremes = NO_FLOAT64
    words = np.empty(BLOCK, np.int64)
    for start in range(0, bits.shape[0], BLOCK):
        stop = min(start + BLOCK, bits.shape[0])
        for row in range(start, stop):
            words[row - start] = bits[row] if mask.shape[0] == 0 or mask[row] != 0 else SPECIAL_FLOAT64
        extremes = bin_block64(words, stop - start, bins, extremes)
    return extremes


@njit(**KERNEL, forceinline=True)  # what the words and the bins are, and that they lie apart, is known there
def bin_block64(words: np.ndarray, count: int, bins: np.ndarray, extremes: tuple[Any, ...]) -> tuple[Any, ...]:
    """`bin_block32` for float64; columns: two parts of the sum of ±m, then three 32-bit places of the sum of m²."""
    for index in range(count):
        word = U64(words[index])
        exponent = (word >> U64(52)) & U64(2047)
        mantissa = (word & U64(0xFFFFFFFFFFFFF)) | (U64(exponent != U64(0)) << U64(52))
        low, high = mantissa & LOW, mantissa >> U64(32)
        sign = -I64(word >> U64(63))
        bins[exponent, 0] += (I64(low) ^ sign) - sign
        bins[exponent, 1] += (I64(high) ^ sign) - sign
        low_square, cross = low * low, U64(2) * low * high
        bins[exponent, 2] += I64(low_square & LOW)
        bins[exponent, 3] += I64((low_square >> U64(32)) + (cross & LOW))
        bins[exponent, 4] += I64((cross >> U64(32)) + high * high)
    finite_rows, least, greatest = extremes
    for index in range(count):
        key = words[index] ^ ((words[index] >> I64(63)) & I64(0x7FFFFFFFFFFFFFFF))
        finite = (words[index] & SPECIAL_FLOAT64) != SPECIAL_FLOAT64
        finite_rows += I64(finite)
        least = min(least, key if finite else I64(2**63 - 1))
        greatest = max(greatest, key if finite else I64(-(2**63)))
    return finite_rows, least, greatest


@njit(**KERNEL)
def _sum_narrow(values: np.ndarray, mask: np.ndarray) -> tuple[Any, ...]:
    """Integers of up to 32 bits: `(count, sum, low and high halves of the squares' sum, minimum, maximum)`."""
    count, total, low, high = I64(0), I64(0), U64(0), U64(0)
    least, greatest = I64(2**62), I64(-(2**62))
    for row in range(values.shape[0]):
        present = mask.shape[0] == 0 or mask[row] != 0
        value = I64(values[row]) if present else I64(0)
        square = U64(value) * U64(value)
        count += I64(present)
        total += value
        low += square & LOW
        high += square >> U64(32)
        least = min(least, value if present else I64(2**62))
        greatest = max(greatest, value if present else I64(-(2**62)))
    return count, total, low, high, least, greatest


@njit(**KERNEL)
def _sum_wide(values: np.ndarray, mask: np.ndarray, sums: np.ndarray) -> tuple[Any, ...]:
    """64-bit integers: `sums` gets two parts of the sum and four 32-bit places of the sum of squares."""
    count, least, greatest = 0, values[0], values[0]
    for row in range(values.shape[0]):
        if mask.shape[0] != 0 and mask[row] == 0:
            continue
        value = values[row]
        least, greatest = (min(least, value), max(greatest, value)) if count else (value, value)
        count += 1
        magnitude = U64(value) if value >= 0 else U64(0) - U64(value)
        low, high = magnitude & LOW, magnitude >> U64(32)
        sums[0] += I64(low) if value >= 0 else -I64(low)
        sums[1] += I64(high) if value >= 0 else -I64(high)
        low_square, cross, high_square = low * low, low * high, high * high
        sums[2] += I64(low_square & LOW)
        sums[3] += I64((low_square >> U64(32)) + U64(2) * (cross & LOW))
        sums[4] += I64(U64(2) * (cross >> U64(32)) + (high_square & LOW))
        sums[5] += I64(high_square >> U64(32))
    return count, least, greatest
