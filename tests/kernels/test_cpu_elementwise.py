"""log1p and digitize, bit for bit as NumPy has them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock.core.errors import ParameterError
from penstock.kernels import reference
from penstock.kernels.cpu_elementwise import digitize, log1p_float32
from penstock.kernels.cpu_log1p import BLOCK

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES = [*INTEGERS, "float32", "float64"]


def assert_same_bits(values):
    got, expected = log1p_float32(values), reference.log1p_float32(values)
    assert got.dtype == np.float32
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_log1p_has_numpys_bits(dtype, data):
    assert_same_bits(data.draw(hnp.arrays(dtype, st.integers(0, 40))))


@pytest.mark.parametrize("dtype", DTYPES)
def test_log1p_around_the_table_and_over_chunks(dtype):
    top = int(np.iinfo(dtype).max) if dtype in INTEGERS else 10**9
    rng = np.random.default_rng(0)
    assert_same_bits(np.arange(min(top, 66_000)).astype(dtype))
    assert_same_bits(rng.integers(0, min(top, 200_000), 40_001).astype(dtype))
    assert_same_bits(np.array([min(top, value) for value in (0, 65_535, 65_536, 65_537, top)], dtype))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_log1p_of_special_values(dtype):
    values = np.array([0.0, -0.0, -1.0, -1.5, -0.5, 0.5, 1.0, 65_504.0, np.nan, np.inf, -np.inf, 1e-30, 2.5], dtype)
    assert_same_bits(values)
    assert np.signbit(log1p_float32(values)[1])


def test_log1p_of_fractions_mixed_with_whole_numbers():
    rng = np.random.default_rng(1)
    for share in (0.01, 0.5, 1.0):
        values = rng.integers(-3, 100_000, 20_000).astype(np.float32)
        values += np.where(rng.random(20_000) < share, 0.25, 0).astype(np.float32)
        assert_same_bits(values)


def test_log1p_of_blocks_of_fractions_between_blocks_of_whole_numbers():
    draw = np.random.default_rng(0)
    chunk = BLOCK
    kinds = [0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0, 1]
    parts = [draw.random(chunk) * 10 if kind else draw.integers(0, 70_000, chunk).astype(float) for kind in kinds]
    assert_same_bits(np.concatenate(parts))


def test_log1p_writes_into_out_and_checks_it():
    out = np.full(3, 9, np.float32)
    assert log1p_float32(np.arange(3), out) is out
    assert out.tolist() == reference.log1p_float32(np.arange(3)).tolist()
    with pytest.raises(ParameterError, match="out must be float32"):
        log1p_float32(np.arange(3), np.empty(3))
    with pytest.raises(ParameterError, match="1-D array of numbers"):
        log1p_float32(np.array(["a"]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_boundaries", [0, 1, 7, 24, 25, 100])
def test_digitize_equals_numpy(dtype, num_boundaries):
    rng = np.random.default_rng(num_boundaries)
    values = rng.integers(0, 120, 501).astype(dtype)
    for boundaries in (np.sort(rng.integers(-5, 125, num_boundaries)), np.sort(rng.random(num_boundaries) * 120)):
        assert digitize(values, boundaries).tolist() == reference.digitize(values, boundaries).tolist()


@pytest.mark.parametrize("num_boundaries", [3, 40])
def test_digitize_of_special_values_and_ties(num_boundaries):
    boundaries = np.concatenate([[-np.inf, 0.0, 0.0], np.arange(1.0, num_boundaries), [np.inf]])
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1.5, 1e300, -1e300])
    assert digitize(values, boundaries).tolist() == np.digitize(values, boundaries).tolist()


def test_digitize_compares_large_integers_as_numpy_does():
    values = np.array([2**53, 2**53 + 1, 2**63 - 1], np.int64)
    for boundaries in (np.array([2**53 + 1]), np.array([2.0**53 + 2.0])):
        assert digitize(values, boundaries).tolist() == np.digitize(values, boundaries).tolist()


def test_digitize_refuses_bad_boundaries():
    for boundaries in ([2, 1], [0.0, np.nan], [[1]], ["a"]):
        with pytest.raises(ParameterError, match="boundaries must"):
            digitize(np.arange(3), boundaries)
