"""The incremental feed: a serving store follows a training one."""

from __future__ import annotations

import shutil
import threading

import numpy as np
import pytest

from penstock.core.errors import ArtefactError
from penstock.embedding import SGD, Adagrad, Eviction, FeedReader, FeedWriter, SecondWriterError, SlotConfig, Store

CONFIG = [SlotConfig("c", 4)]
EVERYTHING = {"c": np.arange(60)}


def step(store, ids):
    found = store.lookup({"c": np.asarray(ids)})
    store.update(found, np.ones(found.packed.shape, np.float32))


def same(store, serving):
    return np.array_equal(store.lookup(EVERYTHING, train=False).packed, serving.lookup(EVERYTHING, train=False).packed)


@pytest.fixture
def feed(tmp_path):
    store, serving = Store(CONFIG, Adagrad(), eviction=Eviction("lru", max_rows=30)), Store(CONFIG)
    writer = FeedWriter(store, tmp_path / "feed")
    yield store, serving, writer, FeedReader(tmp_path / "feed", serving)
    writer.close()


def test_a_reader_follows_inserts_updates_and_evictions(feed):
    store, serving, writer, reader = feed
    assert reader.poll() == 0
    for round_ in range(4):
        step(store, range(round_ * 10, round_ * 10 + 20))
        writer.publish()
        assert reader.poll() == 1
        assert same(store, serving)
    assert store.stats()["evicted"] > 0
    assert serving.stats()["rows"] == store.stats()["rows"]
    step(store, [1])
    writer.publish()
    step(store, [2])
    writer.publish()
    assert reader.poll() == 2
    assert same(store, serving)


def test_a_late_reader_catches_up(feed):
    store, _, writer, _ = feed
    for ids in ([1, 2], [3], [4, 5]):
        step(store, ids)
        writer.publish()
    late = Store(CONFIG)
    assert FeedReader(writer.directory, late).poll() == 3
    assert same(store, late)


def test_a_packet_seen_early_is_read_again_once_finished(feed, tmp_path):
    store, serving, writer, reader = feed
    step(store, [1, 2, 3])
    packet = writer.publish()
    shutil.move(packet, tmp_path / "aside")
    packet.mkdir()
    assert reader.poll() == 0  # a folder without a manifest
    shutil.copytree(tmp_path / "aside", packet, dirs_exist_ok=True)
    file = packet / "rows" / "00000.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[:50])
    assert reader.poll() == 0  # half a file
    file.write_bytes(whole)
    assert reader.poll() == 1
    assert same(store, serving)


def test_a_packet_that_stays_broken_is_an_error(feed):
    store, serving, writer, _ = feed
    step(store, [1])
    (writer.publish() / "packet.json").unlink()
    reader = FeedReader(writer.directory, serving, patience=0.0)
    assert reader.poll() == 0
    with pytest.raises(ArtefactError, match=r"packet\.json is missing"):
        reader.poll()


def test_packets_are_never_skipped(feed):
    store, serving, writer, reader = feed
    for ids in ([1], [2], [3]):
        step(store, ids)
        last = writer.publish()
    reader.poll()
    for ids in ([4], [5]):
        step(store, ids)
        last = writer.publish()
    shutil.move(last.parent / "packet-00000004", last.parent / "lost")
    impatient = FeedReader(writer.directory, serving, patience=0.0)
    impatient.applied = reader.applied
    assert impatient.poll() == 0
    with pytest.raises(ArtefactError, match="builds on packet 4, which is missing"):
        impatient.poll()


def test_whole_packets_let_old_ones_go(tmp_path):
    store, serving = Store(CONFIG, SGD()), Store(CONFIG)
    writer = FeedWriter(store, tmp_path, whole_every=3)
    reader = FeedReader(tmp_path, serving)
    for i in range(8):
        step(store, [i])
        writer.publish()
    assert len(list(tmp_path.glob("packet-*"))) <= 3
    reader.poll()
    assert same(store, serving)
    with pytest.raises(SecondWriterError):
        FeedWriter(store, tmp_path)
    writer.close()


def test_a_feed_of_other_slots_is_refused(feed):
    store, _, writer, _ = feed
    step(store, [1])
    writer.publish()
    reader = FeedReader(writer.directory, Store([SlotConfig("c", 8)]), patience=0.0)
    reader.poll()
    with pytest.raises(ArtefactError, match="other slots"):
        reader.poll()


def test_lookups_go_on_while_packets_are_applied(tmp_path):
    """A whole packet is read beside the rows in use; others a few rows at a time. Nobody ever sees an empty store."""
    ids = np.arange(100_000)
    store, serving = Store(CONFIG, SGD()), Store(CONFIG)
    writer = FeedWriter(store, tmp_path / "feed", whole_every=2)
    reader, seen, stop = FeedReader(tmp_path / "feed", serving), [], threading.Event()
    step(store, ids)
    writer.publish()
    reader.poll()

    def look() -> None:
        while not stop.is_set():
            found = serving.lookup({"c": ids[-3:]}, train=False).packed
            seen.append(bool(found.any(1).all()))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(4):  # changes, everything, changes, everything
            step(store, ids)
            writer.publish()
            assert reader.poll() == 1
            assert same(store, serving)
    finally:
        stop.set()
        thread.join()
    writer.close()
    assert len(seen) > 20 and all(seen)
