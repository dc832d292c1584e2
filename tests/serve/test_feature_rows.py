"""Features that go to the device through the loader get the predictions, and the counts, of those that do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from penstock import ColumnSchema, Dataset, Schema
from penstock.embedding import FusedEmbeddings
from penstock.nn import DLRM
from penstock.serve import Predictor, save_model
from penstock.serve.feature_rows import are_packed, go_to_device, scored_rows

SIZES = {"user": 50, "item": 7, "place": 3}


def features(rows: int, dtype: type[pl.DataType] = pl.Int32) -> pl.DataFrame:
    rng = np.random.default_rng(rows)
    ids = {name: pl.Series(rng.integers(-1, size + 1, rows), dtype=dtype) for name, size in SIZES.items()}
    numbers = {name: pl.Series(rng.normal(size=rows), dtype=pl.Float32) for name in ("price", "age")}
    return pl.DataFrame({"click": pl.Series(rng.integers(0, 2, rows), dtype=pl.Int8)} | numbers | ids)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ids = [ColumnSchema(name, "int32", role="categorical", cardinality=size) for name, size in SIZES.items()]
    schema = Schema([*ids, *(ColumnSchema(name, "float32", role="continuous") for name in ("price", "age"))])
    place = tmp_path_factory.mktemp("model") / "m"
    save_model(place, None, DLRM(schema, 4, bottom=(8,), top=(8,)), FusedEmbeddings(schema, 4))
    return place


@pytest.mark.parametrize("dtype", [pl.Int16, pl.Int32, pl.Int64])
@pytest.mark.parametrize(("rows", "groups"), [(0, 1), (1, 1), (700, 90), (1_000, 1_000)])
def test_the_same_scores_and_unknown_ids(
    saved: Path, tmp_path: Path, rows: int, groups: int, dtype: type[pl.DataType]
) -> None:
    frame = features(rows, dtype)
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=groups)
    data = Dataset(tmp_path / "rows.parquet", part_size="1KB")
    promised = Schema(c.with_(cardinality=SIZES.get(c.name)) for c in data.schema)  # which rows do not keep
    with Predictor(saved, batch_size=128) as opened:
        data = Dataset.from_partitions(data.partitions, promised)
        assert are_packed(opened, data) and not go_to_device(opened, data)
        found = list(scored_rows(opened, data, "click"))
        unknown = opened.unknown.counts.tolist()
    with Predictor(saved) as opened:
        expected = opened.predict_features(frame)
        assert unknown == opened.unknown.counts.tolist() and (sum(unknown) > 0 or rows < 2)
    scores = np.concatenate([np.empty(0), *(batch.scores.numpy() for batch in found)])
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-6)
    labels = [label for batch in found if batch.labels is not None for label in batch.labels.tolist()]
    assert labels == frame["click"].to_list()


def test_columns_of_other_dtypes_take_the_other_way(saved: Path) -> None:
    frame = features(10)
    with Predictor(saved) as opened:
        assert are_packed(opened, Dataset(frame))
        for other in (pl.col("price").cast(pl.Float64), pl.col("item").abs().cast(pl.UInt64), pl.concat_list("item")):
            assert not are_packed(opened, Dataset(frame.with_columns(other)))
        assert not are_packed(opened, Dataset(frame.drop("item")))
