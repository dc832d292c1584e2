"""Columns as keys."""

from __future__ import annotations

import polars as pl

from penstock import Dataset
from penstock.data.keys import stable_hashes


def test_decimals_are_told_apart_by_all_their_digits() -> None:
    texts = ["-9223372036854775808.50", "-9223372036854775808.25", "12345678901234567890.75", "0.25", None]
    series = pl.Series(texts).cast(pl.Decimal(38, 2))
    hashes = stable_hashes(series)
    assert len(set(hashes.tolist())) == 5
    assert stable_hashes(series.reverse()).tolist() == hashes.tolist()[::-1]
    parts = Dataset(pl.DataFrame({"key": pl.concat([series] * 4)})).split([0.5, 0.5], stratify="key")
    assert [part.to_polars()["key"].value_counts()["count"].to_list() for part in parts] == [[2] * 5] * 2
