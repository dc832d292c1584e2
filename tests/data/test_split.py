"""Splits and samples: disjoint and complete whatever the fractions, uniform whatever the size, strata independent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, product
from math import comb

import numpy as np
import polars as pl
import pytest
from _pytest.mark import ParameterSet

from penstock import Dataset
from penstock.core.errors import DataError, SchemaError
from penstock.data import split
from penstock.data.partition import MappedPartition

FRACTIONS = [(0.999, 0.001), (0.9, 0.1), (0.5, 0.5), (0.0, 1.0), (1.0, 0.0), (0.1, 0.1, 0.1), (1e-9, 3, 0, 7)]


def in_parts(frame: pl.DataFrame, parts: int) -> Dataset:
    return Dataset(frame).repartition(parts)


def rows_of(splits: list[Dataset]) -> list[list[int]]:
    return [piece.to_polars()["row"].to_list() for piece in splits]


def splits() -> Iterator[ParameterSet]:
    """Every two of size, fractions and kind meet; all three together are slow."""
    sizes, kinds = [0, 1, 2, 4, 7, 100], ["random", "stratify", "by", "time", "equal_times", "no_times", "nan_times"]
    for (k, rows), (f, fractions), (n, kind) in product(enumerate(sizes), enumerate(FRACTIONS), enumerate(kinds)):
        slow = () if k == (f + n) % len(sizes) else (pytest.mark.slow,)
        yield pytest.param(rows, fractions, kind, marks=slow, id=f"{kind}-{fractions}-{rows}")


@pytest.mark.parametrize(("rows", "fractions", "kind"), splits())
def test_validation_is_never_training(rows, fractions, kind):
    times = {"equal_times": [3.0] * rows, "no_times": [None] * rows, "nan_times": [float("nan"), 1.0] * rows}
    time = pl.Series("time", times.get(kind, list(range(rows))[::-1])[:rows], pl.Float64)
    frame = pl.DataFrame([pl.Series("row", range(rows), pl.Int64), time, pl.Series("g", [i % 3 for i in range(rows)])])
    how = {"random": {}, "stratify": {"stratify": "g"}, "by": {"by": "g"}}.get(kind, {"time": "time"})
    found = rows_of(in_parts(frame, 3).split(fractions, **how))
    assert sorted(row for piece in found for row in piece) == list(range(rows))
    for fraction, piece in zip(fractions, found, strict=True):
        assert fraction > 0 or not piece, "a split of nothing holds nothing"


def test_a_cut_on_the_last_row_by_time():
    frame = pl.DataFrame({"row": range(100), "t": range(100)})
    train, valid = Dataset(frame).split([0.999, 0.001], time="t")
    assert (train.num_rows, valid.num_rows) == (100, 0)


def test_rows_of_one_time_stay_together_at_the_nearer_edge():
    frame = pl.DataFrame({"row": range(100), "t": [0] * 99 + [1]})
    assert [d.num_rows for d in Dataset(frame).split([0.5, 0.5], time="t")] == [99, 1]


@pytest.mark.parametrize("rows", [2, 5, 8, 12])
def test_every_choice_of_a_few_rows_is_equally_likely(rows):
    """Over seeds, and over the strata of a seed."""
    half, each = rows // 2, 500
    chosen, seeds = Counter(), 20_000 // comb(rows, half) * comb(rows, half)
    for seed in range(-(-seeds // each)):
        counted = np.arange(each, dtype=np.uint64), np.full(each, rows)
        keys = split.allot([counted], (half, rows - half), seed)[0].keys
        numbers, stratum = np.tile(np.arange(rows), each), np.repeat(np.arange(each), rows)
        places = split.permuted(numbers, stratum, np.full(each, rows), keys)
        for row in (places.reshape(each, rows) < half)[: max(seeds - seed * each, 0)]:
            chosen[tuple(np.flatnonzero(row).tolist())] += 1
    expected = seeds / comb(rows, half)
    deviation = sum((chosen[subset] - expected) ** 2 for subset in combinations(range(rows), half)) / expected
    freedom = comb(rows, half) - 1
    assert abs(deviation - freedom) < 5 * (2 * freedom) ** 0.5, "a chi-square statistic five deviations off"


@pytest.mark.parametrize("rows", [4096, 4097, 100_000])
def test_large_ranges_are_permuted_whole_and_evenly(rows):
    stratum = np.zeros(rows, np.int64)
    places = split.permuted(np.arange(rows), stratum, np.array([rows]), np.array([7], np.uint64))
    assert np.array_equal(np.sort(places), np.arange(rows))
    fixed, ascents = int((places == np.arange(rows)).sum()), int((np.diff(places) > 0).sum())
    assert fixed < 12 and abs(ascents - (rows - 1) / 2) < 6 * (rows / 12) ** 0.5
    assert abs(np.corrcoef(places, np.arange(rows))[0, 1]) < 6 / rows**0.5


def test_strata_of_equal_size_are_chosen_independently():
    users, each = 1000, 10
    frame = pl.DataFrame({"user": np.repeat(np.arange(users), each), "place": np.tile(np.arange(each), users)})
    data = in_parts(frame, 7)
    for chosen in (data.sample(0.1, stratify="user"), data.split([0.9, 0.1], stratify="user")[1]):
        found = chosen.to_polars()
        assert found["user"].n_unique() == users and found.height == users
        places = np.bincount(found["place"].to_numpy(), minlength=each)
        assert np.all(np.abs(places - users / each) < 6 * (users / each) ** 0.5)


def test_small_strata_add_up_to_the_share_asked_for():
    frame = pl.DataFrame({"user": np.arange(1000), "row": np.arange(1000)})
    assert in_parts(frame, 3).sample(num_rows=400, stratify="user").num_rows == 400
    assert [d.num_rows for d in in_parts(frame, 3).split([0.6, 0.3, 0.1], stratify="user")] == [600, 300, 100]


def test_stratify_on_missing_values():
    values = [float("nan"), None, 1.0, -0.0, 0.0] * 20
    frame = pl.DataFrame({"row": range(100), "value": pl.Series(values, dtype=pl.Float64)})
    first, second = in_parts(frame, 4).split([0.5, 0.5], stratify="value")
    assert sorted(row for piece in rows_of([first, second]) for row in piece) == list(range(100))
    missing = first.to_polars().filter(pl.col("value").is_null() | pl.col("value").is_nan())
    assert missing.height == 20, "null and NaN are one stratum of 40 rows"
    assert first.to_polars().filter(pl.col("value") == 0).height == 20, "0.0 and -0.0 are one"


@pytest.mark.parametrize("name", ["rows", "value", "row", "*", "^x.*$"])
def test_a_stratum_column_of_any_name(name):
    frame = pl.DataFrame({name: [1, 2, 1, 2]})
    assert Dataset(frame).sample(0.5, stratify=name).to_polars()[name].sort().to_list() == [1, 2]


def test_lists_do_not_tell_rows_apart():
    data = Dataset({"tags": [[1], [2]]})
    for how in ({"stratify": "tags"}, {"by": "tags"}, {"time": "tags"}):
        with pytest.raises(SchemaError, match="column 'tags' holds lists"):
            data.split([0.5, 0.5], **how)


def test_rows_that_changed_since_are_refused():
    data = Dataset({"x": [1, 2, 3, 4]})
    first = data.split([0.5, 0.5], stratify="x")[0]
    other = MappedPartition(Dataset({"x": [1, 2, 3, 9]}).partitions[0], first.partitions[0].function)
    with pytest.raises(DataError, match="split the data again"):
        other.read()
