"""A copy of a table holds what was there, whatever becomes of the table."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.embedding import Adam, Eviction
from penstock.embedding.row_layout import RowColumns
from penstock.embedding.table import Table
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


@pytest.mark.parametrize("rows", [0, 1, 50, 120_000])  # no segment that is full-sized, and several of them
@pytest.mark.parametrize("eviction", [None, Eviction(max_rows=10**6, policy="lfu")])
def test_a_copy_stays_as_it_is(rows: int, eviction: Eviction | None) -> None:
    table = new_table(rows, eviction=eviction)
    before = content(table)
    twin = table.frozen()
    table.write(random_rows(table, rows + 10, seed=1))
    table.drop(before[0][::2])
    for got, want in zip(content(twin), before, strict=True):
        np.testing.assert_array_equal(got, want)
    assert twin.rows == rows


def test_a_copy_is_found_by_its_signs() -> None:
    table = new_table(120_000)
    twin = table.frozen()
    assert twin.num_segments() > 1
    some = random_rows(table, 120_000).signs[:1000]
    table.reset()
    twin.drop(some)  # by the directory and the free rows of its own
    assert twin.rows == 119_000 and table.rows == 0
    assert not np.isin(some, content(twin)[0]).any()
