"""A copy of a table holds what was there, whatever becomes of the table while it is made."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.embedding import SGD, Adagrad, Adam, Admission, Eviction, SlotConfig, Store
from penstock.embedding.row_files import copied_shard
from penstock.embedding.row_layout import RowColumns
from penstock.embedding.store_rows import StoreRows
from penstock.embedding.table import Table
from penstock.embedding.table_copies import TableCopy
from penstock.kernels import cpu_embedding_index as index


def new_table(rows: int, **settings: object) -> Table:
    header, numbers = np.zeros(index.NUM_FIELDS, np.uint64), np.zeros(index.NUM_SETTINGS, np.float32)
    table = Table("user", header, numbers, dim=3, optimizer=Adam(), **settings)  # type: ignore[arg-type]
    table.write(random_rows(table, rows))
    return table


def random_rows(table: Table, rows: int, seed: int = 0) -> RowColumns:
    rng, columns = np.random.default_rng(seed), table.empty_columns(rows)
    for array in vars(columns).values():
        array[:] = rng.integers(1, 2**30, array.shape)
    columns.signs[:] = rng.permutation(2 * rows)[:rows] + 1
    return columns


def content(table: Table) -> list[np.ndarray]:
    found = table.read(0, table.num_segments())
    order = np.argsort(found.signs)
    return [array[order] if len(array) else array for array in vars(found).values()]


@pytest.mark.parametrize("rows", [0, 1, 50, 70_000])  # no segment that is full-sized, and several of them
@pytest.mark.parametrize("eviction", [None, Eviction(max_rows=10**6, policy="lfu")])
def test_a_copy_stays_as_it_is(rows: int, eviction: Eviction | None) -> None:
    table = new_table(rows, eviction=eviction)
    before = content(table)
    copy = TableCopy(table)
    table.write(random_rows(table, rows + 10, seed=1))
    assert copy.is_whole  # rows are not changed before they are copied
    table.drop(before[0][::2])
    for got, want in zip(content(copy.table), before, strict=True):
        np.testing.assert_array_equal(got, want)
    assert copy.table.rows == rows


def test_a_copy_is_found_by_its_signs() -> None:
    table = new_table(70_000)
    copy = TableCopy(table)
    assert copy.table.num_segments() > 1
    some = random_rows(table, 70_000).signs[:1000]
    table.reset()
    copy.table.drop(some)  # by the directory and the free rows of its own
    assert copy.table.rows == 69_000 and table.rows == 0
    assert not np.isin(some, content(copy.table)[0]).any()


SLOTS = [SlotConfig("user", 5), SlotConfig("item", 8, pooling="mean"), SlotConfig("few", 3)]


def batches(count: int, seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "user": rng.integers(1, 9_000, 1000),
            "item": (rng.integers(1, 12_000, 2000), np.arange(0, 2001, 2)),
            "few": rng.integers(1, 50, 1000),
        }
        for _ in range(count)
    ]


def train(store: Store, several: list[dict[str, Any]]) -> None:
    for batch in several:
        found = store.lookup(batch)
        store.update(found, found.packed + 1)


def saved(path: Path) -> list[Any]:
    with Store.open(path) as store:
        return [content(table) for table in store.tables.tables] + [store.tables.steps]


SETTINGS: dict[str, dict[str, Any]] = {
    "adagrad": {"optimizer": Adagrad(lr=0.1)},
    "float16": {"optimizer": Adagrad(lr=0.1), "storage": "float16"},
    "number a row": {"optimizer": Adagrad(lr=0.1, row_wise=True)},
    "two states": {"optimizer": Adam()},  # look-ups replay steps: copied at once
    "counted": {"optimizer": SGD(lr=0.1), "eviction": Eviction(max_rows=9_000, policy="lfu")},
    "admission": {"optimizer": SGD(lr=0.1), "admission": Admission(min_count=2)},
}


@pytest.mark.parametrize(("name", "incremental"), [*((name, False) for name in SETTINGS), ("adagrad", True)])
def test_a_checkpoint_beside_updates_holds_what_was_there(tmp_path: Path, name: str, incremental: bool) -> None:
    settings = SETTINGS[name]
    with Store(SLOTS, **settings, num_threads=2) as store:
        train(store, batches(12, 1))
        store.save(tmp_path / "base")
        train(store, batches(5, 2))
        held = store.lookup(batches(1, 3)[0])  # looked up before, updated after
        base = tmp_path / "base" if incremental else None
        saving = store.begin_save(tmp_path / "beside", base=base)
        store.update(held, held.packed + 1)
        train(store, batches(3, 4))  # rows that a thread has not come to
        writer = threading.Thread(target=saving.finish)
        writer.start()
        train(store, batches(15, 5))  # and beside it
        writer.join()
        went_on = [content(table) for table in store.tables.tables]
    with Store(SLOTS, **settings, num_threads=2) as same:
        train(same, batches(12, 1))
        same.save(tmp_path / "same-base")
        train(same, batches(5, 2))
        held = same.lookup(batches(1, 3)[0])
        same.save(tmp_path / "at once")
        same.update(held, held.packed + 1)
        train(same, batches(3, 4) + batches(15, 5))
        for table, want in zip(went_on, [content(table) for table in same.tables.tables], strict=True):
            for got, column in zip(table, want, strict=True):
                np.testing.assert_array_equal(got, column)
    for got, want in zip(saved(tmp_path / "beside"), saved(tmp_path / "at once"), strict=True):
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(one, other)


def test_whatever_writes_rows_otherwise_waits_for_the_copy(tmp_path: Path) -> None:
    with Store(SLOTS, Adagrad(lr=0.1)) as store:
        train(store, batches(3, 1))
        store.save(tmp_path / "before")
        rows = StoreRows(store, ["user"])
        signs = np.arange(1, 1000, dtype=np.uint64)
        cuts = np.array([0, len(signs)])
        numbers = rows.find(signs, cuts)
        sevens = {name: np.full((len(signs), 5), 7, np.float32) for name in ("weight", "state")}
        store.save(tmp_path / "want")
        for number, write in enumerate(
            (
                lambda: rows.move(cuts, numbers, sevens, out=False),
                lambda: store.load(tmp_path / "before"),
                store.clear,
            )
        ):
            saving = store.begin_save(tmp_path / f"{number}")
            write()
            saving.finish()
            for got, want in zip(saved(tmp_path / f"{number}"), saved(tmp_path / "want"), strict=True):
                for one, other in zip(got, want, strict=True):
                    np.testing.assert_array_equal(one, other)
            store.load(tmp_path / "want")


def test_a_copy_that_nobody_wants_keeps_nothing() -> None:
    with Store(SLOTS, Adagrad(lr=0.1)) as store:
        train(store, batches(1, 1))
        copies = [TableCopy(table) for table in store.tables.tables]
        train(store, batches(1, 1))
        assert sum(len(numbers) for copy in copies for numbers, _ in copy._kept) == store.stats()["rows"]
        train(store, batches(1, 1))
        assert sum(len(numbers) for copy in copies for numbers, _ in copy._kept) == store.stats()["rows"]  # once
        del copies
        assert not any(table.copy_under_way() for table in store.tables.tables)


def test_a_second_copy_does_not_take_rows_from_the_first() -> None:
    with Store(SLOTS, Adagrad(lr=0.1)) as store:
        train(store, batches(3, 1))
        (table, *_) = store.tables.tables
        before, first = content(table), TableCopy(table)
        second = TableCopy(table)  # as of a client whose right to save has run out
        train(store, batches(3, 1))
        for copy in (first, second):
            copy.complete()
            for got, want in zip(content(copy.table), before, strict=True):
                np.testing.assert_array_equal(got, want)


def test_copies_that_cannot_be_written_are_let_go_of(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with Store(SLOTS, Adagrad(lr=0.1)) as store:
        train(store, batches(1, 1))
        write = copied_shard(store.tables)
        with pytest.raises(OSError) as kept:  # as a future keeps it
            write(tmp_path / "file" / "folder")
        assert not any(table.copy_under_way() for table in store.tables.tables), kept
