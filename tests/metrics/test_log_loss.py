"""The mean binary cross-entropy, held against torch and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.metrics import LogLoss, logit

ROW = st.tuples(st.floats(-12, 12), st.integers(0, 1), st.floats(0.1, 10))


def test_log_loss_is_torch_s() -> None:
    logits = torch.tensor([-200.0, -1.0, 0.0, 3.0, 90.0])
    labels = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0])
    loss = LogLoss()
    loss.update(logits[:2], labels[:2])
    loss.update(logits[2:], labels[2:])
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
    assert loss.compute() == pytest.approx(float(expected), rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=30))
def test_log_loss_is_scikit_learn_s(rows) -> None:
    from sklearn.metrics import log_loss

    logits, labels, weights = map(np.array, zip(*rows, strict=True))
    loss = LogLoss()
    loss.update(logits, labels, weights)
    probabilities = 1 / (1 + np.exp(-logits))
    expected = log_loss(labels, probabilities, sample_weight=weights, labels=[0, 1])
    assert loss.compute() == pytest.approx(expected, rel=1e-8)


def test_certain_and_right_costs_nothing_and_certain_and_wrong_everything() -> None:
    loss = LogLoss()
    loss.update([np.inf, -np.inf], [1, 0])
    assert loss.compute() == 0
    loss.update([np.inf], [0], weights=[0])  # a row of no weight is no row
    assert loss.compute() == 0
    loss.update([np.inf], [0])
    assert loss.compute() == math.inf


def test_log_odds_are_finite() -> None:
    odds = logit(np.array([0, 2.0**-126, 0.25, 1 - 2.0**-24, 1], np.float32))
    assert np.isfinite(odds).all() and odds[0] == odds[1] and odds[3] == odds[4]
    assert odds[2] == pytest.approx(math.log(1 / 3))
