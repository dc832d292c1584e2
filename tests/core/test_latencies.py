"""Durations in buckets: percentiles lie in the bucket where the sorted durations have them."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.core.latencies import BOUNDS, Latencies, merged, percentile, since


def counted(durations: np.ndarray) -> dict:
    latencies = Latencies()
    for seconds in durations:
        latencies.add(float(seconds))
    return latencies.to_dict()


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 1.0])
def test_percentiles_lie_in_the_bucket_of_the_true_ones(share: float) -> None:
    durations = np.random.default_rng(0).lognormal(-6, 1.2, 3000)
    found = percentile(counted(durations), share)
    true = float(np.quantile(durations, share, method="inverted_cdf"))
    assert found is not None and true / 1.42 <= found <= true * 1.42


def test_durations_outside_all_buckets_are_counted_too() -> None:
    found = counted(np.array([0.0, 1e-9, 1e6]))
    assert found["count"] == 3 and found["buckets"][0] == 2 and found["buckets"][-1] == 1
    assert percentile(found, 1.0) == BOUNDS[-1] and percentile(counted(np.array([])), 0.5) is None


def test_parts_make_the_whole_and_the_whole_less_a_part_the_rest() -> None:
    durations = np.random.default_rng(1).exponential(0.01, 200)
    first, second, both = counted(durations[:50]), counted(durations[50:]), counted(durations)
    assert merged([first, second])["buckets"] == both["buckets"] == merged([both])["buckets"]
    assert since(both, first)["buckets"] == second["buckets"] and since(both, None) == both
    assert since(first, both) == first  # it has begun anew
    assert merged([])["count"] == 0


def test_a_block_that_raises_is_not_counted() -> None:
    latencies = Latencies()
    with pytest.raises(ValueError, match="no"), latencies.timing():
        raise ValueError("no")
    with latencies.timing():
        pass
    assert latencies.to_dict()["count"] == 1
