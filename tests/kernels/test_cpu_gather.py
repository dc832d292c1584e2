import zlib

import numpy as np
import pytest

from penstock.kernels import cpu_gather as fast
from penstock.kernels import reference_gather as slow

DTYPES = ["int8", "uint16", "int32", "int64", "uint64", "float32", "float64"]
SIZES = [0, 1, 2, 63, 64, 1000]
# What is cast is compiled for each pair of dtypes.
CAST = ["int8", "uint64", "float32", *(pytest.param(d, marks=pytest.mark.slow) for d in ("uint16", "int32", "int64"))]


@pytest.mark.parametrize("size", SIZES)
def test_permutation(size):
    for seed in (0, 1, 2**64 - 1):
        order = fast.permutation(size, seed)
        assert order.dtype == np.uint32
        assert (order == slow.permutation(size, seed)).all()
        assert sorted(order) == list(range(size))


def test_orders_of_large_chunks_stay_as_they_were():
    """Their draws are made in advance; the checksum is of a version that did not."""
    assert zlib.crc32(fast.permutation(700_000, 77).tobytes()) == 2660031455


def test_every_permutation_is_as_likely():
    counts: dict[tuple, int] = {}
    for seed in range(6000):
        key = tuple(fast.permutation(3, fast.mix_seed(seed)).tolist())
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 6
    assert max(abs(c - 1000) for c in counts.values()) < 150  # five standard deviations


@pytest.mark.parametrize("dtype", [*CAST, "float64"])
@pytest.mark.parametrize("size", SIZES)
def test_gather_and_copy(size, dtype):
    source = (np.arange(size) * 7 % 101).astype(dtype)
    order = fast.permutation(size, 3)
    values, codes = np.unique(source, return_inverse=True)
    codes = codes.astype(np.uint16)
    for at, width, stride in ((0, 64, 64), (5, 10, 16), (9, 1, 64)):
        rows = np.arange(at, at + size)
        places = rows // width * stride + rows % width
        for call, expected in (
            (lambda out: fast.gather_column(source, order, out, at, width, stride), slow.gather(source, order)),  # noqa: B023
            (lambda out: fast.gather_codes(values, codes, order, out, at, width, stride), slow.gather(source, order)),  # noqa: B023
            (lambda out: fast.copy_column(source, out, at, width, stride), source),  # noqa: B023
        ):
            out = np.full((at + size) // width * stride + stride, 99, np.float64)
            call(out)
            assert (out[places] == expected).all()
            untouched = np.delete(out, places)
            assert (untouched == 99).all()


def test_gather_takes_duplicates():
    out = np.empty(3, np.int64)
    fast.gather_column(np.array([4, 5], np.int32), np.array([1, 1, 0], np.uint32), out, 0, 3, 3)
    assert out.tolist() == [5, 5, 4]


@pytest.mark.parametrize("dtype", DTYPES)
def test_lists(dtype):
    rng = np.random.default_rng(0)
    for rows in (0, 1, 200):
        lengths = rng.integers(0, 20, rows) // 2
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        values = rng.integers(0, 100, offsets[-1]).astype(dtype)
        order = fast.permutation(rows, 1)
        out_offsets, starts = np.empty(rows + 1, np.int64), np.empty(rows, np.int64)
        total = fast.list_offsets(offsets, order, starts, out_offsets)
        out = np.empty(total + fast.LIST_SLACK, dtype)
        source, target = fast.as_bits(values, out)
        fast.gather_lists(source, starts, out_offsets, target)
        out = out[:total]
        expected_values, expected_offsets = slow.gather_lists(values, offsets, order)
        assert (out == expected_values).all()
        assert (out_offsets == expected_offsets).all()
        for left in (False, True):
            dense = np.empty((rows, 3), dtype)
            fast.pad_lists(values, offsets, dense, np.dtype(dtype).type(9), left)
            assert (dense == slow.pad_lists(values, offsets, 3, 9, left)).all()


def test_checks():
    values = np.array([0, 3, 9, -1], np.int32)
    assert fast.first_outside(values[:2], 0, 3) == -1
    assert fast.first_outside(values, 0, 8) == 2
    assert fast.first_outside(values[[0, 1, 3]], 0, 8) == 2
    assert fast.first_outside(values[:0], 0, 8) == -1
    assert fast.first_nan(np.array([1.0, np.nan], np.float32)) == 1
    assert fast.first_nan(np.ones(3)) == -1
