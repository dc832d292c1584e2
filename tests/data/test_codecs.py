"""Parquet codecs: each is written under its name, found again in the footer, and read the same by every road."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from penstock.core.errors import ParameterError
from penstock.data import Dataset
from penstock.data.codecs import PARQUET_CODECS, codec_in_footer, codec_named
from penstock.loader import Loader
from penstock.loader.parquet import ParquetColumns

FRAME = pl.DataFrame({"id": np.arange(4000) % 50, "price": np.arange(4000) / 7})


@pytest.mark.parametrize("name", PARQUET_CODECS)
class TestCodec:
    @pytest.fixture
    def data(self, name: str, tmp_path: Path) -> Dataset:
        Dataset(FRAME).to_parquet(tmp_path / "data", compression=name.upper())
        return Dataset(str(tmp_path / "data"))

    def test_is_in_the_footer(self, name: str, data: Dataset) -> None:
        column = pq.read_metadata(data.partitions[0].path).row_group(0).column(0)
        assert codec_in_footer(column.compression) is codec_named(name)

    def test_reads_the_same_by_every_road(self, data: Dataset) -> None:
        assert data.to_polars().equals(FRAME)
        loader = Loader(data.with_roles(categorical=["id"], continuous=["price"]), 1000, shuffle=False)
        batches = [features for features, _ in loader]
        for name in FRAME.columns:
            assert np.array_equal(np.concatenate([batch[name] for batch in batches]).ravel(), FRAME[name].to_numpy())

    def test_the_loader_knows_it_as_the_table_says(self, name: str, data: Dataset) -> None:
        found = ParquetColumns().chunks(data.partitions[0], "price")
        assert (found is not None) == codec_named(name).known_to_loader


def test_an_unknown_codec_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="'none', 'snappy', 'zstd', 'gzip', 'brotli', 'lz4', got 'lzma'"):
        Dataset(FRAME).to_parquet(tmp_path / "data", compression="lzma")
    assert not (tmp_path / "data").exists()
