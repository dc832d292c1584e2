"""The whole way on a real GPU: `TrainJob(device="cuda")` takes the fast path, and its model predicts anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import yaml

from penstock import Dataset
from penstock.core.errors import ParameterError
from penstock.data.synthetic import criteo
from penstock.embedding import CachedEmbeddings, FusedEmbeddings
from penstock.etl import presets
from penstock.jobs import TrainingStopped, TrainJob
from penstock.jobs.embeddings import build_embeddings, choose_tables
from penstock.jobs.events import Trained, TrainingBegan
from penstock.jobs.scoring import evaluate_model, predict_files
from penstock.jobs.settings import TrainSettings
from penstock.nn import DLRM
from penstock.serve import Predictor, save_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # said by torch's compiler
    pytest.mark.filterwarnings("ignore:TensorFloat32", "ignore:The .grad attribute", "ignore:Online softmax"),
]
SETTINGS: dict[str, Any] = {
    "model": {"name": "DLRM", "bottom": [16], "top": [16]},
    "epochs": 3,
    "batch_size": 256,
    "embedding_dim": 16,
    "device": "cuda",
    "learning_rate": 0.005,
}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("logs") / "day.tsv"
    criteo(place, 20_000, cardinalities=40, progress=False)
    return place


def job(logs: Path, output: Path, **more: Any) -> TrainJob:
    settings = {**SETTINGS, **more.pop("settings", {})}
    return TrainJob(logs, output, presets.load("criteo"), settings=settings, progress=False, **more)


def test_the_whole_way(logs: Path, tmp_path: Path) -> None:
    heard: dict[type, Any] = {}
    found = job(logs, tmp_path / "run", listener=lambda event: heard.setdefault(type(event), event)).run()
    assert isinstance(heard[TrainingBegan].embeddings, FusedEmbeddings) and heard[Trained].history.stats["captured"]
    assert found.auc > 0.6 and found.log_loss < 0.6
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["tables"] == "fused"

    features = Dataset(tmp_path / "run" / "valid").to_polars()
    with Predictor(found.model) as host, Predictor(found.model, device="cuda") as device:
        np.testing.assert_allclose(device.predict_features(features), host.predict_features(features), atol=1e-6)
        outside = features.with_columns(C1=pl.lit(10**6, features.schema["C1"]))
        np.testing.assert_allclose(device.predict_features(outside), host.predict_features(outside), atol=1e-6)
        assert device.unknown.to_dict() == host.unknown.to_dict() and device.unknown.to_dict()["C1"] >= len(features)
    figures = evaluate_model(found.model, tmp_path / "run" / "valid", device="cuda", progress=False)
    assert figures.auc == pytest.approx(found.auc, abs=1e-3)


def test_features_are_scored_where_the_model_is(logs: Path, tmp_path: Path) -> None:
    """As the host scores them: from pages that the device decodes, and with ids that training has not seen."""
    model, place = job(logs, tmp_path / "run", settings={"epochs": 1}).run().model, tmp_path / "features"
    frame = Dataset(tmp_path / "run" / "features").to_polars()
    odd = pl.when(pl.int_range(pl.len()) % 9 == 0).then(10**6).otherwise("C1").cast(frame.schema["C1"]).alias("C1")
    described = Dataset(tmp_path / "run" / "features").schema
    Dataset.from_partitions(Dataset(frame.with_columns(odd)).partitions, described).to_parquet(place, progress=False)
    figures, written = [], []
    for device in ("cpu", "cuda"):
        figures.append(evaluate_model(model, place, device=device, is_raw=False, progress=False))
        predict_files(model, place, tmp_path / f"{device}.parquet", keep=["label"], device=device, is_raw=False)
        written.append(pl.read_parquet(tmp_path / f"{device}.parquet"))
    assert figures[0].rows == figures[1].rows == len(frame) and figures[0].unknown == figures[1].unknown
    assert figures[1].unknown["C1"] > 0.1 and figures[1].auc == pytest.approx(figures[0].auc, abs=1e-5)
    assert figures[1].log_loss == pytest.approx(figures[0].log_loss, abs=1e-5)
    assert written[0]["label"].equals(written[1]["label"])
    np.testing.assert_allclose(written[1]["probability"], written[0]["probability"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["Adam", "SGD", "RMSprop", "Adagrad"])
def test_every_dense_optimizer(logs: Path, tmp_path: Path, name: str) -> None:
    own = {"name": name, "lr": {"schedule": "Warmup", "lr": 0.01, "steps": 20}}
    found = job(
        logs, tmp_path / "run", settings={"dense_optimizer": own, "max_steps": 60, "autocast": "bfloat16"}
    ).run()
    assert found.steps == 60 and 0 < found.auc < 1


def test_a_run_stops_here_and_goes_on_anywhere(logs: Path, tmp_path: Path) -> None:
    whole = job(logs, tmp_path / "whole").run()
    for place, device in (("same", "cuda"), ("host", "cpu")):
        asked: list[int] = []

        def stop(asked: list[int] = asked) -> bool:
            asked.append(1)
            return len(asked) >= 30

        with pytest.raises(TrainingStopped):
            job(logs, tmp_path / place, stop=stop).run()
        resumed = TrainJob.resumed(tmp_path / place, {"device": device}, progress=False).run()
        assert resumed.steps == whole.steps
        assert resumed.auc == pytest.approx(whole.auc, abs=5e-3), device


def test_a_store_where_tables_do_not_fit_or_are_not_wanted(logs: Path, tmp_path: Path) -> None:
    found = job(logs, tmp_path / "store", settings={"tables": "store", "epochs": 1}).run()
    assert found.embedding_rows > 0 and list((tmp_path / "store" / "model").glob("store-*"))
    found = job(logs, tmp_path / "ftrl", settings={"embedding_optimizer": {"name": "FTRL"}, "epochs": 1}).run()
    assert list((tmp_path / "ftrl" / "model").glob("store-*"))
    schema, device = Dataset(tmp_path / "ftrl" / "features").schema, torch.device("cuda")
    assert choose_tables(TrainSettings.resolve({}), schema, device) == "fused"
    huge = schema.with_column(schema["C1"].with_(cardinality=10**11))
    assert choose_tables(TrainSettings.resolve({}), huge, device) == "store"
    with pytest.raises(ParameterError, match=r"GiB free; use tables: cached"):
        build_embeddings(TrainSettings.resolve({"tables": "fused"}), huge, device)


def test_a_run_with_tables_behind_a_cache(logs: Path, tmp_path: Path) -> None:
    heard: dict[type, Any] = {}
    settings = {"tables": "cached", "store": {"cache_rows": 900}, "batch_size": 64, "max_steps": 400}
    found = job(
        logs, tmp_path / "run", settings=settings, listener=lambda event: heard.setdefault(type(event), event)
    ).run()
    tables = heard[TrainingBegan].embeddings
    assert isinstance(tables, CachedEmbeddings) and len(tables.weight) == 900 < found.embedding_rows
    assert heard[Trained].history.stats["captured"] and found.auc > 0.55
    figures = evaluate_model(found.model, tmp_path / "run" / "valid", progress=False)
    assert figures.auc == pytest.approx(found.auc, abs=1e-3)


def test_tables_behind_a_cache_predict_the_same(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": [3, 7, 11] * 20, "item": [1, 2, 4] * 20})
    data = Dataset(frame).with_roles(categorical=["user", "item"])
    schema = data.schema
    for name in ("user", "item"):
        schema = schema.with_column(schema[name].with_(cardinality=20))
    tables = CachedEmbeddings(schema, 16, cache_rows=32, device="cuda")
    for _ in range(3):
        tables(torch.tensor([[3, 1], [7, 2]], device="cuda")).square().sum().backward()
    model = DLRM(schema, 16).cuda()
    save_model(tmp_path / "m", None, model, tables)
    with torch.no_grad():
        ids = torch.from_numpy(frame.to_numpy().copy()).cuda()
        expected = torch.sigmoid(model.eval()(torch.empty(60, 0, device="cuda"), tables(ids))).cpu().numpy()
    with Predictor(tmp_path / "m", device="cuda") as predictor:
        np.testing.assert_array_equal(predictor.predict_features(frame), expected)
