"""Counts merged by ranges on several threads are those of one table, and so is everything made of them."""

from __future__ import annotations

import copy
import pickle
import threading
from collections import Counter as Plain

import numpy as np
import polars as pl
import pytest

from penstock import Dataset, Workflow, ops
from penstock.engine.local import LocalEngine
from penstock.etl import vocabulary
from penstock.etl.ops import categorify_threads
from penstock.etl.ranged_counts import RangedCounter
from penstock.etl.vocabulary import Codes, ValueCounts, Vocabulary
from penstock.kernels.cpu_table import shared_key
from penstock.kernels.cpu_table_merge import RangeMerge
from penstock.kernels.cpu_vocab import Counter


def tables(kind: str, num_tables: int, rows: int = 400, key: int | None = None) -> tuple[list[Counter], Plain]:
    random, made, expected = np.random.default_rng(num_tables), [], Plain()
    for _ in range(num_tables):
        values = random.zipf(1.3, rows).astype(kind) * np.array(2_654_435_761, kind)
        table = Counter(kind, key=key)
        table.add(values)
        made.append(table)
        expected.update(values.tolist())
    return made, expected


def counts_of(table) -> dict[int, int]:
    keys, counts = table.items()
    assert len(np.unique(keys)) == len(keys) == len(table)
    return dict(zip(keys.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", ["uint32", "uint64"])
@pytest.mark.parametrize(("num_tables", "num_threads"), [(1, 4), (2, 1), (3, 2), (16, 5)])
def test_merged_by_ranges(kind, num_tables, num_threads, shared):
    made, expected = tables(kind, num_tables, key=shared_key() if shared else None)
    merged = RangedCounter.merged(made, LocalEngine(num_threads))
    assert counts_of(merged) == expected
    assert merged.num_rows == 400 * num_tables and merged.nbytes > 0
    assert not made, "the tables are given up"


def test_more_is_counted_and_merged_later():
    made, expected = tables("uint32", 3)
    merged = RangedCounter.merged(made, LocalEngine(4))
    merged.add(np.array([1, 1, 2], np.uint32))
    more, others = tables("uint32", 2)
    merged.merge(RangedCounter.merged(more, LocalEngine(2)))
    assert counts_of(merged) == expected + others + Plain([1, 1, 2])


@pytest.mark.parametrize("kind", ["uint32", "uint64"])
@pytest.mark.parametrize("num_ranges", [1, 3, 64, 700])
def test_every_range_has_its_values_also_where_there_was_no_room(kind, num_ranges):
    columns = [tables(kind, 3, rows, key=77) for rows in (3000, 1, 400)]  # one of them in larger tables
    merge = RangeMerge([made for made, _ in columns])
    ranges = [merge.merged(number, num_ranges, room=0.01) for number in range(num_ranges)]
    for place, (_, expected) in enumerate(columns):
        found = [pair for pieces in ranges for pair in zip(*(part.tolist() for part in pieces[place]), strict=True)]
        assert len(found) == len(dict(found)) and dict(found) == expected


def test_values_in_the_order_of_a_table_go_into_one_of_the_same_key():
    """They come in the order of their places: into a table that grows on the way, each would be put behind the last."""
    first = Counter("uint32", key=shared_key())
    first.add(np.arange(60_000, dtype=np.uint32))
    merged = RangedCounter.merged([first], LocalEngine(2))
    second = Counter("uint32", key=shared_key())
    second.merge(merged)
    slots = len(second._slots)
    homes = np.array([int(slot) >> 32 >> (second._placing() & 63) for slot in second._slots if slot])
    found = np.flatnonzero(second._slots)
    assert len(second) == 60_000 and ((found - homes) % slots).max() < 1000


def test_tables_without_values():
    merged = RangedCounter.merged([Counter("uint64"), Counter("uint64")], LocalEngine(3))
    assert len(merged) == 0 and counts_of(merged) == {}


def counted(values: list[int | None], dtype: pl.DataType) -> ValueCounts:
    counts = ValueCounts(dtype)
    counts.add(pl.Series(values, dtype=dtype))
    return counts


@pytest.mark.parametrize("dtype", [pl.Int32(), pl.UInt64(), pl.Float64(), pl.Date()])
def test_value_counts_by_ranges_are_those_of_merging(dtype):
    pieces = [[1, 2, None, 2], [2, 3], [None], [5, 1, 1]]
    by_ranges = ValueCounts.merge_ranges([[counted(piece, dtype) for piece in pieces]], LocalEngine(3))[0]
    whole = counted([value for piece in pieces for value in piece], dtype)
    for made in (by_ranges, copy.deepcopy(by_ranges), pickle.loads(pickle.dumps(by_ranges))):
        assert made.frame().sort("value").equals(whole.frame().sort("value"))
        assert (made.num_rows, made.num_null) == (whole.num_rows, whole.num_null)
    by_ranges.add(pl.Series([5, 9], dtype=dtype))
    whole.add(pl.Series([5, 9], dtype=dtype))
    assert by_ranges.frame().sort("value").equals(whole.frame().sort("value"))


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_a_workflow_learns_the_same_by_ranges(monkeypatch, num_threads):
    random = np.random.default_rng(1)
    frame = pl.DataFrame({"id": random.zipf(1.2, 3000) % 5000, "word": [f"w{i % 71}" for i in range(3000)]})
    data = Dataset(frame, part_size=4000)
    plain = Workflow(["id", "word"] >> ops.Categorify(freq_threshold=2)).fit(data)
    monkeypatch.setattr(categorify_threads, "_WORTH_THREADS", 1)
    monkeypatch.setattr(categorify_threads, "available_cores", lambda: num_threads)
    ranged = Workflow(["id", "word"] >> ops.Categorify(freq_threshold=2), engine="local:4").fit(data)
    assert ranged.transform(frame).equals(plain.transform(frame))
    more = pl.DataFrame({"id": random.integers(0, 9000, 500), "word": ["new"] * 500})
    assert ranged.update(more).transform(more).equals(plain.update(more).transform(more))


def test_counts_beyond_memory_and_of_text_are_not_cut():
    limited = ValueCounts(pl.Int64(), memory_limit=1 << 20)
    limited.add(pl.Series([1, 2]))
    words = ValueCounts(pl.String())
    words.add(pl.Series(["a"]))
    assert not limited.has_ranges and not words.has_ranges and not ValueCounts(pl.Int64()).has_ranges
    assert counted([1], pl.Int64()).has_ranges


def test_one_thread_builds_a_table_and_the_others_take_it(monkeypatch):
    built, started = [], threading.Barrier(4)
    build = Vocabulary._built

    def noted(self, layout):
        built.append(layout)
        return build(self, layout)

    monkeypatch.setattr(vocabulary.Vocabulary, "_built", noted)
    known = Vocabulary(pl.Series([5, 7, 9]))

    def look_up() -> None:
        started.wait()
        assert known.lookup(Codes(1, 2, 1)).get(7) == 4

    threads = [threading.Thread(target=look_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    assert known.lookup(Codes(0, 0, 1)).get(7) == 2, "another layout has another table"
    assert pickle.loads(pickle.dumps(known)).lookup(Codes(1, 2, 1)).get(9) == 5
