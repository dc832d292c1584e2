"""Bins and losses of probabilities agree with their oracle, whatever the rows hold."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.kernels import cpu_score_figures, reference_score_figures

LIMITS = {np.float32: (2.0**-126, 1 - 2.0**-24), np.float64: (2.0**-1022, 1 - 2.0**-53)}
BLOCK = cpu_score_figures._BLOCK


def counted(kernels, probabilities: np.ndarray, clicked: np.ndarray, num_bins: int = 4096) -> tuple:
    bins, totals = np.ones((3, num_bins)), np.ones(2)  # it adds to what is there
    kernels.add_rows(probabilities, clicked, *LIMITS[probabilities.dtype.type], 16.0, bins, totals)
    return bins - 1.0, totals - 1.0


def assert_agrees(probabilities: np.ndarray, clicked: np.ndarray, num_bins: int = 4096) -> None:
    bins, totals = counted(cpu_score_figures, probabilities, clicked, num_bins)
    wanted_bins, wanted = counted(reference_score_figures, probabilities, clicked, num_bins)
    np.testing.assert_array_equal(bins[[0, 2]], wanted_bins[[0, 2]])
    np.testing.assert_allclose(bins[1], wanted_bins[1], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(totals, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("num_rows", [0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_it_agrees_with_its_oracle(num_rows: int, dtype: type) -> None:
    random = np.random.default_rng(num_rows)
    probabilities = (1 / (1 + np.exp(-random.normal(-2, 4, num_rows)))).astype(dtype)
    probabilities[random.random(num_rows) < 0.01] = np.nan
    assert_agrees(probabilities, random.integers(0, 2, num_rows).astype(np.uint8))


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("label", [0, 1])
def test_probabilities_of_any_size_are_borne(dtype: type, label: int) -> None:
    low, high = LIMITS[dtype]
    powers = 2.0 ** -np.arange(1.0, 126.0)
    edges = [0.0, -0.0, low, high, 1.0, 1.5, -1.0, np.inf, -np.inf, np.nan, 0.5, 1 / 3]
    values = np.concatenate([powers, np.maximum(1 - powers, 0.5), edges]).astype(dtype)
    for value in values:  # each by itself: beside a certain one that is wrong, no other shows
        assert_agrees(np.array([value], dtype), np.array([label], np.uint8))
    assert_agrees(values, np.full(len(values), label, np.uint8), num_bins=1)


def test_small_losses_keep_their_digits() -> None:
    """`log(1 - p)` is p, where `1 - p` is 1 in float64."""
    bins, totals = np.zeros((3, 2)), np.zeros(2)
    cpu_score_figures.add_rows(np.full(4, 1e-30), np.zeros(4, np.uint8), *LIMITS[np.float64], 16.0, bins, totals)
    assert totals[0] == pytest.approx(4e-30, rel=1e-12)
