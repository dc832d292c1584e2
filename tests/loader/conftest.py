import numpy as np
import polars as pl
import pytest

from penstock.core.schema import Schema
from penstock.data import Dataset

ROWS = 5_003


def make_frame(rows: int = ROWS, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 5, rows)
    genres = pl.Series(
        "genres", np.split(rng.integers(0, 20, lengths.sum()), np.cumsum(lengths)[:-1]), pl.List(pl.Int32)
    )
    return pl.DataFrame(
        {
            "row": np.arange(rows, dtype=np.int32),
            "user": rng.integers(0, 100, rows).astype(np.int64),
            "item": rng.integers(0, 40_000, rows).astype(np.int32),
            "price": rng.random(rows).astype(np.float32),
            "age": rng.random(rows),
            "genres": genres,
            "click": rng.integers(0, 2, rows).astype(np.int8),
        }
    )


def with_roles(schema: Schema) -> Schema:
    schema = schema.with_roles(
        categorical=["row", "user", "item", "genres"], continuous=["price", "age"], label=["click"]
    )
    return schema.with_column(schema["user"].with_(cardinality=100)).with_column(
        schema["item"].with_(cardinality=40_000)
    )


@pytest.fixture(scope="session")
def frame() -> pl.DataFrame:
    return make_frame()


@pytest.fixture(scope="session")
def path(frame, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("loader") / "clicks.parquet"
    frame.write_parquet(path, row_group_size=700)
    return str(path)


@pytest.fixture
def dataset(path) -> Dataset:
    data = Dataset(path, part_size=1)
    return data.with_schema(with_roles(data.schema))
