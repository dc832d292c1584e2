"""Logistic regression: solved to its end, and held back as rows left out tell."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.nn import logistic
from penstock.nn.logistic import STRENGTHS, LinearRows, fit_logistic


def drawn(num_rows: int, num_ids: int, effect: float, seed: int = 0) -> LinearRows:
    """Two columns of ids and two numbers; what an id says has this deviation."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, num_ids, (2, num_rows))
    numbers = rng.normal(size=(num_rows, 2))
    weights = rng.normal(0, effect, (2, num_ids))
    logits = weights[0][ids[0]] + weights[1][ids[1]] + numbers @ [0.8, -0.5]
    labels = (rng.random(num_rows) < 1 / (1 + np.exp(-logits))).astype(float)
    keys = np.concatenate([ids[0], ids[1] + num_ids])
    return LinearRows(numbers, keys, np.tile(np.arange(num_rows), 2), np.ones(2 * num_rows), labels, 2 * num_ids)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_nothing_pulls_at_the_weights_that_are_found(strength: float) -> None:
    rows = drawn(500, 20, 1.0)
    found = logistic._minimum(rows, logistic._held_back(rows, strength, 1.0), None)
    held = np.concatenate([np.full(rows.num_keys, 1 / strength), np.ones(2), [0.0]])
    pull = rows.gradient(found) + held * found
    assert np.abs(pull).max() < 0.2  # summed over 500 rows; without a step it is more than 5
    assert np.abs(rows.gradient(np.zeros_like(found))).max() > 5
    elsewhere = logistic._minimum(
        rows, logistic._held_back(rows, strength, 1.0), np.random.default_rng(1).normal(size=len(found))
    )
    np.testing.assert_allclose(found, elsewhere, atol=0.02)


def test_the_gradient_is_that_of_the_loss() -> None:
    rows = drawn(60, 4, 1.0)
    weights = np.random.default_rng(3).normal(size=rows.num_keys + 3)
    moved = [(rows.loss(weights + step) - rows.loss(weights - step)) / 2e-6 for step in 1e-6 * np.eye(len(weights))]
    np.testing.assert_allclose(rows.gradient(weights), moved, rtol=1e-5, atol=1e-5)


def test_ids_that_say_nothing_are_held_back_and_others_are_not() -> None:
    few, many = drawn(600, 200, 0.0), drawn(4_000, 20, 1.5)
    assert logistic._id_strength(few, logistic._folds(few, 0), 1.0) == STRENGTHS[0]
    assert logistic._id_strength(many, logistic._folds(many, 0), 1.0) > STRENGTHS[0]


def test_some_rows_are_rows_by_themselves() -> None:
    rows = drawn(50, 5, 1.0)
    chosen = np.random.default_rng(0).random(50) < 0.5
    weights = np.random.default_rng(1).normal(size=rows.num_keys + 3)
    np.testing.assert_allclose(rows.where(chosen).logits(weights), rows.logits(weights)[chosen])
    assert fit_logistic(rows).shape == weights.shape


def test_one_fold_does_for_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = drawn(800, 10, 1.0)
    each = fit_logistic(rows)
    monkeypatch.setattr(logistic, "_EVERY_FOLD", 100)
    np.testing.assert_allclose(fit_logistic(rows), each, atol=0.5)


@pytest.mark.parametrize("times", [1, 40])
def test_it_is_as_near_with_many_rows(times: int) -> None:
    """What is left to gain does not grow with the rows."""
    rows = drawn(500 * times, 20, 1.0)
    found = logistic._minimum(rows, logistic._held_back(rows, 0.3, 1.0), None)
    held = np.concatenate([np.full(rows.num_keys, 1 / 0.3), np.ones(2), [0.0]])
    curved = np.concatenate([np.bincount(rows.keys, minlength=rows.num_keys), (rows.numbers**2).sum(0), [500 * times]])
    assert np.abs((rows.gradient(found) + held * found) / np.sqrt(curved + held)).max() < 0.02


def test_a_column_that_says_nothing_is_held_back_more_than_one_that_does() -> None:
    rng = np.random.default_rng(0)
    ids, effects = rng.integers(0, 40, (2, 3_000)), rng.normal(0, 1.0, 40)
    labels = (rng.random(3_000) < 1 / (1 + np.exp(-effects[ids[0]]))).astype(float)  # the second column is noise
    rows = LinearRows(
        np.empty((3_000, 0)), np.concatenate([ids[0], ids[1] + 40]), np.tile(np.arange(3_000), 2), np.ones(6_000),
        labels, 80, np.arange(80) // 40,
    )  # fmt: skip
    alike, found = logistic._minimum(rows, logistic._held_back(rows, 1.0, 1.0), None), logistic._by_spreads(rows, 1.0)
    assert np.square(found[40:80]).sum() < 0.2 * np.square(alike[40:80]).sum()
    assert np.corrcoef(found[:40], effects)[0, 1] > 0.95 and found[:40].std() > 0.8 * effects.std()


@pytest.mark.parametrize(("num_rows", "num_numbers"), [(300, 50), (400, 600)])
def test_many_numbers_of_few_rows_are_held_back(num_rows, num_numbers):
    draw = np.random.default_rng(2)
    numbers = draw.normal(size=(num_rows + 2000, num_numbers))
    logits = numbers[:, :5].sum(1) * 0.6 - 1
    labels = (draw.random(len(logits)) < 1 / (1 + np.exp(-logits))).astype(float)
    learned, others = (
        LinearRows(numbers[part], *no_keys(), labels[part], num_keys=0)
        for part in (slice(num_rows), slice(num_rows, None))
    )
    constant = np.zeros(num_numbers + 1)
    constant[-1] = np.log(labels.mean() / (1 - labels.mean()))
    assert others.loss(fit_logistic(learned)) < others.loss(constant)


def no_keys():
    return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
