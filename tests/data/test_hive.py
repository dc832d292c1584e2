"""Values in folder names come back as they were written, whatever their dtype; joins on missing keys."""

from __future__ import annotations

from datetime import date, datetime, time
from itertools import product

import polars as pl
import pytest

from penstock import Dataset
from penstock.core.errors import DataError

VALUES = {
    "bool": ([True, False, None], pl.Boolean),
    "date": ([date(2024, 1, 2), date(1969, 12, 31), None], pl.Date),
    "time": ([time(1, 2, 3), time(23, 59, 59, 999999), None], pl.Time),
    "datetime[ms]": ([datetime(2024, 1, 2, 3, 4, 5, 6000), None], pl.Datetime("ms")),
    "datetime[us]": ([datetime(2024, 1, 2), datetime(2024, 1, 2, 3, 4, 5, 6), None], pl.Datetime("us")),
    "datetime[ns]": ([1_700_000_000_000_000_001, 1_700_000_000_000_000_002, None], pl.Datetime("ns")),
    "binary": ([b"a", b"\xff\x00/", b"", b"%41", None], pl.Binary),
    "string": (["", "a/b=c", "%41", "__HIVE_DEFAULT_PARTITION__", "ü ", None], pl.String),
    "uint64": ([0, 2**64 - 1, None], pl.UInt64),
    "int8": ([-128, 127, None], pl.Int8),
    "float32": ([0.1, -0.0, float("inf"), float("nan"), 1e-45, None], pl.Float32),
    "float64": ([0.1, 5e-324, 1.7976931348623157e308, None], pl.Float64),
}


@pytest.mark.parametrize("kind", VALUES)
def test_partition_by_any_dtype_reads_back_what_was_written(kind, tmp_path):
    values, dtype = VALUES[kind]
    frame = pl.DataFrame({"key": pl.Series(values, dtype=dtype), "row": range(len(values))})
    Dataset(frame).to_parquet(tmp_path / "out", partition_by="key")
    found = Dataset(tmp_path / "out").to_polars(["key", "row"]).sort("row")
    assert found.schema["key"] == dtype
    assert found["key"].to_physical().to_list().__repr__() == frame["key"].to_physical().to_list().__repr__()


def test_two_columns_of_odd_names(tmp_path):
    frame = pl.DataFrame({"a/b": [1, 1, 2], "x=y": ["p", "q", None], "row": [0, 1, 2]})
    Dataset(frame).to_parquet(tmp_path / "out", partition_by=["a/b", "x=y"])
    assert Dataset(tmp_path / "out").to_polars(frame.columns).sort("row").equals(frame)


def test_a_folder_that_spells_no_such_value(tmp_path):
    folder = tmp_path / "day=tuesday"
    folder.mkdir()
    pl.DataFrame({"x": [1]}).write_parquet(folder / "a.parquet")
    with pytest.raises(DataError, match="the folder day=tuesday does not spell a value of date"):
        Dataset(tmp_path, dtypes={"day": "date"}).to_polars()


NAN = float("nan")


@pytest.mark.parametrize(("how", "parts"), product(["inner", "left", "full", "semi", "anti"], [1, 2, 5]))
def test_missing_keys_equal_nothing_however_the_rows_are_partitioned(how, parts):
    left = pl.DataFrame({"k": [1.0, NAN, None, -0.0, 2.0, NAN], "a": range(6)})
    right = pl.DataFrame({"k": [NAN, 0.0, None, 1.0, 7.0], "b": range(5)})
    pairs = {(i, j) for i, x in enumerate(left["k"]) for j, y in enumerate(right["k"]) if x is not None and x == y}
    matched, used = {i for i, _ in pairs}, {j for _, j in pairs}
    expected = {
        "inner": pairs,
        "left": pairs | {(i, None) for i in set(range(6)) - matched},
        "full": pairs | {(i, None) for i in set(range(6)) - matched} | {(None, j) for j in set(range(5)) - used},
        "semi": {(i,) for i in matched},
        "anti": {(i,) for i in set(range(6)) - matched},
    }[how]
    found = Dataset(left).repartition(parts).merge(Dataset(right).repartition(parts), "k", how=how).to_polars()
    names = [n for n in ("a", "b") if n in found.columns]
    assert found.height == len(expected) and set(found.select(names).iter_rows()) == expected
