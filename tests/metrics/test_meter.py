"""Loss and metrics that wait on the device."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from penstock.core.errors import ParameterError
from penstock.metrics import AUC, NDCG, LogLoss, Meter


@pytest.mark.parametrize("capacity", [None, 7, 110, 600])
def test_figures_equal_those_of_the_metrics(capacity) -> None:
    torch.manual_seed(0)
    meter, auc, loss, losses = Meter("cpu", ["auc", LogLoss], capacity=capacity), AUC(), LogLoss(), []
    for _ in range(2):
        auc.reset()
        loss.reset()
        losses.clear()
        for rows in (100, 3, 500, 1):
            scores, labels, weights = torch.randn(rows) * 3, torch.randint(0, 2, (rows,)).float(), torch.rand(rows)
            scores[0] = -0.0
            value = nn.functional.binary_cross_entropy_with_logits(scores, labels)
            meter.add(value, scores, labels, rows, weights)
            auc.update(scores, labels, weights)
            loss.update(scores, labels, weights)
            losses.append(float(value) * rows)
        found = meter.collect()
        assert list(found) == ["loss", "rows", "auc", "log_loss"]
        assert found["rows"] == 604 and found["auc"] == pytest.approx(auc.compute(), rel=1e-12)
        assert found["log_loss"] == pytest.approx(loss.compute(), rel=1e-12)
        assert found["loss"] == pytest.approx(sum(losses) / 604)
    assert meter.collect()["rows"] == 0


def test_batches_of_another_kind_are_not_rounded() -> None:
    meter = Meter("cpu")
    meter.add(torch.tensor(0.0), torch.tensor([0.5, 0.25]), torch.tensor([0, 1]), 2)
    close = torch.tensor([1.0, 1.0 + 2**-50], dtype=torch.float64)
    meter.collect()
    meter.add(torch.tensor(0.0), close, torch.tensor([0, 1]), 2)
    assert meter.collect()["auc"] == 1.0


def test_rows_that_a_replay_adds_are_waited_for() -> None:
    """What a captured graph does: the buffers are written, and the host is told of it."""
    meter, scores, labels = Meter("cpu", capacity=5), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    for _ in range(4):
        meter.reserve(2) if meter._buffers else meter.add(torch.tensor(1.0), scores, labels, 2)
        if meter._reserved and len(meter._buffers) and int(meter._buffers[""]._filled) < meter._reserved:
            meter._buffers[""].write(scores, labels, None)
    assert sum(meter._metrics[""][0].state()["negatives"]) == 2  # two batches fit, so two were read
    assert meter.collect()["auc"] == 0.0


def test_no_metric_without_one_binary_label() -> None:
    meter, loss = Meter("cpu", ["auc", "log_loss"]), torch.tensor(1.0)
    meter.add(loss, torch.randn(2), torch.tensor([0.0, 3.5]), 2)
    assert meter.collect() == {"loss": 1.0, "rows": 2}
    meter.add(loss, torch.randn(2, 3), torch.zeros(2, 3), 2)
    assert meter.collect() == {"loss": 1.0, "rows": 2}
    meter.add(loss, torch.zeros(2, 1), torch.tensor([0.0, 1.0]), 2)
    assert meter.collect()["auc"] == 0.5


def test_several_outputs_are_named() -> None:
    meter = Meter("cpu", ["auc"], capacity=3)
    for _ in range(3):
        scores = {"click": torch.tensor([0.0, 1.0]), "stars": torch.tensor([0.0, 1.0]), "buy": torch.tensor([1.0, 0.0])}
        labels = {"click": torch.tensor([0, 1]), "buy": torch.tensor([0, 1]), "stars": torch.tensor([2, 5])}
        meter.add(torch.tensor(0.25), scores, labels, 2)
    assert meter.collect() == {"loss": 0.25, "rows": 6, "click/auc": 1.0, "buy/auc": 0.0}
    meter.add(torch.tensor(0.25), {"click": torch.tensor([0.0, 1.0])}, {"click": torch.tensor([0, 1])}, 2)
    assert meter.collect() == {"loss": 0.25, "rows": 2, "click/auc": 1.0}


def test_nan_scores_are_told_and_leave_no_figure() -> None:
    meter = Meter("cpu", ["auc", "log_loss"])
    meter.add(torch.tensor(math.nan), torch.tensor([math.nan, 1.0, 0.0]), torch.tensor([0, 1, 0]), 3)
    found = meter.collect()
    assert found["nan_scores"] == 1 and all(math.isnan(found[name]) for name in ("loss", "auc", "log_loss"))
    meter.add(torch.tensor(1.0), torch.tensor([1.0, 0.0]), torch.tensor([1, 0]), 2)
    assert meter.collect()["auc"] == 1.0


def test_metrics_by_group_are_refused() -> None:
    with pytest.raises(ParameterError, match="update a NDCG"):
        Meter("cpu", [NDCG])
