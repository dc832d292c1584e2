"""The loss of a linear model and its gradient agree with their oracle, whatever the rows hold."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.kernels import cpu_logistic, reference_logistic


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize(("num_rows", "num_keys", "num_numbers"), [(0, 5, 2), (1, 1, 0), (40, 7, 3), (300, 1000, 13)])
def test_it_agrees_with_its_oracle(num_rows: int, num_keys: int, num_numbers: int, counted: bool, dtype: type) -> None:
    rng = np.random.default_rng(num_rows)
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 6, num_rows))])
    keys = rng.integers(0, num_keys, starts[-1]).astype(dtype)
    values = rng.random(starts[-1]) if counted else np.empty(0)
    numbers, labels = rng.normal(size=(num_rows, num_numbers)), rng.integers(0, 2, num_rows).astype(float)
    weights = rng.normal(size=num_keys + num_numbers + 1) * 3
    said, gradient = np.empty(num_rows), np.full(len(weights), np.nan)
    cpu_logistic.logits(starts, keys, values, numbers, weights, said)
    np.testing.assert_allclose(said, reference_logistic.logits(starts, keys, values, numbers, weights), atol=1e-12)
    rows = starts, keys, values, numbers, labels, weights
    loss = cpu_logistic.loss_and_gradient(*rows, 0, num_rows, gradient)
    wanted_loss, wanted = reference_logistic.loss_and_gradient(*rows)
    assert loss == pytest.approx(wanted_loss, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(gradient, wanted, atol=1e-11)


def test_stretches_of_rows_add_up() -> None:
    rng = np.random.default_rng(0)
    starts, keys = np.arange(0, 303, 3), rng.integers(0, 9, 300).astype(np.int32)
    weights, labels = rng.normal(size=10), rng.integers(0, 2, 100).astype(float)
    parts, whole = np.empty((2, 10)), np.empty(10)
    rows = starts, keys, np.empty(0), np.empty((100, 0)), labels, weights
    losses = [
        cpu_logistic.loss_and_gradient(*rows, *span, part)
        for span, part in zip(((0, 37), (37, 100)), parts, strict=True)
    ]
    assert sum(losses) == pytest.approx(cpu_logistic.loss_and_gradient(*rows, 0, 100, whole))
    np.testing.assert_allclose(parts.sum(0), whole, atol=1e-12)


def test_logits_of_any_size_are_borne() -> None:
    gradient = np.empty(2)
    for weight, loss, pull in ((1e308, 0.0, 0.0), (-1e308, 1e308, -1.0), (0.0, np.log(2), -0.5)):
        rows = np.array([0, 1]), np.zeros(1, np.int32), np.empty(0), np.empty((1, 0)), np.ones(1), np.array([weight, 0])
        assert cpu_logistic.loss_and_gradient(*rows, 0, 1, gradient) == pytest.approx(loss)
        np.testing.assert_allclose(gradient, pull)
