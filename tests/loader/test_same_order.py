"""The same seed gives the same rows in the same order, whatever columns, dtypes, layout or threads."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from penstock.data import Dataset
from penstock.loader import Loader

WIDE = 12


@pytest.fixture(params=["frame", "parquet", "csv"])
def data(request, tmp_path, monkeypatch) -> Dataset:
    monkeypatch.setattr("penstock.loader.settings.TARGET_BYTES", 40_000)  # so that chunks are short
    rng = np.random.default_rng(0)
    columns = {f"x{i}": rng.random(5000).astype(np.float32 if i % 2 else np.float64) for i in range(WIDE)}
    frame = pl.DataFrame({"row": np.arange(5000), **columns})
    if request.param == "frame":
        return Dataset(frame)
    if request.param == "csv":
        frame.write_csv(tmp_path / "a.csv")
        return Dataset(tmp_path / "a.csv", part_size=20_000)
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=300)
    return Dataset(tmp_path / "a.parquet", part_size=1)


def order(data: Dataset, **settings) -> list[int]:
    settings = {"categorical": ["row"], **settings}
    batches = list(Loader(data, 128, shuffle=True, seed=7, **settings))
    packed = settings.get("layout") == "packed"
    return np.concatenate([b[0][:, 0] if packed else b[0]["row"] for b in batches]).astype(int).tolist()


def test_the_order_does_not_depend_on_what_is_loaded(data):
    expected = order(data)
    assert sorted(expected) == list(range(5000)) and expected != sorted(expected)
    everything = [f"x{i}" for i in range(WIDE)]
    assert order(data, continuous=everything) == expected
    assert order(data, continuous=everything[:3], num_threads=1) == expected
    assert order(data, continuous=everything, layout="packed") == expected
    assert order(data, dtypes={"row": "int16"}) == expected
    assert order(data.select(["row"])) == expected
    assert order(data.select(["x1", "row"]).select(["row"])) == expected


def test_a_wide_row_makes_short_chunks_and_a_sample_of_rows_does_not(data):
    assert Loader(data, 8).chunk_rows < 1000
    few = data.sample(num_rows=10)
    assert Loader(few, 8).chunk_rows == Loader(data, 8).chunk_rows


def test_selected_columns_take_the_fast_road(tmp_path):
    pl.DataFrame({"a": [1, 2], "b": [3, 4]}).write_parquet(tmp_path / "a.parquet")
    loader = Loader(Dataset(tmp_path / "a.parquet").select(["b"]), 2)
    assert next(iter(loader))[0]["b"].tolist() == [3, 4]
    assert loader._running().source.frame_columns(0) == []
