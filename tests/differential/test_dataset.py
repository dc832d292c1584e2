"""Data sets against plain Python: whatever is written, split, joined or regrouped, every row is there as it was."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Dataset

KEYS: dict[str, tuple[pl.DataType, st.SearchStrategy[Any]]] = {
    "int8": (pl.Int8(), st.integers(-128, 127)),
    "int64": (pl.Int64(), st.sampled_from([0, 1, -1, 2**53 + 1, -(2**63), 2**63 - 1])),
    "uint64": (pl.UInt64(), st.sampled_from([0, 1, 2**63, 2**64 - 1])),
    "float64": (pl.Float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 5e-324])),
    "float32": (pl.Float32(), st.sampled_from([0.0, -0.0, 0.5, math.nan, math.inf])),
    "bool": (pl.Boolean(), st.booleans()),
    "string": (pl.String(), st.sampled_from(["", "a", "b", "NaN", "null", "é/=%", "__HIVE_DEFAULT_PARTITION__"])),
    "binary": (pl.Binary(), st.binary(max_size=2)),
    "date": (pl.Date(), st.dates()),
    "datetime": (pl.Datetime("us"), st.datetimes()),
    "zone": (pl.Datetime("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "duration": (pl.Duration("us"), st.sampled_from([timedelta(0), timedelta(-1, 7), timedelta(9, 0, 1)])),
    "decimal": (pl.Decimal(18, 2), st.sampled_from([Decimal("0.10"), Decimal("-2.25"), Decimal("7.00")])),
    "whole decimal": (pl.Decimal(38, 0), st.sampled_from([Decimal(0), Decimal(2**53 + 1), Decimal(-(2**63))])),
    "categorical": (pl.Categorical(), st.sampled_from(["", "a", "b", "é/=%"])),
    "enum": (pl.Enum(["b", "a", ""]), st.sampled_from(["", "a", "b"])),
}
SHARES = st.lists(st.sampled_from([0.0, 1e-9, 0.001, 0.1, 1 / 3, 0.5, 0.999, 2.0]), min_size=2, max_size=4)
SMALL = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
LARGE = settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def frames(draw: Any, most: int = 30) -> pl.DataFrame:
    dtype, values = KEYS[draw(st.sampled_from(sorted(KEYS)))]
    keys = draw(st.lists(st.none() | values, max_size=most))
    return pl.DataFrame({"key": pl.Series(keys, dtype=dtype), "row": pl.Series(range(len(keys)), dtype=pl.Int64)})


def same(value: Any) -> Any:
    """Values that are the same bits have the same spelling; NaN is one value. Spans are counted, zones are UTC's."""
    if isinstance(value, Decimal):
        return repr(int(value) if value.as_tuple().exponent == 0 else float(value))
    if isinstance(value, timedelta):
        return repr(value // timedelta(microseconds=1))
    return repr(value.replace(tzinfo=None) if isinstance(value, datetime) else value)


def bag(frame: pl.DataFrame) -> Counter:
    return Counter((same(key), row) for key, row in frame.select("key", "row").iter_rows())


def known(value: Any) -> Any:
    """A key as data sets tell them apart: NaN is missing, and there is one zero."""
    if value is None or value != value:
        return None
    return same(0.0 if value == 0 and isinstance(value, float) else value)


def check_split(frame: pl.DataFrame, parts: int, shares: list[float], how: str, seed: int) -> None:
    if sum(shares) <= 0:
        return
    options = {"random": {}, "stratify": {"stratify": "key"}, "by": {"by": "key"}, "time": {"time": "key"}}[how]
    pieces = [p.to_polars() for p in Dataset(frame).repartition(parts).split(shares, seed=seed, **options)]
    assert sum((bag(p) for p in pieces), Counter()) == bag(frame)
    assert all(share or not piece.height for share, piece in zip(shares, pieces, strict=True))
    if how in ("random", "stratify"):
        for share, piece in zip(shares, pieces, strict=True):
            assert abs(piece.height - share / sum(shares) * frame.height) < len(shares)
    if how == "by":
        seen = [{known(k) for k in piece["key"]} for piece in pieces]
        assert sum(len(s) for s in seen) == len(set().union(*seen))
    if how == "time":
        times = [[k for k in piece["key"] if k is not None and k == k] for piece in pieces if piece.height]
        ordered = [t for t in times if t]
        assert all(max(a) < min(b) for a, b in pairwise(ordered))


def check_merge(left: pl.DataFrame, right: pl.DataFrame, parts: int, how: str) -> None:
    right = right.rename({"row": "other"}).with_columns(pl.col("key").cast(left.schema["key"], strict=False))
    pairs = [(i, j) for i, a in enumerate(left["key"]) for j, b in enumerate(right["key"])
             if known(a) is not None and known(a) == known(b)]  # fmt: skip
    alone = [i for i in range(left.height) if i not in {i for i, _ in pairs}]
    others = [j for j in range(right.height) if j not in {j for _, j in pairs}]
    expected: dict[str, list[Any]] = {
        "inner": pairs,
        "left": pairs + [(i, None) for i in alone],
        "full": pairs + [(i, None) for i in alone] + [(None, j) for j in others],
        "semi": [(i,) for i in sorted({i for i, _ in pairs})],
        "anti": [(i,) for i in alone],
    }
    found = Dataset(left).repartition(parts).merge(Dataset(right).repartition(parts), "key", how=how).to_polars()
    names = [n for n in ("row", "other") if n in found.columns]
    assert Counter(found.select(names).iter_rows()) == Counter(expected[how])


def check_files(frame: pl.DataFrame, parts: int, group: int, hive: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Dataset(frame).repartition(parts)
        data.to_parquet(f"{folder}/out", row_group_size=group, partition_by="key" if hive else None)
        if frame.height or not hive:
            assert bag(Dataset(f"{folder}/out").to_polars()) == bag(frame)
        if not hive:
            arrow = [
                row for file in sorted(Path(folder, "out").glob("*.parquet")) for row in pq.read_table(file).to_pylist()
            ]
            assert Counter((same(r["key"]), r["row"]) for r in arrow) == bag(frame)


def check_exchange(frame: pl.DataFrame, parts: int, seed: int) -> None:
    data = Dataset(frame).repartition(parts)
    assert bag(data.shuffle(seed).to_polars()) == bag(frame)
    grouped = [part.read() for part in data.shuffle_by_keys(["key"]).partitions]
    assert sum((bag(p) for p in grouped), Counter()) == bag(frame)
    places = [{known(k) for k in piece["key"]} for piece in grouped]
    assert sum(len(p) for p in places) == len(set().union(*places))


PARTS, SEEDS = st.integers(1, 5), st.integers(0, 2**40)
SPLIT = (frames(), PARTS, SHARES, st.sampled_from(["random", "stratify", "by", "time"]), SEEDS)
MERGE = (st.tuples(frames(12), frames(12)), PARTS, st.sampled_from(["inner", "left", "full", "semi", "anti"]))
FILES = (frames(), PARTS, st.integers(1, 9), st.booleans())


def _merged(pair: tuple[pl.DataFrame, pl.DataFrame], parts: int, how: str) -> None:
    left, right = pair
    if left.schema["key"] == right.schema["key"]:
        check_merge(left, right, parts, how)
    else:
        check_merge(left, left.sample(fraction=0.5, seed=parts).with_columns(row=pl.int_range(pl.len())), parts, how)


CHECKS = {
    "split": (SPLIT, check_split),
    "merge": (MERGE, _merged),
    "files": (FILES, check_files),
    "exchange": ((frames(), PARTS, SEEDS), check_exchange),
}


@pytest.mark.parametrize("what", CHECKS)
def test_a_few(what):
    strategies, check = CHECKS[what]
    SMALL(given(st.tuples(*strategies))(lambda case: check(*case)))()


@pytest.mark.slow
@pytest.mark.parametrize("what", CHECKS)
def test_many(what):
    strategies, check = CHECKS[what]
    LARGE(given(st.tuples(*strategies))(lambda case: check(*case)))()
