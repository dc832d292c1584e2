"""A description of data that leaves this process is read in another working folder."""

from __future__ import annotations

import pickle
from pathlib import Path

import polars as pl
import pytest

from penstock import Dataset


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_partitions_of_a_relative_path_are_read_from_any_folder(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pl.DataFrame({"a": [1, 2, 3]})
    getattr(frame, f"write_{suffix}")(tmp_path / f"rows.{suffix}")
    monkeypatch.chdir(tmp_path)
    parts = Dataset(f"rows.{suffix}").partitions
    assert all(part.path == f"rows.{suffix}" for part in parts)  # here it is called as it was given
    packed = pickle.dumps(parts)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pl.concat([part.read() for part in pickle.loads(packed)])["a"].to_list() == [1, 2, 3]
