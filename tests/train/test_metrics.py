from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from penstock.core.errors import DataError
from penstock.train import LogLoss, StreamingAUC


def exact_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    positives, negatives = scores[labels == 1], scores[labels == 0]
    wins = (positives[:, None] > negatives).sum() + 0.5 * (positives[:, None] == negatives).sum()
    return wins / (len(positives) * len(negatives))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 50.0])
def test_auc_is_that_of_all_pairs(scale) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 3000)
    scores = ((rng.normal(size=3000) + labels) * scale).astype(np.float32)
    auc, halves = StreamingAUC(), [StreamingAUC(), StreamingAUC()]
    for number, part in enumerate(np.split(np.arange(3000), [10, 1000, 2999])):
        auc.update(scores[part], labels[part])
        halves[number % 2].update(torch.from_numpy(scores[part]), torch.from_numpy(labels[part]))
    assert auc.compute() == pytest.approx(exact_auc(scores, labels), abs=5e-5)
    halves[0].merge(halves[1])
    assert halves[0].compute() == auc.compute()
    assert auc.compute() != StreamingAUC().compute()


def test_auc_of_a_large_batch_counts_the_same() -> None:
    rng = np.random.default_rng(1)
    scores, labels = rng.normal(size=200_000), rng.integers(0, 2, 200_000)
    whole, parts = StreamingAUC(), StreamingAUC()
    whole.update(scores, labels)
    for part in np.array_split(np.arange(200_000), 50):
        parts.update(scores[part], labels[part])
    np.testing.assert_array_equal(whole.counts, parts.counts)


def test_auc_corners() -> None:
    auc = StreamingAUC()
    assert math.isnan(auc.compute())
    auc.update([], [])
    auc.update([0.0, -0.0], [0, 1])
    assert auc.compute() == 0.5
    auc.reset()
    auc.update([-np.inf, -1e30, -1e-30, 0, 1e-30, 1e30, np.inf], [0, 0, 0, 1, 1, 1, 1])
    assert auc.compute() == 1.0


def test_log_loss_is_torch_s() -> None:
    logits = torch.tensor([-200.0, -1.0, 0.0, 3.0, 90.0])
    labels = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0])
    loss = LogLoss()
    loss.update(logits[:2], labels[:2])
    loss.update(logits[2:], labels[2:])
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
    assert loss.compute() == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [([0.1, 0.2], [0], "must both be"), ([0.1], [2], "0 or 1"), ([float("nan")], [1], "1 of 1 scores are NaN")],
)
def test_bad_input(scores, labels, message) -> None:
    for metric in (StreamingAUC(), LogLoss()):
        with pytest.raises(DataError, match=message):
            metric.update(scores, labels)
