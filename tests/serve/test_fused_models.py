"""Models whose embeddings are tables on the device: saved, loaded, and asked by every way there is."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from penstock.core.errors import DataError, ParameterError
from penstock.embedding import CachedEmbeddings, EmbeddingTables, FusedEmbeddings
from penstock.nn import DLRM
from penstock.serve import Predictor, load_model, save_model
from penstock.serve.http import HttpServer
from penstock.train import fit

SEVERAL = {"user": 4, "ad": 2, "tags": 4}  # dims
KINDS = {
    "fused": lambda schema: FusedEmbeddings(schema, 4, lr=0.2, optimizer="adam", pooling="mean"),
    "bfloat16": lambda schema: FusedEmbeddings(schema, 4, lr=0.2, dtype="bfloat16"),
    "cached": lambda schema: CachedEmbeddings(schema, SEVERAL, lr=0.2, cache_rows=70, pooling="sqrt_n"),
}


@pytest.fixture(scope="module", params=KINDS)
def fused(request: pytest.FixtureRequest, train: Any) -> Any:
    """Like `trained`, with tables in the store's place."""
    found = train()
    torch.manual_seed(0)
    found.store.close()
    found.store = KINDS[request.param](found.schema)
    found.model = DLRM(found.schema, found.store.dim, bottom=(8,), top=(8,))
    fit(found.model, found.loader, found.store, epochs=4, progress=False)
    return found


@pytest.fixture(scope="module")
def saved(fused: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fused") / "model"
    save_model(place, fused.workflow, fused.model, fused.store)
    return place


def test_predictions_are_those_of_the_live_tables(fused: Any, saved: Path) -> None:
    rows = fused.frame.drop("click")
    with Predictor(saved) as predictor:
        np.testing.assert_array_equal(predictor.predict(rows), fused.expected())
        np.testing.assert_array_equal(predictor.predict_features(fused.features), fused.expected())
        few = predictor.predict(rows.to_dicts()[:7])
        np.testing.assert_allclose(few, fused.expected()[:7], rtol=0, atol=1e-6)
        scores, clicks = predictor.predict(rows), fused.frame["click"].to_numpy()
    assert scores[clicks == 1].mean() > scores[clicks == 0].mean() + 0.1


def test_nothing_but_plain_files_and_no_optimizer_state(fused: Any, saved: Path) -> None:
    kinds = {p.suffix for p in saved.rglob("*") if p.is_file()}
    assert kinds <= {".json", ".safetensors", ".parquet"}
    tables = load_model(saved).tables
    assert tables.dims == fused.store.dims
    for group in tables.groups:
        assert group.weight.shape == (group.num_rows + 1, group.dim)  # one of zeros
        assert group.states == (None, None)


def test_over_http(fused: Any, saved: Path) -> None:
    rows = fused.frame.drop("click").to_dicts()[:20]
    with HttpServer(saved, port=0) as server:
        body, headers = json.dumps({"rows": rows}).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}/predict", body, headers)
        with urllib.request.urlopen(request, timeout=300) as answer:
            scores = np.array(json.load(answer)["probabilities"], np.float32)
    np.testing.assert_allclose(scores, fused.expected()[:20], rtol=0, atol=1e-6)


def test_unknown_ids_are_zeros_and_counted(fused: Any, saved: Path) -> None:
    ids = fused.features.head(4)
    with Predictor(saved) as predictor:
        predictor.predict_features(ids)
        before = predictor.unknown.to_dict()
        outside = [predictor.predict_features(ids.with_columns(user=pl.lit(n, pl.Int64))) for n in (-1, 99_999)]
        np.testing.assert_array_equal(*outside)
        assert predictor.unknown.to_dict().get("user", 0) == before.get("user", 0) + 8
        lists = ids.with_columns(tags=pl.lit([7_777, 1], pl.List(pl.Int64)))
        assert np.isfinite(predictor.predict_features(lists)).all()
        assert predictor.unknown.to_dict()["tags"] >= before.get("tags", 0) + 4


def test_plain_tables_refuse_such_ids(fused: Any, tmp_path: Path) -> None:
    save_model(tmp_path / "m", None, DLRM(fused.schema, 4), EmbeddingTables(fused.schema, 4))
    with Predictor(tmp_path / "m") as predictor, pytest.raises(DataError, match="column 'user': ids must lie in"):
        predictor.predict_features(fused.features.head(2).with_columns(user=pl.lit(99_999, pl.Int64)))


def test_what_does_not_fit_is_not_saved(fused: Any, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"the tables have dim=8, the model embedding_dim=(4|\{'user': 4)"):
        save_model(tmp_path / "m", None, fused.model, FusedEmbeddings(fused.schema, 8))
    with pytest.raises(ParameterError, match=r"the tables are \['a'\]; they must agree"):
        save_model(tmp_path / "m", None, fused.model, FusedEmbeddings({"a": 5}, 4))
    assert not (tmp_path / "m").exists()
