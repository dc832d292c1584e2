"""Contract 3: the order of an epoch is a pure function of (seed, epoch, rank, world)."""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.data import Dataset
from penstock.loader import Loader
from penstock.loader.plan import EpochPlan, Piece

ROWS = 5_003


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    pq.write_table(pa.table({"row": np.arange(ROWS, dtype=np.int32)}), folder / "a.parquet", row_group_size=400)
    return str(folder / "a.parquet")


def rows(path, **options):
    loader = Loader(Dataset(path, part_size=1), 128, **{"chunk_rows": 1000, "shuffle": True, **options})
    return np.concatenate([features["row"] for features, _ in loader])


def test_the_same_arguments_give_the_same_order(path):
    assert (rows(path, seed=5) == rows(path, seed=5)).all()


def test_threads_do_not_matter(path):
    orders = [rows(path, num_threads=n) for n in (1, 2, 5)]
    assert all((order == orders[0]).all() for order in orders)


def test_global_random_state_does_not_matter(path):
    np.random.seed(1)
    first = rows(path)
    np.random.seed(2)
    assert (rows(path) == first).all()


def test_seed_and_epoch_change_the_order(path):
    loader = Loader(path, 128, chunk_rows=1000, shuffle=True)
    first, second = (np.concatenate([f["row"] for f, _ in loader]) for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert (first != second).mean() > 0.9
    assert (rows(path, seed=1) != first).mean() > 0.9


def test_row_groups_are_permuted_over_the_whole_data_set(path):
    order = rows(path, chunk_rows=400)
    groups = order[:: ROWS // 13] // 400
    assert len(set(groups.tolist())) > 8
    assert groups.tolist() != sorted(groups)


@pytest.mark.parametrize("world", [1, 2, 3, 7, 40])
def test_ranks_share_the_rows(path, world):
    shares = [rows(path, rank=r, world=world) for r in range(world)]
    assert sorted(np.concatenate(shares)) == list(range(ROWS))
    lengths = [len(Loader(path, 128, chunk_rows=1000, rank=r, world=world)) for r in range(world)]
    assert len(set(lengths)) == 1


def test_fewer_partitions_than_ranks():
    frame = pl.DataFrame({"row": np.arange(10, dtype=np.int32)})
    shares = [[f["row"].tolist() for f, _ in Loader(frame, 2, rank=r, world=4)] for r in range(4)]
    assert [len(s) for s in shares] == [2, 2, 2, 2]
    assert sorted(row for share in shares for batch in share for row in batch) == list(range(10))


def test_a_rank_that_is_one_row_short_still_has_as_many_batches():
    # 9 rows on 2 ranks with batches of 4: five rows are two batches, and four rows have to be two as well.
    plans = [EpochPlan.build([Piece(0, 0, 9)], batch_size=4, chunk_rows=4, rank=r, world=2) for r in range(2)]
    assert [[p.bounds(b) for b in range(2)] for p in plans] == [[(0, 4), (4, 5)], [(0, 3), (3, 4)]]


def test_the_order_is_pinned():
    # Orders are part of what a checkpoint means: they must not change between versions.
    plan = EpochPlan.build(
        [Piece(i, 0, 2) for i in range(4)], batch_size=2, chunk_rows=4, shuffle=True, seed=7, epoch=1
    )
    order = [[p.partition for p in c.pieces] for c in plan.chunks], [plan.row_order(c).tolist() for c in plan.chunks]
    assert order == PINNED


PINNED = ([[1, 0], [3, 2]], [[2, 0, 3, 1], [2, 0, 1, 3]])
