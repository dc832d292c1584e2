"""Which dictionary a column gets: codes of it give the column back, and what it takes is what it should."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock.kernels import cpu_parquet_dictionary as kernels

rng = np.random.default_rng(11)
KEY = np.uint64(0x9E3779B97F4A7C15)


def numbered(values):
    """`(dictionary, codes)`, or None where the column is written as it is."""
    values = np.ascontiguousarray(values)
    slots, dictionary = np.full(2 * kernels.MOST, 77, np.uint32), np.empty(kernels.MOST, np.uint64)
    codes = np.empty(len(values), np.uint32)
    place = np.uint64(values.ctypes.data)
    size = kernels.number_values(place, values.itemsize, len(values), slots, dictionary, codes, KEY)
    if size < 0:
        return None
    return dictionary[:size].astype(f"u{values.itemsize}").view(values.dtype), codes


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_ids_that_count_need_no_table(dtype):
    dictionary, codes = numbered((rng.integers(1, 5_000, 50_000)).astype(dtype))
    np.testing.assert_array_equal(dictionary, np.arange(5_000))  # from 0 on: groups of rows have the same beginning
    assert codes.min() == 1


def test_numbers_far_from_0_count_from_their_lowest():
    values = 10**12 + rng.integers(0, 3_000, 50_000)
    dictionary, codes = numbered(values)
    np.testing.assert_array_equal(dictionary, np.arange(values.min(), values.max() + 1))
    np.testing.assert_array_equal(dictionary[codes], values)


def test_gaps_are_left_out():
    values = (rng.integers(0, 40, 50_000) * 1_500).astype(np.int32)
    dictionary, codes = numbered(values)
    np.testing.assert_array_equal(dictionary, np.unique(values))
    np.testing.assert_array_equal(dictionary[codes], values)


def test_few_values_far_apart_are_found_by_their_bits():
    values = np.resize([np.nan, -0.0, 0.0, 1e300, -3.5], 1_000)
    dictionary, codes = numbered(values)
    assert len(dictionary) == 5
    assert dictionary[codes].tobytes() == values.tobytes()


@pytest.mark.parametrize(
    "values",
    [
        rng.integers(0, 2**31 - 1, 30_000).astype(np.int32),  # hardly one comes again
        np.arange(1_000, dtype=np.int32),  # as many as rows
        rng.random(30_000),
        np.array([5], np.int32),
        np.array([], np.int64),
    ],
)
def test_plain_values_where_a_dictionary_is_more(values):
    assert numbered(values) is None


SMALL = st.integers(-3, 300) | st.integers(-(2**31), 2**31 - 1)


@given(
    hnp.arrays(np.int32, st.integers(0, 200), elements=SMALL), st.integers(0, 3), st.sampled_from([np.int32, np.int64])
)
def test_codes_give_the_column_back(values, doublings, dtype):
    values = np.concatenate([values] * 2**doublings).astype(dtype)
    found = numbered(values)
    if found is None:
        return
    dictionary, codes = found
    np.testing.assert_array_equal(dictionary[codes], values)
    assert len(np.unique(dictionary)) == len(dictionary)
    bits = max(1, int(len(dictionary) - 1).bit_length())
    assert dictionary.nbytes + len(values) * bits // 8 < values.nbytes
