"""A frame of plain features goes to the model by one call a batch, and small pieces at a time: the same predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from penstock import ColumnSchema, Schema
from penstock.embedding import FusedEmbeddings
from penstock.nn import DLRM
from penstock.serve import Predictor, predictor, save_model

rng = np.random.default_rng(2)
SIZES = {"user": 50, "item": 7, "place": 3}
FRAME = pl.DataFrame(
    {name: pl.Series(rng.integers(-1, size + 1, 700), dtype=pl.Int32) for name, size in SIZES.items()}
    | {name: pl.Series(rng.normal(size=700), dtype=pl.Float32) for name in ("price", "age")}
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ids = [ColumnSchema(name, "int32", role="categorical", cardinality=size) for name, size in SIZES.items()]
    schema = Schema([*ids, *(ColumnSchema(name, "float32", role="continuous") for name in ("price", "age"))])
    place = tmp_path_factory.mktemp("model") / "m"
    save_model(place, None, DLRM(schema, 4, bottom=(8,), top=(8,)), FusedEmbeddings(schema, 4))
    return place


@pytest.mark.parametrize("rows", [1, 99, 100, 650])
def test_one_call_gives_what_columns_give(saved: Path, rows: int) -> None:
    frame = FRAME[30 : 30 + rows].select(reversed(FRAME.columns))
    with Predictor(saved, batch_size=100) as opened:
        quick = opened.model_inputs(frame)
        slow = [opened._model_input(columns) for columns in opened.columns.of_features(frame)]
    assert [batch.continuous.shape for batch in quick] == [batch.continuous.shape for batch in slow]
    for one, other in zip(quick, slow, strict=True):
        assert not one.ids and one.matrix is not None and other.matrix is not None
        assert one.matrix.dtype == other.matrix.dtype and (one.matrix == other.matrix).all()
        assert one.continuous.tobytes() == other.continuous.tobytes()
        assert one.outside.tolist() == other.outside.tolist()


def test_other_columns_take_the_other_way(saved: Path) -> None:
    with Predictor(saved) as opened:
        assert opened.model_inputs(FRAME.with_columns(pl.col("item").cast(pl.Int64)))[0].ids
        assert opened.model_inputs(FRAME.clear()) == []
        with pytest.raises(Exception, match="'user' has missing values"):
            opened.model_inputs(FRAME.with_columns(user=pl.lit(None, pl.Int32)))


def test_pieces_that_stay_in_a_cache_predict_the_same(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Predictor(saved) as opened:
        whole = opened.predict_features(FRAME)
        monkeypatch.setattr(predictor, "_MOST", 64)
        np.testing.assert_allclose(opened.predict_features(FRAME), whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("columns", "dim", "numbers", "rows"), [(5, 8, 3, 4096), (26, 16, 13, 1024), (60, 32, 40, 512)]
)
def test_wide_inputs_are_cut_into_fewer_rows(columns: int, dim: int, numbers: int, rows: int) -> None:
    assert predictor._rows_of_a_piece(torch.empty(2, numbers), torch.empty(2, columns, dim)) == rows
    assert predictor._rows_of_a_piece(torch.empty(2, numbers), {"a": torch.empty(2, dim)}) is None
    assert predictor._rows_of_a_piece(torch.empty(0, numbers), torch.empty(0, columns, dim)) is None
