"""The permutation that splits rows agrees with its oracle, and is one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from penstock.kernels import reference_split
from penstock.kernels.cpu_split import network_places, split_masks


@pytest.mark.parametrize("counts", [[2], [3], [4097], [5, 64, 65, 1000], [2**33 + 7]])
def test_places_are_those_of_the_oracle(counts):
    random = np.random.default_rng(5)
    keys = random.integers(0, 2**64, len(counts), np.uint64)
    stratum = random.integers(0, len(counts), 200)
    numbers = random.integers(0, np.array(counts)[stratum])
    found = network_places(numbers, stratum, np.array(counts), keys)
    assert found.tolist() == reference_split.network_places(
        numbers.tolist(), stratum.tolist(), counts, [int(key) for key in keys]
    )


@pytest.mark.parametrize("count", [1, 2, 7, 16, 17, 5000])
def test_every_place_is_taken_once(count):
    places = network_places(np.arange(count), np.zeros(count, np.int64), np.array([count]), np.array([9], np.uint64))
    assert np.array_equal(np.sort(places), np.arange(count))


def test_no_rows():
    empty = np.empty(0, np.int64)
    assert len(network_places(empty, empty, np.array([10]), np.array([1], np.uint64))) == 0


@pytest.mark.parametrize("first, rows, count", [(0, 1, 5000), (0, 5000, 5000), (4090, 777, 9000), (7, 8200, 100_000)])
def test_masks_say_where_numbers_go(first, rows, count):
    ends = np.array([count // 3, count // 3, count - 5, count])
    masks = split_masks(first, rows, count, 11, ends)
    numbers = np.arange(first, first + rows)
    places = network_places(numbers, np.zeros(rows, np.int64), np.array([count]), np.array([11], np.uint64))
    found = np.unpackbits(masks, axis=1, count=rows, bitorder="little").astype(bool)
    assert np.array_equal(found, [(places >= low) & (places < end) for low, end in pairwise([0, *ends])])
    assert not split_masks(first, 0, count, 11, ends).size
