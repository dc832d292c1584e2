"""Profiles: right numbers, on odd columns too, and always something that JSON can hold."""

from __future__ import annotations

import datetime
import io
import json

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from penstock import Dataset
from penstock.core.errors import ParameterError
from penstock.report import profile, terminal

ODD = pl.DataFrame(
    {
        "nothing": [None, None, None],
        "text": ["[bold]", None, "x" * 200],
        "flag": [True, False, None],
        "day": [datetime.date(2024, 1, d) for d in (1, 2, 3)],
        "moment": [datetime.datetime(2024, 1, 1), None, datetime.datetime(2024, 1, 2)],
        "real": [1.0, float("nan"), float("inf")],
        "lists": [[1, 2], [], None],
        "same": [5, 5, 5],
        "[red]name": [1, 2, 3],
    },
    schema_overrides={"nothing": pl.Int32},
)


def drawn(found: dict) -> str:
    out = io.StringIO()
    terminal.show(found, Console(file=out, width=200))
    return out.getvalue()


def test_odd_columns_are_profiled_and_drawn() -> None:
    found = profile.profile_dataset(Dataset(ODD))
    json.dumps(found, allow_nan=False)
    columns = {c["name"]: c for c in found["columns"]}
    assert columns["nothing"]["null_share"] == 1
    assert columns["nothing"]["distinct"] == 0
    assert (columns["real"]["min"], columns["real"]["max"]) == (1.0, 1.0)
    assert (columns["lists"]["mean_length"], columns["lists"]["max_length"]) == (1.0, 2)
    assert columns["lists"]["distinct"] == 2
    assert columns["same"]["histogram"]["counts"] == [3]
    assert columns["day"]["histogram"]["values"][0] == "2024-01-01"
    shown = drawn(found)
    assert "[red]name" in shown
    assert "[bold]" in shown


def test_no_rows_at_all() -> None:
    found = profile.profile_dataset(Dataset(ODD.clear()))
    assert found["rows"] == 0
    assert all(c["null_share"] == 0 for c in found["columns"])
    assert "no values" in drawn(found)


def test_a_sample_sees_both_ends(tmp_path) -> None:
    pl.DataFrame({"x": range(1000)}).write_parquet(tmp_path / "a.parquet", row_group_size=50)
    found = profile.profile_dataset(Dataset(tmp_path / "a.parquet", part_size=100), sample_rows=200)
    assert (found["sampled_rows"], found["is_sample"], found["rows"]) == (200, True, 1000)
    assert found["columns"][0]["min"] == 0
    assert found["columns"][0]["max"] > 600


def test_all_rows_are_no_sample() -> None:
    data = Dataset({"x": list(range(100))})
    assert profile.profile_dataset(data, sample_rows=100)["is_sample"] is False
    assert profile.profile_dataset(data, sample_rows=99)["is_sample"] is True
    with pytest.raises(ParameterError, match="≥ 1"):
        profile.profile_dataset(data, sample_rows=0)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 100])
def test_spread_is_a_permutation(count: int) -> None:
    assert sorted(profile.spread(count)) == list(range(count))


@pytest.mark.parametrize("seed", range(5))
def test_histograms_count_every_number(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for numbers in (rng.normal(size=999), np.exp(3 * rng.normal(size=999)), -np.exp(20 * rng.random(999))):
        found = profile.histogram(numbers)
        assert sum(found["counts"]) == 999
        assert found["edges"] == sorted(found["edges"])


def test_long_tails_get_logarithmic_bins() -> None:
    numbers = np.concatenate([np.arange(1000.0), [1e9]])
    found = profile.histogram(numbers)
    assert found["scale"] == "log"
    assert max(found["counts"]) < 1000


def test_sparkline_shows_everything_above_zero() -> None:
    assert terminal.sparkline([0, 1, 1_000_000]) == " ▁█"
    assert terminal.sparkline([]) == ""
    assert terminal.sparkline([0, 0]) == "  "


def test_rows_of_text_that_was_not_read_are_estimated(tmp_path) -> None:
    pl.DataFrame({"x": [100] * 20_000}).write_csv(tmp_path / "a.csv")
    found = profile.profile_dataset(Dataset(tmp_path / "a.csv", part_size=10_000), sample_rows=3_000)
    assert found["rows"] is None and found["estimated_rows"] == pytest.approx(20_000, rel=0.02)
    assert "about 2" in drawn(found)
