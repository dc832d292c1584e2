"""Checkpoints: exact, atomic, verified, refused where they do not fit."""

from __future__ import annotations

import errno
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from penstock.core.errors import ArtefactError, OutputExistsError
from penstock.embedding import (
    SGD,
    Adagrad,
    Adam,
    Admission,
    EmbeddingConfig,
    Eviction,
    Init,
    SecondWriterError,
    SlotConfig,
    Store,
    Warmup,
    checkpoint,
    row_files,
)
from penstock.embedding.locks import WriteLock

CONFIG = EmbeddingConfig([SlotConfig("a", 4), SlotConfig("b", 6, init=Init("normal", 0, 1))])


def step(store, rng, top=50, samples=20):
    batch = {"a": rng.integers(0, top, samples), "b": rng.integers(0, top, samples)}
    found = store.lookup(batch)
    store.update(found, rng.normal(size=found.packed.shape).astype(np.float32))


def contents(store, top=50):
    ids = np.arange(top)
    return store.lookup({"a": ids, "b": ids}, train=False).packed.copy()


@pytest.mark.parametrize("storage", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"eviction": Eviction("lfu", max_rows=60)}, {"admission": Admission(min_count=2)}],
    ids=["plain", "lfu", "min_count"],
)
def test_training_goes_on_as_if_never_interrupted(tmp_path, storage, settings):
    optimizer = Adam(lr=Warmup(0.1, 20))
    straight = Store(CONFIG, optimizer, storage=storage, **settings)
    rng = np.random.default_rng(0)
    for _ in range(20):
        step(straight, rng)
    first = Store(CONFIG, optimizer, storage=storage, **settings)
    rng = np.random.default_rng(0)
    for _ in range(10):
        step(first, rng)
    first.save(tmp_path / "half")
    second = Store.open(tmp_path / "half", **settings)
    assert second.optimizer == optimizer
    for _ in range(10):
        step(second, rng)
    np.testing.assert_array_equal(contents(second), contents(straight))
    assert second.stats()["rows"] == straight.stats()["rows"]
    assert second.stats()["waiting"] == straight.stats()["waiting"]


def test_increments_carry_evictions_and_late_updates(tmp_path):
    store = Store(CONFIG, SGD(lr=1.0), eviction=Eviction("lru", max_rows=40))
    rng = np.random.default_rng(1)
    for _ in range(3):
        step(store, rng, 20)
    early = store.lookup({"a": [1, 2], "b": [1, 2]})
    store.lookup({"a": [3], "b": [3]})
    store.save(tmp_path / "0")
    store.update(early, np.ones(early.packed.shape, np.float32))  # after the save, for rows touched before it
    store.save(tmp_path / "1", base=tmp_path / "0")
    for _ in range(4):
        step(store, rng, 100)
    store.save(tmp_path / "2", base=tmp_path / "1")
    loaded = Store.open(tmp_path / "2")
    np.testing.assert_array_equal(contents(loaded, 100), contents(store, 100))
    assert loaded.stats()["rows"] == store.stats()["rows"]
    small = sum(f.stat().st_size for f in (tmp_path / "1").rglob("*.parquet"))
    assert small < sum(f.stat().st_size for f in (tmp_path / "0").rglob("*.parquet"))
    json_path = tmp_path / "0" / "manifest.json"
    json_path.write_text(json_path.read_text() + " ")
    with pytest.raises(ArtefactError, match=r"builds on .*0, which was replaced"):
        Store.open(tmp_path / "2")


def test_rows_are_plain_parquet(tmp_path):
    store = Store(CONFIG, Adagrad(lr=0.1))
    found = store.lookup({"a": [7], "b": [9]})
    store.update(found, np.ones(found.packed.shape, np.float32))
    store.save(tmp_path / "s")
    table = pq.read_table(tmp_path / "s" / "rows" / "shard-00000" / "00000.parquet")
    assert table.column_names == ["sign", "stamp", "weights", "state_0"]
    assert table["sign"].to_pylist() == [CONFIG.sign("a", 7)]
    np.testing.assert_array_equal(table["weights"].to_pylist()[0], store.lookup({"a": [7], "b": [9]}, False)["a"][0])
    assert table["state_0"].to_pylist() == [[1, 1, 1, 1]]


def test_serving_leaves_the_state_out(tmp_path):
    store, rng = Store(CONFIG, Adam(lr=0.1)), np.random.default_rng(2)
    for _ in range(5):
        step(store, rng)
    store.save(tmp_path / "s")
    serving = Store.open(tmp_path / "s", serving=True)
    np.testing.assert_array_equal(contents(serving), contents(store))
    assert serving.stats()["payload_bytes"] < store.stats()["payload_bytes"] / 2


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: Store([SlotConfig("a", 5), CONFIG["b"]], Adagrad()), "saved with SlotConfig.name='a', dim=4"),
        (lambda: Store([CONFIG["a"]], Adagrad()), "this store has no such slot"),
        (lambda: Store(CONFIG, SGD()), "saved with Adagrad .* this store has SGD"),
        (lambda: Store(CONFIG, Adagrad(row_wise=True)), "optimizer state does not fit"),
        (lambda: Store(CONFIG, Adagrad(), storage="float16"), "storage='float32'"),
        (lambda: Store(CONFIG, Adagrad(), seed=1), "seed=0"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(tmp_path, other, message):
    Store(CONFIG, Adagrad()).save(tmp_path / "s")
    with pytest.raises(ArtefactError, match=message):
        other().load(tmp_path / "s")


def test_damage_is_found_before_anything_is_loaded(tmp_path):
    store = Store(CONFIG, Adagrad())
    step(store, np.random.default_rng(3))
    store.save(tmp_path / "s")
    before = contents(store)
    file = tmp_path / "s" / "rows" / "shard-00000" / "00001.parquet"
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(ArtefactError, match=r"00001\.parquet is truncated"):
        store.load(tmp_path / "s")
    np.testing.assert_array_equal(contents(store), before)
    with pytest.raises(ArtefactError, match="not a folder"):
        store.load(tmp_path / "nothing")
    manifest = tmp_path / "s" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "version": 99}))
    with pytest.raises(ArtefactError, match="format 99"):
        store.load(tmp_path / "s")


def test_a_full_disk_leaves_the_old_checkpoint_whole(tmp_path, monkeypatch):
    store = Store(CONFIG, Adagrad())
    rng = np.random.default_rng(4)
    step(store, rng)
    store.save(tmp_path / "s")
    before = contents(store)
    step(store, rng)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(row_files.pq.ParquetWriter, "write_table", full)
    with pytest.raises(ArtefactError, match="No space left on device; what was there before is whole"):
        store.save(tmp_path / "s", overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s"]
    monkeypatch.undo()
    np.testing.assert_array_equal(contents(Store.open(tmp_path / "s")), before)


def test_nothing_is_overwritten_unasked_and_there_is_one_writer(tmp_path):
    store = Store(CONFIG, Adagrad())
    store.save(tmp_path / "s")
    with pytest.raises(OutputExistsError, match="overwrite=True"):
        store.save(tmp_path / "s")
    store.save(tmp_path / "s", overwrite=True)
    lock = WriteLock(tmp_path / "s")
    with pytest.raises(SecondWriterError, match="being written by process"):
        store.save(tmp_path / "s", overwrite=True)
    lock.close()
    store.save(tmp_path / "s", overwrite=True)
    assert checkpoint.read_description(tmp_path / "s").config() == CONFIG


def test_what_is_written_aside_is_what_was_there_when_it_began(tmp_path):
    rng = np.random.default_rng(0)
    with Store(CONFIG, Adam(), eviction=Eviction(max_rows=60)) as store:
        kept = {}
        for name, base in (("base", None), ("more", "base"), ("last", "more")):
            step(store, rng)
            late = store.lookup({"a": [1], "b": [2]})  # updated while the checkpoint is written
            kept[name] = contents(store)
            saving = store.begin_save(tmp_path / name, base=None if base is None else tmp_path / base)
            step(store, rng)
            store.update(late, np.ones(late.packed.shape, np.float32))
            with pytest.raises(SecondWriterError, match=rf"this store is being saved to .*{name}"):
                store.save(tmp_path / "other")
            saving.finish()
        for name, expected in kept.items():
            with Store.open(tmp_path / name) as opened:
                np.testing.assert_array_equal(contents(opened), expected, err_msg=name)
        store.save(tmp_path / "end", base=tmp_path / "last")
        with Store.open(tmp_path / "end") as opened:
            np.testing.assert_array_equal(contents(opened), contents(store))


def test_what_cannot_be_written_aside_leaves_the_last_one_to_build_on(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    with Store(CONFIG, Adam()) as store:
        step(store, rng)
        store.save(tmp_path / "base")
        step(store, rng)
        saving = store.begin_save(tmp_path / "more", base=tmp_path / "base")
        with monkeypatch.context() as full:

            def no_space(*_, **__):
                raise OSError(errno.ENOSPC, "No space left on device")

            full.setattr(row_files.pq, "ParquetWriter", no_space)
            with pytest.raises(ArtefactError, match="No space left on device; what was there before is whole"):
                saving.finish()
        assert [path.name for path in tmp_path.iterdir()] == ["base"]
        store.save(tmp_path / "more", base=tmp_path / "base")
        with Store.open(tmp_path / "more") as opened:
            np.testing.assert_array_equal(contents(opened), contents(store))
        saving = store.begin_save(tmp_path / "again", base=tmp_path / "more")
        store.clear()
        saving.finish()  # whole, but no longer what the store has come from
        with pytest.raises(checkpoint.OtherBaseError, match="there is none yet"):
            store.save(tmp_path / "next", base=tmp_path / "again")
        store.begin_save(tmp_path / "let go")
        store.save(tmp_path / "next")
