"""Exact moments and histograms against fractions, dictionaries and NumPy."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock.core.errors import ParameterError
from penstock.kernels import reference
from penstock.kernels.cpu_stats import (
    BINS_FLOAT32,
    BINS_FLOAT64,
    SCALE,
    SQUARE_SCALE,
    Moments,
    ValueHistogram,
    exact_moments,
    moments_of_bins,
    moments_of_columns,
    scaled_to_float,
)

DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]


def assert_agrees(values, valid=None):
    got = exact_moments(values, valid)
    expected = reference.exact_moments(values.tolist(), None if valid is None else valid.tolist())
    for name in ("count", "nan_count", "positive_infinities", "negative_infinities", "minimum", "maximum"):
        assert getattr(got, name) == expected[name], name
    assert Fraction(got.sum_scaled, 1 << SCALE) == expected["sum"]
    assert Fraction(got.sumsq_scaled, 1 << SQUARE_SCALE) == expected["sum_of_squares"]


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_moments_are_exact(dtype, data):
    values = data.draw(hnp.arrays(dtype, st.integers(0, 30)))
    valid = data.draw(st.none() | hnp.arrays(bool, len(values)))
    assert_agrees(values, valid)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_whole_range_of_exponents(dtype):
    info = np.finfo(dtype)
    ends = [info.max, -info.max, info.tiny, -info.smallest_subnormal, info.eps, 1.0, -0.0, 0.0, np.nan, np.inf, -np.inf]
    assert_agrees(np.array(ends * 3, dtype))
    assert str(exact_moments(np.array([-0.0], dtype)).minimum) == "0.0"


@pytest.mark.parametrize("dtype", ["bool", "float16"])
def test_other_number_types(dtype):
    assert_agrees(np.array([0, 1, 1, 0, 1], dtype))


def test_many_rows_span_chunks_and_blocks():
    values = np.random.default_rng(0).normal(size=600_001).astype(np.float32)
    values[::1000] = np.nan
    valid = np.random.default_rng(1).random(len(values)) < 0.7
    got = exact_moments(values, valid)
    kept = values[valid & ~np.isnan(values)].astype(np.float64)
    assert got.count == len(kept)
    assert scaled_to_float(got.sum_scaled) == math.fsum(kept)
    assert scaled_to_float(got.sumsq_scaled, SQUARE_SCALE) == math.fsum(kept**2)
    assert math.isclose(got.variance(), kept.var(), rel_tol=1e-12)


def test_merging_in_any_order_gives_the_same_bits():
    rng = np.random.default_rng(4)
    values = rng.normal(size=5000) * 10.0 ** rng.integers(-200, 200, 5000)
    whole = exact_moments(values)
    parts = [exact_moments(values[start : start + 317]) for start in range(0, 5000, 317)]
    for order in (parts, parts[::-1], [parts[i] for i in rng.permutation(len(parts))]):
        total = Moments()
        for part in order:
            total = total.merge(part)
        assert total == whole
    assert Moments.from_dict(json.loads(json.dumps(whole.to_dict()))) == whole


def test_a_constant_column_has_no_variance():
    assert exact_moments(np.full(1000, 0.1)).variance() == 0.0
    assert exact_moments(np.full(1000, 0.1)).mean() == 0.1


def test_moments_of_nothing_are_nan():
    empty = exact_moments(np.empty(0, np.float32))
    assert empty == Moments()
    assert math.isnan(empty.mean()) and math.isnan(empty.variance())
    assert math.isnan(exact_moments(np.ones(1)).variance(ddof=1))


def test_scaled_to_float_rounds_correctly_and_saturates():
    assert scaled_to_float((1 << SCALE) + (1 << (SCALE - 53))) == 1.0  # a tie goes to even
    assert scaled_to_float((1 << SCALE) + (1 << (SCALE - 53)) + 1) == 1.0 + 2**-52
    assert scaled_to_float(1 << 3000) == math.inf and scaled_to_float(-1 << 3000) == -math.inf


def test_wrong_arguments():
    with pytest.raises(ParameterError, match="1-D array of numbers"):
        exact_moments(np.array(["a"]))
    with pytest.raises(ParameterError, match="valid must have one entry per row"):
        exact_moments(np.ones(3), np.ones(2, bool))


@pytest.mark.parametrize("dtype", DTYPES)
def test_exact_histogram_gives_numpy_quantiles(dtype):
    rng = np.random.default_rng(7)
    values = (rng.exponential(20, 999) - 5).clip(0 if dtype.startswith("u") else None).astype(dtype)
    valid = rng.random(999) < 0.8
    histogram = ValueHistogram()
    histogram.add(values[:400], valid[:400])
    other = ValueHistogram()
    other.add(values[400:], valid[400:])
    histogram.merge(other)
    kept = values[valid].astype(np.float64)
    assert histogram.is_exact and histogram.count == len(kept) and histogram.missing == 999 - len(kept)
    for q in (0.0, 0.1, 0.25, 0.5, 0.77, 1.0):
        assert histogram.quantile(q) == np.quantile(kept, q)


@given(st.lists(st.lists(st.floats(width=32), max_size=8), max_size=6), st.integers(0, 12), st.randoms())
@settings(max_examples=60, deadline=None)
def test_histograms_do_not_depend_on_order(parts, limit, random):
    def build(order):
        total = ValueHistogram(limit)
        for part in order:
            histogram = ValueHistogram(limit)
            histogram.add(np.array(part))
            total.merge(histogram)
        return total.to_dict()

    whole = ValueHistogram(limit)
    whole.add(np.array([value for part in parts for value in part]))
    shuffled = random.sample(parts, len(parts))
    assert build(parts) == build(shuffled) == whole.to_dict()
    again = ValueHistogram.from_dict(json.loads(json.dumps(whole.to_dict())))
    assert again.to_dict() == whole.to_dict()
    assert again.median() == whole.median() or math.isnan(whole.median())


def test_degraded_histogram_is_within_its_stated_error():
    values = np.random.default_rng(2).lognormal(2, 3, 50_000) * np.where(np.arange(50_000) % 3, 1, -1)
    histogram = ValueHistogram(limit=1000)
    histogram.add(values)
    assert not histogram.is_exact
    for q in (0.0, 0.05, 0.2, 0.5, 0.9, 1.0):
        expected = np.sort(values)[int(q * 49_999)]
        assert math.isclose(histogram.quantile(q), expected, rel_tol=2e-3)


def test_degraded_infinities_stay_infinite():
    histogram = ValueHistogram(limit=0)
    histogram.add(np.array([-np.inf, 1.0, np.inf]))
    assert [histogram.quantile(q) for q in (0.0, 1.0)] == [-np.inf, np.inf]
    assert math.isclose(histogram.median(), 1.0, rel_tol=1e-3)


def test_empty_histogram_and_unequal_limits():
    assert math.isnan(ValueHistogram().median())
    with pytest.raises(ParameterError, match="share their limit"):
        ValueHistogram(1).merge(ValueHistogram(2))


@pytest.mark.parametrize("shape", [BINS_FLOAT32, BINS_FLOAT64])
def test_columns_together_are_columns_one_by_one(shape):
    draw = np.random.default_rng(8)
    bins = draw.integers(-(2**40), 2**40, (4, *shape)) * (draw.random((4, shape[0], 1)) < 0.1)
    bins[2] = 0
    counts, extremes = [7, 9, 0, 1], [(0.5, 2.0), (0.0, 1.0), (0.0, 0.0), (3.0, 3.0)]
    found = moments_of_columns(bins, counts, extremes)
    alone = [moments_of_bins(bins[i], counts[i], *extremes[i]) if counts[i] else Moments() for i in range(4)]
    assert found == alone and found[0].sum_scaled != 0
