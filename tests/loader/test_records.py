"""Cached rows that lie together: the same batches as from columns, for every dtype and place."""

import numpy as np
import polars as pl
import pytest

from penstock.data import Dataset
from penstock.kernels import cpu_records as kernel
from penstock.kernels.cpu_gather import permutation
from penstock.loader import Loader
from penstock.loader.records import Records, record_dtype, stretches

ROWS = 3000
DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float32", "float64", "bool"]


def column(dtype: str, seed: int, rows: int = ROWS) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return rng.standard_normal(rows).astype(dtype)
    if dtype == "bool":
        return rng.random(rows) < 0.5
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, rows, dtype=dtype, endpoint=True)


def delivered(loader: Loader, epochs: int = 3) -> list[dict[str, np.ndarray]]:
    return [{**features, "label": labels} for features, labels in loader.epochs(epochs)]


@pytest.fixture
def data(tmp_path) -> Dataset:
    columns = {dtype: column(dtype, number) for number, dtype in enumerate(DTYPES)}
    columns["code"] = np.arange(ROWS, dtype=np.int32) % 90
    columns["label"] = np.arange(ROWS) % 2
    lists = pl.Series("words", [[i, i + 1][: i % 3] for i in range(ROWS)], dtype=pl.List(pl.Int64))
    path = tmp_path / "all.parquet"
    pl.DataFrame(columns).with_columns(lists).write_parquet(path, row_group_size=700)
    found = Dataset(str(path), part_size=1)
    schema = found.schema.with_roles(label=["label"], categorical=["code", "words"], continuous=DTYPES)
    return found.with_schema(schema.with_column(schema["code"].with_(cardinality=90)))


@pytest.mark.parametrize("batch_size", [1, 7, 64, 1000])
def test_batches_are_those_without_a_cache(data, batch_size):
    settings = {"shuffle": True, "chunk_rows": 1300, "dtypes": {"code": "int64", "label": "float32"}}
    epochs = 3 if batch_size > 1 else 2
    cached = Loader(data, batch_size, cache="memory", **settings)
    wanted, found = delivered(Loader(data, batch_size, **settings), epochs), delivered(cached, epochs)
    assert cached._running().source._records._rows
    assert len(wanted) == len(found)
    for batch, other in zip(wanted, found, strict=True):
        for name, values in batch.items():
            parts = zip(values, other[name], strict=True) if isinstance(values, tuple) else [(values, other[name])]
            for one, two in parts:
                assert one.dtype == two.dtype and np.array_equal(one, two), name


@pytest.mark.parametrize("last_batch", ["keep", "drop", "wrap"])
def test_ranks_that_share_partitions(data, last_batch):
    for rank in range(3):
        settings = {"shuffle": True, "chunk_rows": 900, "rank": rank, "world": 3, "last_batch": last_batch}
        wanted, found = (delivered(Loader(data, 50, cache=cache, **settings)) for cache in (None, "memory"))
        assert [b["int64"].tolist() for b in wanted] == [b["int64"].tolist() for b in found]


def test_a_resumed_epoch_and_one_that_is_left(data):
    settings = {"shuffle": True, "chunk_rows": 1300}
    cached, plain = Loader(data, 100, cache="memory", **settings), Loader(data, 100, **settings)
    delivered(cached, 2)
    for number, _ in enumerate(cached, 1):
        if number == 11:
            break
    state = cached.state_dict()
    plain.load_state_dict(state)
    cached.load_state_dict(state)
    wanted, found = delivered(plain, 1), delivered(cached, 1)
    assert len(wanted) == 19 and [b["int32"].tolist() for b in wanted] == [b["int32"].tolist() for b in found]


def test_what_stays_in_columns(data, tmp_path):
    few = Loader(
        data, 100, categorical=["code"], continuous=["float32"], labels=["label"], shuffle=True, cache="memory"
    )
    unshuffled, on_disk = Loader(data, 100, cache="memory"), Loader(data, 100, shuffle=True, cache="disk")
    for loader in (few, unshuffled, on_disk):
        delivered(loader)
        records = loader._running().source._records
        assert records is None or not records._rows


@pytest.mark.parametrize("to", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "int64"])
@pytest.mark.parametrize("at", [0, 5])
def test_kernel_widens_and_cuts_as_numpy_does(dtype, to, at):
    rows, batch_size = 300, 256
    kind = record_dtype({"other": np.dtype("float64"), "this": np.dtype(dtype), "third": np.dtype("int8")})
    memory = np.zeros(rows * kind.itemsize + kernel.SPARE_BYTES, np.uint8)
    records = memory[: rows * kind.itemsize].view(kind)
    values = records["this"] = column(dtype, 1, rows)
    order, starts = permutation(rows, 4), np.array([0, 120, 120, rows])
    out, places = np.zeros(600, to), np.arange(at, at + rows)
    columns = [(kind.fields["this"][1], np.dtype(dtype).itemsize, out.itemsize, dtype[0] == "i", out.ctypes.data, 288)]
    pieces = np.array([records[start:].ctypes.data for start in starts[:-1]], np.uint64)
    kernel.gather_records(
        pieces, starts, kernel.blocks_of(starts), kind.itemsize, order, np.array(columns, np.int64), at, batch_size
    )
    assert np.array_equal(out[places // batch_size * 288 + places % batch_size], values[order].astype(to))


def test_stretches_cover_all_rows_and_begin_with_batches():
    for at, rows, batch_size in ((0, 10, 3), (5, 100_000, 7), (90_000, 250_000, 100_000), (1, 70_000, 65_536)):
        found = stretches(at, rows, batch_size)
        assert [low for low, _ in found] == [0, *(high for _, high in found[:-1])] and found[-1][1] == rows
        inside = [(at + low) % batch_size for low, _ in found[1:]]
        assert all(place % 32_768 == 0 for place in inside) if batch_size >= 32_768 else not any(inside)


def test_records_need_all_columns():
    from penstock.loader.cache import Cache

    cache = Cache()
    records = Records(cache, ["a", "b", "c", "d"])
    for name in "abc":
        cache.put(0, name, np.arange(3))
    assert records.join(0) is None
    cache.put(0, "d", np.arange(3, dtype=np.int8))
    joined = records.join(0)
    assert joined is records.join(0) and joined["d"].tolist() == [0, 1, 2]
    assert np.shares_memory(cache.get(0, "a"), joined)
