"""The area under the ROC curve: exact, then bounded; held against scikit-learn and against all pairs."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import DataError
from penstock.metrics import AUC
from penstock.metrics.arrays import NumpyArrays, TorchArrays
from penstock.metrics.score_bins import area_and_bound, bins_of_rows, compress, fold

SCORE = st.one_of(st.sampled_from([0.0, -0.0, 1.0, math.inf, -math.inf, 5e-324]), st.floats(allow_nan=False))
ROW = st.tuples(SCORE, st.integers(0, 1), st.integers(0, 5))


def auc_of_pairs(scores, labels, weights) -> float:
    """By definition, in exact fractions."""
    wins, pairs = Fraction(0), Fraction(0)
    for score, label, weight in zip(scores, labels, weights, strict=True):
        for other, theirs, its in zip(scores, labels, weights, strict=True):
            if label == 1 and theirs == 0:
                pairs += Fraction(weight) * Fraction(its)
                wins += Fraction(weight) * Fraction(its) * (Fraction(int(score > other)) + Fraction(score == other, 2))
    return float(wins / pairs) if pairs else math.nan


@settings(max_examples=150, deadline=None)
@given(st.lists(ROW, max_size=25), st.randoms(use_true_random=False))
def test_auc_is_that_of_all_pairs_however_rows_are_dealt_out(rows, random) -> None:
    scores, labels, weights = ([row[i] for row in rows] for i in range(3))
    expected = auc_of_pairs(scores, labels, weights)
    parts = [AUC() for _ in range(3)]
    for score, label, weight in rows:
        random.choice(parts).update([score], [label], [weight])
    random.shuffle(parts)
    whole = AUC()
    for part in parts:
        loaded = AUC()
        loaded.load_state(part.state())
        whole.merge(loaded)
    assert whole.compute() == pytest.approx(expected, abs=1e-12, nan_ok=True)
    assert math.isnan(expected) or whole.error_bound == 0


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64]), st.booleans())
def test_auc_is_scikit_learn_s(seed, dtype, weighted) -> None:
    from sklearn.metrics import roc_auc_score

    random = np.random.default_rng(seed)
    labels = np.append(random.integers(0, 2, 300), [0, 1])
    scores = (random.normal(size=302).round(int(random.integers(1, 6))) + labels).astype(dtype)
    weights = random.random(302) if weighted else None
    auc = AUC()
    auc.update(scores, labels, weights)
    assert auc.compute() == pytest.approx(roc_auc_score(labels, scores, sample_weight=weights), abs=1e-12)


@pytest.mark.parametrize(("middle", "spread"), [(-7.0, 0.01), (0.999, 1e-5), (0.0, 1e-30), (0.0, 1e30)])
def test_scores_close_together_are_told_apart(middle, spread) -> None:
    """Bins of a fixed relative width were off by 0.011 for the first, and gave 0.515 for 0.749 for the second."""
    from sklearn.metrics import roc_auc_score

    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 20_000)
    scores = (middle + spread * (random.normal(size=20_000) + labels)).astype(np.float32)
    auc = AUC()
    auc.update(scores, labels)
    assert auc.compute() == pytest.approx(roc_auc_score(labels, scores), abs=1e-12) and auc.error_bound == 0


@pytest.mark.parametrize("order", ["drawn", "ascending", "by label"])
@pytest.mark.parametrize("middle", [0.0, 0.999])
def test_the_error_is_within_its_bound(order, middle) -> None:
    from sklearn.metrics import roc_auc_score

    random = np.random.default_rng(1)
    labels = (random.random(60_000) < 0.1).astype(int)
    scores = middle + 1e-3 * (random.normal(size=60_000) + labels)
    place = {"drawn": np.arange(60_000), "ascending": np.argsort(scores), "by label": np.argsort(labels)}[order]
    workers = [AUC(max_bins=2_000) for _ in range(3)]
    for number, rows in enumerate(np.array_split(place, 40)):
        workers[number % 3].update(scores[rows], labels[rows])
    truth = roc_auc_score(labels, scores)
    for first in range(3):
        auc = AUC(max_bins=2_000)
        for number in range(3):
            auc.merge(workers[(first + number) % 3])
        assert len(auc.state()["first"]) <= 2_000
        assert abs(auc.compute() - truth) <= auc.error_bound
        assert 0 < auc.error_bound < 0.02
        if order == "drawn":
            assert auc.error_bound < 0.002


def test_the_bound_of_a_million_rows() -> None:
    from sklearn.metrics import roc_auc_score

    random = np.random.default_rng(2)
    labels = random.integers(0, 2, 1_000_000)
    scores = (random.normal(size=1_000_000) + labels).astype(np.float32)
    auc = AUC()
    for rows in np.array_split(np.arange(1_000_000), 20):
        auc.update(scores[rows], labels[rows])
    assert 0 < auc.error_bound < 1e-4
    assert abs(auc.compute() - roc_auc_score(labels, scores)) <= auc.error_bound


def test_a_gpu_s_arithmetic_is_the_host_s() -> None:
    """The tensors' way through the same algorithm; on a GPU it is the same code."""
    random = np.random.default_rng(3)
    scores, labels = random.normal(size=5_000), random.integers(0, 2, 5_000).astype(float)
    host = compress(fold([bins_of_rows(scores, labels), bins_of_rows(scores[:9], labels[:9])]), 500)
    tensors = [bins_of_rows(torch.from_numpy(scores[:n]), torch.from_numpy(labels[:n])) for n in (5_000, 9)]
    device = compress(fold(tensors), 500)
    for name in ("first", "last", "negatives", "positives"):
        np.testing.assert_array_equal(getattr(host, name), getattr(device.on_host(), name))
    assert area_and_bound(device) == pytest.approx(area_and_bound(host), rel=1e-12)
    assert len(host) <= 500


def test_corners() -> None:
    auc = AUC()
    assert math.isnan(auc.compute()) and math.isnan(auc.error_bound)
    auc.update([], [])
    auc.update(np.empty((0, 1)), np.empty((0, 1)))
    auc.update([0.0], [0])
    assert math.isnan(auc.compute())
    auc.update([-0.0], [1])
    assert auc.compute() == 0.5
    auc.reset()
    auc.update([-np.inf, -1e30, -1e-30, 0, 1e-30, 1e30, np.inf], [0, 0, 0, 1, 1, 1, 1])
    assert auc.compute() == 1.0
    auc.reset()
    auc.update(torch.tensor([[0.5], [1.5]], dtype=torch.bfloat16), torch.tensor([[False], [True]]))
    assert auc.compute() == 1.0


def test_a_state_that_is_not_one() -> None:
    auc = AUC()
    auc.update([0.1, 0.2], [0, 1])
    state = auc.state()
    for broken in ({}, {**state, "first": state["first"][::-1]}, {**state, "positives": np.zeros(1)}):
        with pytest.raises(DataError, match="the state"):
            AUC().load_state(broken)
    assert auc.compute() == 1.0


KEY = st.integers(-(2**63), 2**63 - 1) | st.integers(-20, 20)


@settings(max_examples=200, deadline=None)
@given(st.sets(KEY, min_size=1, max_size=60), st.integers(0, 12), st.randoms(use_true_random=False))
def test_the_blocks_that_become_one_are_those_of_a_device(keys, heaviest, random) -> None:
    ascending = np.array(sorted(keys), np.int64)
    upto = np.concatenate([[0.0], np.cumsum([random.randint(0, 4) for _ in keys])])
    found = NumpyArrays().light_blocks(ascending, upto, float(heaviest))
    on_device = TorchArrays().light_blocks(torch.from_numpy(ascending), torch.from_numpy(upto), float(heaviest))
    np.testing.assert_array_equal(found, on_device.numpy())
