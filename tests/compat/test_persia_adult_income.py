"""PERSIA's own end-to-end job: adult-income, seed 3, staleness 1, against the AUC that its training script asserts.

`tests/artefacts/adult_income.parquet` is the Adult data set (B. Becker and R. Kohavi, UCI Machine Learning Repository,
1996, CC BY 4.0): its categories numbered in alphabetical order in each split by itself, as PERSIA's example does, and
without the column fnlwgt, which the example leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from penstock.compat.persia.ctx import TrainCtx, eval_ctx

from penstock.compat.persia import _service
from penstock.compat.persia.data import DataLoader, IterableDataset
from penstock.compat.persia.embedding import Adagrad
from penstock.compat.persia.embedding.data import IDTypeFeatureWithSingleID, Label, NonIDTypeFeature, PersiaBatch
from penstock.compat.persia.utils import setup_seed

pytestmark = pytest.mark.slow
ROWS = Path(__file__).parents[1] / "artefacts" / "adult_income.parquet"
NUMBERS = ["age", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
IDS = ["workclass", "education", "marital_status", "occupation", "relationship", "race", "gender", "native_country"]
SLOTS = {"feature_index_prefix_bit": 12, "slots_config": {name: {"dim": 8} for name in IDS}}
PERSIA = 0.8928645493226243  # on a CPU, after 254 batches of 128
TOLERANCE = 3e-4  # PERSIA's embeddings travel as float16, and its torch was another


class Rows(IterableDataset):
    def __init__(self, split: str) -> None:
        super().__init__(buffer_size=10)
        self.rows, self.trained = pl.read_parquet(ROWS).filter(split=split), split == "train"

    def __iter__(self) -> Iterator[PersiaBatch]:
        for part in self.rows.iter_slices(128):
            ids = [IDTypeFeatureWithSingleID(name, part[name].to_numpy().astype(np.uint64)) for name in IDS]
            numbers = NonIDTypeFeature(part.select(NUMBERS).to_numpy().astype(np.float32))
            label = Label(part["income"].to_numpy().astype(np.float32).reshape(-1, 1))
            yield PersiaBatch(ids, [numbers], [label], requires_grad=self.trained)


class Tower(torch.nn.Module):
    """The example's model; its layers draw their weights in this order."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.BatchNorm1d(16))
        self.embeddings = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.BatchNorm1d(128))
        self.top = torch.nn.Sequential(torch.nn.Linear(144, 256), torch.nn.Linear(256, 128), torch.nn.Linear(128, 1))

    def forward(self, numbers: list[torch.Tensor], embeddings: list[torch.Tensor]) -> torch.Tensor:
        together = [self.embeddings(torch.cat(embeddings, 1)), self.numbers(numbers[0])]
        return torch.sigmoid(self.top(torch.cat(together, 1)))


def trained_auc() -> tuple[float, list[int]]:
    """AUC on the test split after as many batches as the example trains on, and the rows of each server."""
    from sklearn.metrics import roc_auc_score

    _service.service().configure(_service.EMBEDDING_CONFIG, SLOTS)
    setup_seed(3)
    model = Tower()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with TrainCtx(Adagrad(lr=1e-2), optimizer, model=model, mixed_precision=False) as ctx:
        loader = DataLoader(Rows("train"), reproducible=True, embedding_staleness=1)
        for number, data in enumerate(loader):
            output, labels = ctx.forward(data)
            ctx.backward(torch.nn.functional.binary_cross_entropy(output, labels[0]))
            if number == 253:
                break
        model.eval()
        with eval_ctx(model=model) as evaluation:
            found = [evaluation.forward(data) for data in DataLoader(Rows("test"))]
        scores = torch.cat([output.detach() for output, _ in found])
        return roc_auc_score(torch.cat([labels[0] for _, labels in found]), scores), ctx.get_embedding_size()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    deterministic = torch.are_deterministic_algorithms_enabled()
    _service.reset()
    yield
    _service.reset()
    torch.use_deterministic_algorithms(deterministic)


def test_the_auc_that_persia_asserts() -> None:
    auc, rows = trained_auc()
    assert auc == pytest.approx(PERSIA, abs=TOLERANCE)
    assert rows == [102]


def test_servers_of_their_own_on_ray_give_the_same(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory, _ = trained_auc()
    _service.reset()
    monkeypatch.setenv(_service.STORE, "ray")
    monkeypatch.setenv(_service.SERVERS, "2")
    on_ray, rows = trained_auc()
    assert len(rows) == 2 and sum(rows) == 102 and min(rows) > 30
    assert on_ray == pytest.approx(in_memory, abs=1e-6) and on_ray == pytest.approx(PERSIA, abs=TOLERANCE)
