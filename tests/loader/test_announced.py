"""Large partitions of local files: the system is told what will be read, and need not know what that means."""

import os

import numpy as np
import polars as pl
import pytest

from penstock.loader import Loader, columns
from penstock.loader.parquet import ParquetColumns

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system takes no such word")


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "_LARGE", 1)
    path = tmp_path / "a.parquet"
    frame = pl.DataFrame({"x": np.arange(4000), "y": np.arange(4000, dtype=np.int32), "z": np.arange(4000.0)})
    frame.write_parquet(path, row_group_size=1000, compression="uncompressed")
    return path


def rows(path) -> list[int]:
    loader = Loader(str(path), 512, categorical=["x"], continuous=["z"], shuffle=True, chunk_rows=1000)
    return np.concatenate([features["x"] for features, _ in loader]).tolist()


def test_what_is_read_is_announced_and_no_more(path, monkeypatch):
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda handle, start, size, advice: told.append((start, size)))
    assert sorted(rows(path)) == list(range(4000))
    size = path.stat().st_size
    assert told and all(start >= 0 and start + count <= size for start, count in told)
    assert 4000 * 16 <= sum(count for _, count in told) <= size


def test_a_system_that_refuses_changes_nothing(path, monkeypatch):
    wanted = rows(path)

    def refused(*arguments):
        raise OSError("not here")

    monkeypatch.setattr(os, "posix_fadvise", refused)
    assert rows(path) == wanted


def test_a_footer_that_promises_too_much_takes_no_time(path, monkeypatch):
    from dataclasses import replace

    from penstock.data import Dataset

    parquet, told = ParquetColumns(), list[int]()
    chunks = parquet.chunks(Dataset(str(path)).partitions[0], "x")
    monkeypatch.setattr(os, "posix_fadvise", lambda handle, start, size, advice: told.append(size))
    parquet.open(str(path)).announce([replace(c, size=2**62) for c in chunks] + [replace(chunks[0], offset=-5)])
    assert sum(told) <= path.stat().st_size
