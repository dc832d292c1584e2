import pickle
import time

import numpy as np
import polars as pl
import pytest

from penstock.core.errors import ParameterError, SchemaError
from penstock.core.schema import Schema
from penstock.data import Dataset
from penstock.data.partition import FramePartition
from penstock.loader import Loader, Pad, WeightedSampling


def column(loader, name):
    return np.concatenate([features[name] for features, _ in loader])


def test_unshuffled_is_the_file(dataset, frame):
    loader = Loader(dataset, 256, chunk_rows=1000)
    batches = list(loader)
    assert [len(labels) for _, labels in batches] == [256] * 19 + [139]
    for name in ("row", "user", "item", "price", "age"):
        np.testing.assert_array_equal(np.concatenate([f[name] for f, _ in batches]), frame[name].to_numpy())
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in batches]), frame["click"].to_numpy())
    lists = [v.tolist() for f, _ in batches for v in np.split(f["genres"].values, f["genres"].offsets[1:-1])]
    assert lists == frame["genres"].to_list()
    assert loader.num_rows_processed == frame.height


@pytest.mark.parametrize("kind", ["frame", "csv", "ipc", "glob"])
def test_other_sources(kind, frame, tmp_path):
    flat = frame.drop("genres")
    if kind == "csv":
        flat.write_csv(tmp_path / "a.csv")
    elif kind == "ipc":
        flat.write_ipc(tmp_path / "a.arrow", record_batch_size=500)
    elif kind == "glob":
        flat[:2000].write_parquet(tmp_path / "a.parquet")
        flat[2000:].write_parquet(tmp_path / "b.parquet")
    source = {
        "frame": flat,
        "csv": tmp_path / "a.csv",
        "ipc": tmp_path / "a.arrow",
        "glob": str(tmp_path / "*.parquet"),
    }
    names = {"categorical": ["row", "user"], "continuous": ["price"], "labels": ["click"]}
    loader = Loader(source[kind], 300, shuffle=True, chunk_rows=900, **names)
    rows = column(loader, "row")
    assert sorted(rows) == list(range(frame.height))
    assert (rows != np.arange(frame.height)).any()
    np.testing.assert_allclose(column(Loader(source[kind], 300, **names), "price"), frame["price"], rtol=1e-6)


def test_batches_are_aligned_and_contiguous(dataset):
    for batch_size in (64, 100, 101):
        for features, labels in Loader(dataset, batch_size, chunk_rows=1000, shuffle=True):
            for array in [*(features[n] for n in ("row", "user", "price", "age")), labels]:
                assert array.ctypes.data % 64 == 0
                assert array.flags.c_contiguous


def test_packed_is_a_view_of_one_block(dataset):
    cats, conts, labels = Loader(dataset.select(["user", "item", "price", "click"]).with_roles(
        categorical=["user", "item"], continuous=["price"], label=["click"]), 128, layout="packed").peek()  # fmt: skip
    assert (cats.dtype, conts.dtype, labels.dtype) == (np.int64, np.float32, np.float32)
    assert (cats.shape, conts.shape, labels.shape) == ((128, 2), (128, 1), (128,))
    assert cats.base is not None
    assert cats.T[0].flags.c_contiguous


def test_kept_batches_do_not_change(dataset, frame):
    loader = Loader(dataset, 64, chunk_rows=300)
    kept = [features["row"] for features, _ in loader]
    for _ in loader:
        pass
    np.testing.assert_array_equal(np.concatenate(kept), np.arange(frame.height))


def test_buffers_are_used_again(dataset):
    loader = Loader(dataset, 64, chunk_rows=300, shuffle=True)
    for _ in loader.epochs(2):
        pass
    first = loader._running().pool.num_bytes
    for _ in loader.epochs(3):
        pass
    assert loader._running().pool.num_bytes <= first * 1.5


def test_roles_come_from_arguments_or_the_schema(dataset, path):
    assert Loader(dataset).schema.names == ["row", "user", "item", "price", "age", "genres", "click"]
    features, labels = Loader(dataset, categorical=["item"]).peek()
    assert list(features) == ["item"]
    assert labels is None
    features, labels = Loader(path, continuous=["age"], labels=["click", "price"]).peek()
    assert sorted(labels) == ["click", "price"]
    features, _ = Loader(path).peek()
    assert "row" in features


def test_len_and_position(dataset):
    loader = Loader(dataset, 1000)
    assert len(loader) == 6
    assert [loader.num_rows_processed for _ in loader] == [1000, 2000, 3000, 4000, 5000, 5003]
    assert loader.epoch == 1
    loader.set_epoch(5)
    assert loader.epoch == 5


def test_epochs_differ_and_a_broken_epoch_starts_again(dataset):
    loader = Loader(dataset, 500, shuffle=True, chunk_rows=1000)
    first = loader.peek()[0]["row"].copy()
    iterator = iter(loader)
    next(iterator)
    iterator.close()
    np.testing.assert_array_equal(next(iter(loader))[0]["row"], first)
    loader.set_epoch(0)
    rows = np.concatenate([f["row"] for f, _ in loader.epochs(2)])
    assert sorted(rows[:5003]) == sorted(rows[5003:])
    assert (rows[:5003] != rows[5003:]).any()


def test_map_and_peek(dataset):
    loader = Loader(dataset, 500)
    doubled = loader.map(lambda batch: batch[0]["row"] * 2)
    np.testing.assert_array_equal(doubled.peek(), np.arange(500) * 2)
    assert loader.state_dict()["batch"] == 0
    assert loader.num_rows_processed == 0


def test_transform_runs_inside(dataset, path):
    loader = Loader(path, 500, categorical=["row", "twice"], labels=["click"],
                    transform=lambda frame: frame.with_columns(twice=pl.col("row") * 2), shuffle=True)  # fmt: skip
    for features, _ in loader:
        np.testing.assert_array_equal(features["twice"], features["row"] * 2)


def test_a_workflow_like_object_as_transform(dataset):
    class Half:
        input_schema = dataset.schema.select(["row"])
        output_schema = dataset.schema.select(["row"])

        def transform(self, frame):
            assert frame.columns == ["row"]
            return frame.select(pl.col("row") // 2)

    np.testing.assert_array_equal(column(Loader(dataset, transform=Half()), "row"), np.arange(5003) // 2)


@pytest.mark.parametrize("cache", ["memory", "disk"])
def test_cache(dataset, cache, tmp_path, path):
    plain = Loader(dataset, 256, shuffle=True, chunk_rows=1000)
    cached = Loader(dataset, 256, shuffle=True, chunk_rows=1000, cache=cache)
    for epoch in range(3):
        for (a, la), (b, lb) in zip(plain, cached, strict=True):
            for name in ("row", "user", "item", "price", "age"):
                np.testing.assert_array_equal(a[name], b[name])
                assert a[name].dtype == b[name].dtype
            np.testing.assert_array_equal(a["genres"].values, b["genres"].values)
            np.testing.assert_array_equal(la, lb)
        if epoch == 0:
            decoded = cached.stats().stages["decode"].num_bytes
    assert cached.stats().stages["decode"].num_bytes == decoded


def test_weighted_sampling(dataset, frame):
    weights = (np.arange(frame.height) % 2).astype(np.float32)
    data = frame.with_columns(weight=weights)
    loader = Loader(data, 500, categorical=["row"], sampling=WeightedSampling("weight"), chunk_rows=2000)
    rows = column(loader, "row")
    assert len(rows) == frame.height
    assert (rows % 2 == 1).all()
    assert len(set(rows)) > 1000
    again = Loader(data, 500, categorical=["row"], sampling=WeightedSampling("weight"), chunk_rows=2000)
    np.testing.assert_array_equal(rows, column(again, "row"))


def test_pickle(dataset):
    loader = Loader(dataset, 500, shuffle=True, cache="memory")
    expected = column(loader, "row")
    copied = pickle.loads(pickle.dumps(loader))
    copied.set_epoch(0)
    np.testing.assert_array_equal(column(copied, "row"), expected)


def test_two_loaders_and_two_iterators_at_once(dataset, frame):
    a, b = Loader(dataset, 256, shuffle=True), Loader(dataset, 100)
    pairs = zip(a, b, a, strict=False)
    for (x, _), (y, _), (z, _) in pairs:
        np.testing.assert_array_equal(x["row"], z["row"])
        np.testing.assert_array_equal(y["price"], frame["price"].to_numpy()[y["row"]])


def test_empty_data():
    loader = Loader(pl.DataFrame({"x": np.empty(0, np.int32)}), 10)
    assert len(loader) == 0
    assert list(loader) == []


def test_state_of_another_loader_is_refused(dataset):
    state = Loader(dataset, 256, shuffle=True, seed=1).state_dict()
    with pytest.raises(ParameterError, match="seed=1 and this loader has seed=2"):
        Loader(dataset, 256, shuffle=True, seed=2).load_state_dict(state)
    with pytest.raises(ParameterError, match="not the state of a loader"):
        Loader(dataset).load_state_dict({"epoch": 1})


def test_state_after_the_last_batch_is_the_next_epoch(dataset):
    loader = Loader(dataset, 1000, shuffle=True)
    list(loader)
    assert (loader.state_dict()["epoch"], loader.state_dict()["batch"]) == (1, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be an int ≥ 1, got 0"),
        ({"last_batch": "pad"}, "last_batch must be one of 'keep', 'drop', 'wrap'"),
        ({"rank": 2, "world": 2}, "rank must be from 0 to world - 1 = 1, got 2"),
        ({"lists": "jagged"}, "lists must be one of 'ragged'"),
        ({"lists": {"user": Pad(2)}}, "list columns: genres"),
        ({"fill": {"use": 1}}, "did you mean 'user'"),
        ({"dtypes": {"usr": "int8"}}, "did you mean 'user'"),
        ({"cache": "ram"}, "cache must be one of"),
    ],
)
def test_bad_arguments(dataset, options, message):
    with pytest.raises(ParameterError, match=message):
        Loader(dataset, **options)


def test_text_columns_are_refused():
    with pytest.raises(SchemaError, match=r"'name' is string.*Categorify"):
        Loader({"name": ["a"], "x": [1]}, categorical=["name"])
    with pytest.raises(ParameterError, match="needs a role for every column"):
        Loader({"x": [1]}, layout="packed")


def test_stats_and_verdict(dataset):
    loader = Loader(dataset, 256, shuffle=True)
    assert loader.stats().verdict() == "nothing was loaded yet"
    for _ in loader:
        pass
    stats = loader.stats()
    assert stats.rows == 5003
    assert stats.stages["decode"].num_bytes > 0
    assert "bottleneck" in str(stats)
    assert stats.to_dict()["batches"] == len(loader)


def test_one_dataset_many_row_groups_in_a_partition(path, frame):
    data = Dataset(path)  # all row groups in one partition
    assert data.num_partitions == 1
    assert sorted(column(Loader(data, 512, shuffle=True), "row")) == list(range(frame.height))


def test_the_verdict_names_the_slower_side(dataset):
    loader = Loader(dataset, 1000)
    for _ in loader:
        time.sleep(0.02)
    stats = loader.stats()
    worked = stats.stages["wait_for_consumer"].seconds
    assert worked > 0.09
    stats.stages["wait_for_loader"].seconds = worked / 9  # as measured it depends on the machine
    assert "the model is the bottleneck: the loader waited 90%" in stats.verdict()
    stats.stages["wait_for_loader"].seconds = worked * 9
    assert "the loader is the bottleneck: the model waited 90%" in stats.verdict()


def test_parts_per_chunk_counts_partitions():
    frames = [FramePartition(pl.DataFrame({"x": np.arange(10)})) for _ in range(6)]
    data = Dataset.from_partitions(frames, Schema.from_polars({"x": pl.Int64()}))
    loader = Loader(data, 5, continuous=["x"], parts_per_chunk=2)
    assert [chunk.num_rows for chunk in loader.plan().chunks] == [20, 20, 20]
    with pytest.raises(ParameterError, match="give one of them"):
        Loader(data, 5, continuous=["x"], parts_per_chunk=2, chunk_rows=20)
