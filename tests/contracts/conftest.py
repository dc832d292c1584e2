"""Rows that every adapter is tried with."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from penstock.data import Dataset

ROWS = 2_777


@pytest.fixture(scope="session")
def rows_for_adapters(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A column of each role and kind, lists among them, in several row groups."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 5, ROWS)
    frame = pl.DataFrame(
        {
            "user": rng.integers(0, 100, ROWS).astype(np.int64),
            "price": rng.random(ROWS).astype(np.float32),
            "item": rng.integers(0, 40_000, ROWS).astype(np.int32),
            "genres": pl.Series(
                np.split(rng.integers(0, 20, lengths.sum()), np.cumsum(lengths)[:-1]), dtype=pl.List(pl.Int32)
            ),
            "click": rng.integers(0, 2, ROWS).astype(np.int8),
        }
    )
    path = tmp_path_factory.mktemp("adapters") / "a.parquet"
    frame.write_parquet(path, row_group_size=300)
    dataset = Dataset(str(path), part_size=1)
    schema = dataset.schema.with_roles(categorical=["user", "item", "genres"], continuous=["price"], label=["click"])
    return dataset.with_schema(schema.with_column(schema["user"].with_(cardinality=100)))
