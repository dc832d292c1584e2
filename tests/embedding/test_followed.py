"""Feeds and incremental checkpoints hold every row that changed, however it changed; policies come back on opening."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from penstock.embedding import SGD, Adagrad, Adam, Admission, Eviction, FeedReader, FeedWriter, SlotConfig, Store

CONFIG = [SlotConfig("user", dim=4)]


def step(store, ids, gradient=1.0):
    found = store.lookup({"user": ids})
    store.update(found, {"user": np.full((len(ids), 4), gradient, np.float32)})


def rows(store, ids):
    return store.lookup({"user": ids}, train=False)["user"].copy()


@pytest.mark.parametrize("storage", ["float32", "bfloat16"])
def test_rows_that_dense_adam_moves_without_touching_them_are_published(tmp_path, storage):
    with Store(CONFIG, Adam(lr=0.01), storage=storage) as store, Store(CONFIG, storage=storage) as serving:
        writer, reader = FeedWriter(store, tmp_path), FeedReader(tmp_path, serving)
        step(store, [1, 2, 3])
        writer.publish()
        reader.poll()
        for round_number in range(3):
            for _ in range(5):
                step(store, [7])
            if round_number == 1:
                rows(store, [1, 2])  # an evaluation brings rows forward as well
            writer.publish()
            reader.poll()
            assert np.array_equal(rows(serving, [1, 2, 3, 7]), rows(store, [1, 2, 3, 7]))
        writer.close()


def test_rows_that_stand_still_are_not_published_again(tmp_path):
    with Store(CONFIG, Adam(lr=0.01)) as store:
        writer = FeedWriter(store, tmp_path)
        step(store, list(range(100, 200)))
        for _ in range(300):
            step(store, [7])
        writer.publish()
        for _ in range(3):
            step(store, [7])
        assert pq.read_metadata(writer.publish() / "rows" / "00000.parquet").num_rows < 10
        writer.close()


@pytest.mark.parametrize("optimizer", [SGD(lr=1.0), Adagrad(lr=0.5), Adam(lr=0.1)])
def test_a_row_looked_up_before_the_first_save_and_updated_after_it(tmp_path, optimizer):
    with Store(CONFIG, optimizer) as store, Store(CONFIG) as serving:
        writer, reader = FeedWriter(store, tmp_path / "feed"), FeedReader(tmp_path / "feed", serving)
        found = store.lookup({"user": [5, 6]})
        store.save(tmp_path / "base")
        writer.publish()
        store.update(found, {"user": np.ones((2, 4), np.float32)})
        store.save(tmp_path / "next", base=tmp_path / "base")
        writer.publish()
        reader.poll()
        expected = rows(store, [5, 6])
        with Store.open(tmp_path / "next") as loaded:
            assert np.array_equal(rows(loaded, [5, 6]), expected)
        assert np.array_equal(rows(serving, [5, 6]), expected)
        writer.close()


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("optimizer", [SGD(lr=1.0), Adagrad(lr=0.5)])
def test_a_row_looked_up_before_anybody_follows_the_store(tmp_path, optimizer, steps):
    """What begins to follow it, a checkpoint or a feed, comes between a batch's look-up and its update."""
    with Store(CONFIG, optimizer) as store, Store(CONFIG) as serving:
        for _ in range(steps):
            step(store, [5, 8])
        found = store.lookup({"user": [5, 6]})
        store.save(tmp_path / "base")
        writer, reader = FeedWriter(store, tmp_path / "feed"), FeedReader(tmp_path / "feed", serving)
        writer.publish()
        store.update(found, {"user": np.ones((2, 4), np.float32)})
        expected = rows(store, [5, 6])
        store.save(tmp_path / "next", base=tmp_path / "base")
        writer.publish()
        reader.poll()
        with Store.open(tmp_path / "next") as loaded:
            assert np.array_equal(rows(loaded, [5, 6]), expected)
        assert np.array_equal(rows(serving, [5, 6]), expected)
        writer.close()


def test_opening_keeps_eviction_and_admission(tmp_path):
    policies = {"eviction": Eviction("lfu", max_rows=50), "admission": Admission(min_count=2, probability=0.9)}
    with Store(CONFIG, SGD(), **policies) as store:
        step(store, [1, 2, 3])
        store.save(tmp_path / "a")
    with Store.open(tmp_path / "a") as opened:
        assert (opened.tables.eviction, opened.tables.admission) == tuple(policies.values())
        for first in range(1000, 1400, 40):
            for _ in range(2):
                step(opened, list(range(first, first + 40)))
        assert opened.tables.rows <= 50
    with Store.open(tmp_path / "a", eviction=None) as opened:
        assert opened.tables.eviction is None, "what is asked for goes before what was saved"


def test_a_checkpoint_that_says_nothing_of_policies_opens(tmp_path):
    from penstock.core import artefact

    with Store(CONFIG, SGD()) as store:
        step(store, [1])
        store.save(tmp_path / "a")
    description = json.loads((tmp_path / "a" / "store.json").read_text())
    del description["eviction"], description["admission"]
    with artefact.writing(tmp_path / "b", "embedding-store", 1) as folder:
        for file in (tmp_path / "a").rglob("*"):
            if file.is_file() and file.name not in ("manifest.json", "store.json"):
                (folder / file.relative_to(tmp_path / "a")).parent.mkdir(parents=True, exist_ok=True)
                (folder / file.relative_to(tmp_path / "a")).write_bytes(file.read_bytes())
        (folder / "store.json").write_text(json.dumps(description))
    with Store.open(tmp_path / "b") as opened:
        assert opened.tables.rows == 1 and opened.tables.eviction is None


def test_gradients_in_any_order_of_memory():
    def updated(gradient):
        with Store(CONFIG, SGD(lr=1.0)) as store:
            found = store.lookup({"user": [1, 2, 3]})
            before = found["user"].copy()
            store.update(found, {"user": gradient} if gradient.ndim == 2 else gradient)
            return before - rows(store, [1, 2, 3])

    wide = np.arange(48, dtype=np.float32).reshape(6, 8)
    misaligned = np.frombuffer(b"\0" + wide[:3, :4].tobytes(), np.uint8)[1:].view(np.float32).reshape(3, 4)
    shapes = [
        wide[:3, :4][::-1],
        wide[::2, ::2],
        wide[::-2, 3::-1],
        wide.T[:3, :4],
        np.broadcast_to(wide[0, :4], (3, 4)),
        misaligned,
        wide[:3, :4].astype(">f4"),
        wide[:3, :4].astype(np.float64)[::-1],
        np.asfortranarray(wide[:3, :4]),
    ]
    for gradient in shapes:
        assert np.allclose(updated(gradient), gradient, atol=1e-4), gradient.strides


@pytest.mark.parametrize("packed", [True, False])
def test_packed_and_raw_gradients_that_run_backwards(packed):
    config = [SlotConfig("a", 2), SlotConfig("b", 2), SlotConfig("r", 2, pooling="raw", length=2)]
    with Store(config, SGD(lr=1.0)) as store:
        batch = {"a": [1, 2], "b": [3, 4], "r": [[5, 6], [7, 8]]}
        found = store.lookup(batch)
        before = {name: array.copy() for name, array in found.items()}
        flat = np.arange(8, dtype=np.float32).reshape(2, 4)[::-1]
        raw = np.arange(8, dtype=np.float32).reshape(2, 2, 2)[::-1, ::-1]
        store.update(found, flat if packed else {"a": flat[:, :2], "b": flat[:, 2:], "r": raw})
        after = store.lookup(batch, train=False)
        assert np.allclose(before["a"] - after["a"], flat[:, :2]) and np.allclose(before["b"] - after["b"], flat[:, 2:])
        assert np.allclose(before["r"] - after["r"], 0 if packed else raw)


@pytest.mark.parametrize(
    "ids", [np.arange(6)[::-1], np.arange(12)[::2], np.frombuffer(b"\0" + bytes(48), np.uint8)[1:]]
)
def test_ids_in_any_order_of_memory(ids):
    ids = ids.view(np.int64) if ids.dtype == np.uint8 else ids
    with Store(CONFIG, SGD()) as store:
        assert np.array_equal(store.lookup({"user": ids})["user"], rows(store, ids.tolist()))
