"""Teachers shaped as tables that are no logs: customers, and numbers alone."""

from __future__ import annotations

import numpy as np
from quality_planted import Planted, drawn, effect, popular


def mixed(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Customers: six categories of few values, and six numbers of which two weigh otherwise in each category."""
    rng = np.random.default_rng(seed + 500)
    total, sizes = num_rows + num_test, (3, 2, 4, 6, 2, 30)
    ids = [popular(rng, total, size, 0.4) for size in sizes]
    numbers = rng.normal(size=(total, 6)).astype(np.float32)
    logit = sum(effect(rng, column, size, 0.3) for column, size in zip(ids, sizes, strict=True))
    logit = (
        logit + numbers[:, 0] * effect(rng, ids[0], sizes[0], 0.8) + numbers[:, 1] * effect(rng, ids[3], sizes[3], 0.6)
    )
    logit = logit - 0.5 * numbers[:, 2] ** 2 + 0.4 * numbers[:, 3]
    return drawn(rng, _at_rate(logit, 0.25), ids, numbers, num_rows)


def xor(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Eight numbers, of which two products decide: nothing that a regression learns."""
    rng = np.random.default_rng(seed + 300)
    numbers = rng.normal(size=(num_rows + num_test, 8)).astype(np.float32)
    logit = 1.2 * numbers[:, 0] * numbers[:, 1] + np.sign(numbers[:, 2]) * numbers[:, 3] + 0.3 * numbers[:, 4]
    return drawn(rng, logit - 0.3, [], numbers, num_rows)


def many60(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Sixty numbers, a third of which count."""
    return _many(60, num_rows, num_test, seed)


def many300(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Three hundred of them."""
    return _many(300, num_rows, num_test, seed)


def _many(count: int, num_rows: int, num_test: int, seed: int) -> Planted:
    rng = np.random.default_rng(seed + 400)
    numbers = rng.normal(size=(num_rows + num_test, count)).astype(np.float32)
    weights = rng.normal(0, 1, count) * (rng.random(count) < 0.3)
    logit = numbers @ (weights * 1.3 / np.sqrt((weights**2).sum())) + 0.4 * np.tanh(numbers[:, 0] * numbers[:, 1])
    return drawn(rng, logit - 0.5, [], numbers, num_rows)


def _at_rate(logit: np.ndarray, rate: float) -> np.ndarray:
    """The logits moved so that this share of labels is 1."""
    low, high = -30.0, 30.0
    for _ in range(50):
        middle = (low + high) / 2
        if (1 / (1 + np.exp(-(logit + middle)))).mean() > rate:
            high = middle
        else:
            low = middle
    return logit + middle
