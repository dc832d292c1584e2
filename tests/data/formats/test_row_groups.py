"""Large row groups in several partitions: the same rows, decoded once a pass, and whole again for the loader."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from penstock import Dataset, Workflow, ops
from penstock.core.errors import ConversionError, DataError
from penstock.core.runtime.passes import one_pass, shared_in_pass
from penstock.data.formats import parquet
from penstock.data.formats.row_groups import whole_row_groups
from penstock.engine import resolve
from penstock.loader import Loader, frames

ROWS = 1_200
NAMES: dict[str, Any] = {"continuous": ["price"], "categorical": ["id"], "labels": ["click"], "fill": 0.0}


@pytest.fixture
def frame():
    draw = np.random.default_rng(0)
    return pl.DataFrame({
        "id": draw.integers(0, 50, ROWS),
        "price": pl.Series(draw.random(ROWS)).set(pl.Series(draw.random(ROWS) < 0.1), None),
        "city": [f"city{i % 7}" for i in range(ROWS)],
        "tags": [[i, i + 1] if i % 3 else [] for i in range(ROWS)],
        "click": [i % 5 == 0 for i in range(ROWS)],
    })  # fmt: skip


@pytest.fixture
def path(frame, tmp_path, monkeypatch):
    """Two row groups of 500 rows and one of 200, of which partitions are to be a third or less."""
    monkeypatch.setattr(parquet, "SMALLEST", 1_500)
    monkeypatch.setattr(parquet, "available_cores", lambda: 16)
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=500)
    return tmp_path / "a.parquet"


@pytest.fixture
def decoded(monkeypatch):
    """How many rows each call of the decoder gave."""
    calls, decode = [], parquet.ParquetPartition._decode

    def counted(self, columns):
        calls.append(self.num_rows)
        return decode(self, columns)

    monkeypatch.setattr(parquet.ParquetPartition, "_decode", counted)
    return calls


def test_pieces_are_the_rows_in_order(path, frame):
    data = Dataset(path, part_size=1)
    assert data.num_partitions > 6
    assert data.num_rows == ROWS
    at = 0
    for part in data.partitions:
        assert part.is_cut
        assert part.read().equals(frame.slice(at, part.num_rows))
        assert part.read(["tags", "click"]).equals(frame.slice(at, part.num_rows).select("tags", "click"))
        assert pickle.loads(pickle.dumps(part)).read(["id"]).equals(frame.slice(at, part.num_rows).select("id"))
        at += part.num_rows
    assert at == ROWS
    assert sum(part.num_bytes for part in data.partitions) == sum(
        pq.read_metadata(path).row_group(group).total_byte_size for group in range(3)
    )


def test_small_row_groups_stay_together(path):
    assert [part.row_groups for part in Dataset(path, part_size="1GB").partitions] == [(0, 1, 2)]


def test_cores_that_have_a_row_group_each_decode_it_alone(path, monkeypatch):
    monkeypatch.setattr(parquet, "available_cores", lambda: 3)
    assert [part.row_groups for part in Dataset(path, part_size=1).partitions] == [(0,), (1,), (2,)]


@pytest.mark.parametrize("codec", ["gzip", "brotli"])
def test_what_arrow_reads_is_not_cut(path, frame, codec):
    pq.write_table(frame.to_arrow(compat_level=pl.CompatLevel.oldest()), path, compression=codec, row_group_size=600)
    assert [part.num_rows for part in Dataset(path, part_size=1).partitions] == [600, 600]


def test_threads_of_a_pass_decode_a_row_group_once(path, frame, decoded):
    data = Dataset(path, part_size=1)
    assert data.to_polars().equals(frame)
    assert sorted(decoded) == [200, 500, 500]
    decoded.clear()
    Workflow(["price"] >> ops.Normalize(), engine="local:3").fit(data)
    assert sorted(decoded) == [200, 500, 500]


def test_outside_of_a_pass_only_the_rows_are_decoded(path, decoded):
    part = Dataset(path, part_size=1).partitions[1]
    part.read(["id"])
    assert decoded == [part.num_rows]


def test_little_memory_is_not_spent_on_whole_row_groups(path, frame, decoded, monkeypatch):
    monkeypatch.setattr(parquet, "available_memory", lambda: 1)
    data = Dataset(path, part_size=1)
    assert data.to_polars().equals(frame)
    assert sorted(decoded) == sorted(part.num_rows for part in data.partitions)


def test_a_value_that_does_not_fit_is_named_by_its_row_in_the_file(path, frame):
    frame.with_columns(id=pl.when(pl.int_range(ROWS) == 777).then(1 << 40).otherwise("id")).write_parquet(
        path, row_group_size=500
    )
    for read in (Dataset.to_polars, lambda data: [part.read() for part in data.partitions]):
        with pytest.raises(ConversionError, match="777"):
            read(Dataset(path, part_size=1, dtypes={"id": "int32"}))


def test_a_file_that_is_replaced_is_refused(path, frame):
    data = Dataset(path, part_size=1)
    frame.head(900).write_parquet(path, row_group_size=500)
    with pytest.raises(DataError, match="replaced"):
        data.to_polars()


@pytest.mark.parametrize("engine", ["local:1", "local:3"])
def test_a_workflow_learns_and_gives_the_same(path, frame, engine, tmp_path):
    nodes = (["id", "city", "tags"] >> ops.Categorify()) + (["price"] >> ops.FillMissing() >> ops.Normalize())
    whole = Workflow(nodes).fit_transform(frame)
    data = Dataset(path, part_size=1)
    workflow = Workflow(nodes, engine=engine).fit(data)
    workflow.transform(data).to_parquet(tmp_path / "out", engine=engine)
    assert Dataset(tmp_path / "out").to_polars().equals(whole)


class TestWholeAgain:
    def test_pieces_side_by_side(self, path):
        data = Dataset(path, part_size=1)
        whole = whole_row_groups(data.partitions)
        assert [(part.num_rows, part.row_groups, part.is_cut) for part in whole] == [
            (500, (0,), False), (500, (1,), False), (200, (2,), False)
        ]  # fmt: skip
        sizes = [pq.read_metadata(path).row_group(group).total_byte_size for group in range(3)]
        assert [part.num_bytes for part in whole] == sizes

    def test_choices_of_columns_stay(self, path):
        data = Dataset(path, part_size=1).select(["id", "click"])
        whole = whole_row_groups(data.partitions)
        assert [part.num_rows for part in whole] == [500, 500, 200]
        assert whole[0].read().columns == ["id", "click"]

    def test_pieces_without_their_neighbours_stay(self, path):
        parts = Dataset(path, part_size=1).partitions
        assert whole_row_groups(parts[1:3]) == parts[1:3]
        assert whole_row_groups(parts[:2]) == parts[:2]
        assert whole_row_groups([parts[1], parts[0]]) == [parts[1], parts[0]]

    def test_the_loader_reads_the_same_batches(self, path, frame):
        def batches(data):
            loader = Loader(data, 64, **NAMES, shuffle=True, chunk_rows=500)
            return [features for features, _ in loader]

        cut, whole = batches(Dataset(path, part_size=1)), batches(Dataset(path, part_size=12_000))
        assert [part.is_cut for part in Dataset(path, part_size=12_000).partitions] == [False] * 3
        for left, right in zip(cut, whole, strict=True):
            assert all((left[name] == right[name]).all() for name in ("price", "id"))

    def test_the_loader_reads_pieces_that_are_alone(self, path, frame):
        parts = Dataset(path, part_size=1).partitions
        data = Dataset.from_partitions(parts[1:3], Dataset(path).schema)
        read = np.concatenate([np.asarray(features["id"]).ravel() for features, _ in Loader(data, 64, **NAMES)])
        begin, count = parts[1].first_row, parts[1].num_rows + parts[2].num_rows
        assert read.tolist() == frame["id"].slice(begin, count).to_list()

    def test_without_polars_threads_a_piece_is_its_rows(self, path, frame, monkeypatch):
        monkeypatch.setattr(frames, "polars_is_lost", lambda: True)
        part = Dataset(path, part_size=1).partitions[1]
        assert frames.read_frame(part, ["id", "tags"]).equals(
            frame.slice(part.first_row, part.num_rows).select("id", "tags")
        )


class TestSharing:
    def test_who_comes_together_waits_for_one(self):
        made, begun = [], threading.Barrier(4)

        def make():
            made.append(1)
            return object()

        def ask(into):
            begun.wait()
            into.append(shared_in_pass("rows", 1, 4, make))

        found: list[object] = []
        with one_pass():
            threads = [threading.Thread(target=ask, args=(found,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(made) == 1
            assert len(set(map(id, found))) == 1
            shared_in_pass("rows", 1, 4, make)  # all have had it, so it was forgotten
            assert len(made) == 2

    def test_after_a_failure_the_next_one_tries(self):
        def fail():
            raise DataError("damaged")

        with one_pass():
            with pytest.raises(DataError):
                shared_in_pass("rows", 1, 2, fail)
            assert shared_in_pass("rows", 1, 2, lambda: 7) == 7

    def test_nothing_outlives_the_last_pass(self):
        with one_pass():
            with one_pass():
                assert shared_in_pass("rows", 1, 9, lambda: 7) == 7
            assert shared_in_pass("rows", 1, 9, lambda: 8) == 7
        with one_pass():
            assert shared_in_pass("rows", 1, 9, lambda: 8) == 8

    def test_an_engine_that_fails_ends_its_pass(self):
        def fail(item):
            raise DataError("damaged")

        with pytest.raises(DataError):
            list(resolve("local:2").map(fail, range(4)))
        assert shared_in_pass("rows", 1, 2, lambda: 1) is None
