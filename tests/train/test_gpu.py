"""Training on the device, on the CPU: the same figures as the metrics of `fit`, records, odd batches, bad input."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from penstock.core.errors import DataError, ParameterError
from penstock.loader.torch import Loader
from penstock.nn import FusedEmbeddings
from penstock.train.gpu import DeviceMetrics, DeviceStep, fit_on_device
from penstock.train.metrics import StreamingAUC


class Clicks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = FusedEmbeddings({"user": 5}, 4, optimizer="adagrad", lr=0.5, output="concat")
        self.layer = nn.Linear(5, 1)

    def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return self.layer(self.tables(ids, numbers)).squeeze(1)


def loader(rows: int = 210, **options) -> Loader:
    rng = np.random.default_rng(0)
    user = rng.integers(0, 5, rows)
    data = {"user": user, "age": rng.random(rows).astype(np.float32), "click": user % 2}
    columns = {"categorical": ["user"], "continuous": ["age"], "labels": ["click"]}
    return Loader(data, 20, **columns, **{"layout": "packed", "shuffle": True, **options})


def test_figures_equal_those_of_the_host() -> None:
    torch.manual_seed(0)
    metrics, auc, losses = DeviceMetrics(torch.device("cpu")), StreamingAUC(), []
    for rows in (100, 3, 500):
        scores, labels = torch.randn(rows) * 3, torch.randint(0, 2, (rows,)).float()
        scores[0] = -0.0
        loss = nn.functional.binary_cross_entropy_with_logits(scores, labels)
        metrics.add(loss, scores, labels)
        auc.update(scores, labels)
        losses.append(float(loss) * rows)
    found = metrics.take()
    assert found["rows"] == 603 and found["auc"] == auc.compute()
    assert found["loss"] == pytest.approx(sum(losses) / 603)
    assert metrics.take()["rows"] == 0


def test_records() -> None:
    told: list = []
    history = fit_on_device(Clicks(), loader(), epochs=2, valid=loader(), log_every=4, callbacks=[told.append])
    assert [r["step"] for r in history.of("train")] == [4, 8, 11, 12, 16, 20, 22]
    assert sum(history.values("train", "rows")) == 2 * 210
    assert history.last("valid")["auc"] == 1.0 and history.last("valid")["rows"] == 210
    assert told == history.records


def test_stopping() -> None:
    assert fit_on_device(Clicks(), loader(), epochs=3, max_steps=7).last("train")["step"] == 7
    stop = fit_on_device(Clicks(), loader(), epochs=3, log_every=2, callbacks=[lambda record: record["step"] >= 4])
    assert stop.last("train")["step"] == 4


def test_bad_input() -> None:
    with pytest.raises(DataError, match='layout="packed"'):
        fit_on_device(Clicks(), loader(layout="dict"))
    with pytest.raises(ParameterError, match="no parameters besides its tables"):
        DeviceStep(FusedEmbeddings([3], 2))
    with pytest.raises(ParameterError, match="need a model on a GPU"):
        DeviceStep(Clicks(), graph=True)
    with pytest.raises(ParameterError, match="epochs must be an int"):
        fit_on_device(Clicks(), loader(), epochs=-1)


def test_the_example_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "criteo_gpu.py"))
    assert example["main"](num_rows=20_000, batch_size=1024)["auc"] > 0.6
