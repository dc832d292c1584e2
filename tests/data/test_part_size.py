"""Partitions when nobody says how large they are: enough of them for the cores, and not more than that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock import Dataset
from penstock.data import part_size
from penstock.data.part_size import LARGEST, SMALLEST, part_size_for, part_size_of_files


@pytest.fixture
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_size, "available_cores", lambda: 16)


@pytest.mark.usefixtures("sixteen_cores")
class TestSixteenCores:
    def test_two_partitions_a_core_within_bounds(self) -> None:
        assert part_size_for(32 * 10_000_000) == 10_000_000
        assert part_size_for(1_000) == SMALLEST
        assert part_size_for(10**12) == LARGEST

    def test_a_frame_gives_every_core_work(self) -> None:
        data = Dataset({"x": np.arange(2_500_000)})  # 20 MB
        assert data.num_partitions == 5
        assert data.num_rows == 2_500_000

    def test_a_file_does(self, tmp_path: Path) -> None:
        (tmp_path / "rows.csv").write_bytes(b"a,b\n" + b"1,123456789\n" * 1_000_000)  # 12 MB
        data = Dataset(tmp_path / "rows.csv")
        assert data.num_partitions == 3
        assert data.num_rows == 1_000_000

    def test_what_is_asked_for_counts(self) -> None:
        assert Dataset({"x": np.arange(2_500_000)}, part_size="64MB").num_partitions == 1


def test_small_data_stay_whole() -> None:
    assert Dataset({"x": np.arange(1000)}).num_partitions == 1


def test_files_of_other_machines_are_read_in_large_pieces() -> None:
    assert part_size_of_files(["s3://bucket/a.parquet"]) == LARGEST
