"""Columns in the dtypes that schemas name: what is written, joined and loaded of decimals, spans, zones, categories."""

from __future__ import annotations

from decimal import Decimal

import polars as pl
import pytest

from penstock import Dataset
from penstock.core.errors import ConversionError, ParameterError, SchemaError
from penstock.loader import Loader

ID = 2**53 + 1  # which no float64 holds


def test_whole_decimals_are_integers(tmp_path):
    """NUMBER(38, 0) is what warehouses export ids as."""
    frame = pl.DataFrame({"id": pl.Series([Decimal(ID), Decimal(ID - 1), None], dtype=pl.Decimal(38, 0))})
    assert Dataset(frame).schema["id"].dtype == "int64"
    Dataset(frame).to_parquet(tmp_path / "out")
    assert pl.read_parquet(tmp_path / "out" / "*.parquet")["id"].to_list() == [ID, ID - 1, None]
    (features, _) = next(iter(Loader(frame, 3, categorical=["id"], fill=0)))
    assert features["id"].tolist() == [ID, ID - 1, 0]
    far = pl.DataFrame({"id": pl.Series([Decimal(1), Decimal(2**63)], dtype=pl.Decimal(38, 0))})
    for run in (lambda: Dataset(far).to_parquet(tmp_path / "far"), lambda: list(Loader(far, 2, categorical=["id"]))):
        with pytest.raises(ConversionError, match=r"column 'id', row 1.*9223372036854775808"):
            run()


def test_decimals_are_the_nearest_floats_unless_whole_units_are_lost(tmp_path):
    prices = [Decimal("0.10"), Decimal("123456789012345.67"), Decimal("-90071992547409.93")]
    frame = pl.DataFrame({"price": pl.Series(prices, dtype=pl.Decimal(38, 2))})
    Dataset(frame).to_parquet(tmp_path / "out")
    assert pl.read_parquet(tmp_path / "out" / "*.parquet")["price"].to_list() == [float(p) for p in prices]
    assert next(iter(Loader(frame, 3, continuous=["price"])))[0]["price"].tolist() == [float(p) for p in prices]
    far = pl.DataFrame({"price": pl.Series([Decimal(ID)], dtype=pl.Decimal(38, 2))})
    with pytest.raises(ConversionError, match="column 'price', row 0"):
        Dataset(far).to_parquet(tmp_path / "far")


def test_joins_of_categories_and_decimals_in_many_partitions():
    left = pl.DataFrame({"k": pl.Series(["a", "b", "c", "b"], dtype=pl.Categorical), "row": range(4)})
    right = pl.DataFrame({"k": pl.Series(["c", "b"], dtype=pl.Categorical), "found": [3, 2]})
    for parts in (1, 3):
        found = Dataset(left).repartition(parts).merge(Dataset(right).repartition(parts), "k").to_polars()
        assert sorted(found.rows()) == [("b", 1, 2), ("b", 3, 2), ("c", 2, 3)]
    cents = Dataset({"k": [Decimal("1.5")]}).merge(Dataset({"k": [Decimal("1.50")], "found": [1]}), "k")
    assert cents.to_polars()["found"].to_list() == [1]


@pytest.mark.parametrize("suffix", ["_right", ""])
def test_a_name_that_two_columns_would_have(suffix):
    left = Dataset({"k": [1], "a": [1], "a_right": [2]})
    with pytest.raises(SchemaError, match="pass another suffix="):
        left.merge({"k": [1], "a": [3]}, "k", suffix=suffix)
    assert left.merge({"k": [1], "a": [3]}, "k", suffix="_2").to_polars().to_dicts() == [
        {"k": 1, "a": 1, "a_right": 2, "a_2": 3}
    ]
    for keys in ([], ["k", "k"]):
        with pytest.raises(ParameterError, match="merge needs key columns"):
            left.merge({"k": [1]}, keys)


def test_lists_make_no_folders(tmp_path):
    with pytest.raises(SchemaError, match="'x' holds lists"):
        Dataset({"x": [[1], [2]], "y": [1, 2]}).to_parquet(tmp_path / "out", partition_by="x")
    assert not (tmp_path / "out").exists()
