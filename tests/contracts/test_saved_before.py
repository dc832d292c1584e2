"""What the first version saved still loads, with the numbers it had (`tests/artefacts/0.1.0.zip` was written by it)."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from penstock import Dataset, Workflow
from penstock.embedding import Adagrad, SlotConfig, Store
from penstock.loader.torch import Loader
from penstock.nn import MLP
from penstock.serve import Predictor
from penstock.train import fit


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("saved")
    with zipfile.ZipFile(Path(__file__).parents[1] / "artefacts" / "0.1.0.zip") as archive:
        archive.extractall(place)
    return place


def test_a_workflow_transforms_as_it_did(saved: Path) -> None:
    workflow = Workflow.load(saved / "workflow")
    found = workflow.transform(Dataset(pl.read_parquet(saved / "raw.parquet"))).to_polars()
    assert found.equals(pl.read_parquet(saved / "expected_features.parquet"))


@pytest.mark.parametrize("optimizer", ["adagrad", "lazy_adam", "adam"])
def test_a_store_and_its_increment_hold_their_rows(saved: Path, optimizer: str) -> None:
    with Store.open(saved / f"store_{optimizer}_increment") as store:
        batch = {"user": np.arange(50), "tags": [*range(9), *[0] * 41]}
        found = store.lookup(batch, train=False).packed
    np.testing.assert_array_equal(found, np.load(saved / f"store_{optimizer}_rows.npy"))


@pytest.mark.parametrize("tables", ["store", "fused"])
def test_a_model_predicts_as_it_did(saved: Path, tables: str) -> None:
    rows = json.loads((saved / "model_rows.json").read_text())
    with Predictor(saved / f"run_{tables}" / "model") as predictor:
        found = predictor.predict(rows)
    np.testing.assert_allclose(found, np.load(saved / f"model_{tables}_scores.npy"), rtol=0, atol=1e-7)


def test_a_checkpoint_is_gone_on_from(saved: Path) -> None:
    loader = Loader(saved / "run_store" / "features", 128, shuffle=True, seed=0, chunk_rows=419430)
    model = MLP(loader.schema, 4, hidden=[8])
    slots = [SlotConfig(name, dim=4) for name in model.categorical]
    with Store(slots, Adagrad()) as store:
        history = fit(model, loader, store, epochs=3, checkpoint_dir=saved / "run_store" / "checkpoints", log_every=1)
        assert history.stats["steps"] == 15
        assert [record.step for record in history.records if type(record).__name__ == "TrainRecord"][:10] == [
            *range(1, 11)
        ]
