"""A feed out of a store on Ray: each shard writes its part, and who follows has the same rows."""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.stopped import hang

from penstock.embedding import Adam, FeedReader, FeedWriter, RayStore, SlotConfig, Store
from penstock.embedding.ray_probes import Probes

CONFIG = [SlotConfig("user", dim=4), SlotConfig("item", dim=2)]
EVERYTHING = {"user": np.arange(200), "item": np.arange(200)}


def step(store: RayStore, first: int, last: int) -> None:
    ids = np.arange(first, last)
    found = store.lookup({"user": ids, "item": ids // 2})
    store.update(found, np.ones(found.packed.shape, np.float32))


def same(store: RayStore, serving: Store) -> bool:
    return np.array_equal(store.lookup(EVERYTHING, train=False).packed, serving.lookup(EVERYTHING, train=False).packed)


def is_whole(packet: Path) -> bool:
    return bool(json.loads((packet / "packet.json").read_text())["whole"])


@pytest.fixture(scope="module")
def two_shards(ray: Any) -> Iterator[RayStore]:
    store = RayStore(CONFIG, Adam(lr=0.1), num_shards=2)
    yield store
    store.close()


@pytest.fixture
def store(two_shards: RayStore) -> RayStore:
    two_shards.clear()
    return two_shards


def test_packets_hold_what_all_shards_have_changed(store: RayStore, tmp_path: Path) -> None:
    with Store(CONFIG) as serving:
        writer, reader = FeedWriter(store, tmp_path / "feed"), FeedReader(tmp_path / "feed", serving)
        other = RayStore.attach(store.name)  # another trainer
        kinds = []
        for first in (0, 50, 120):
            step(store, first, first + 60)
            step(other, first, first + 5)
            kinds.append(is_whole(writer.publish(first)))
            assert reader.poll() == 1 and reader.step == first and same(store, serving)
        assert kinds == [True, False, False]
        store.save(tmp_path / "saved")
        step(store, 0, 100)
        store.load(tmp_path / "saved")  # a new epoch, as after a shard was lost
        assert is_whole(writer.publish()) and reader.poll() == 1 and same(store, serving)
        step(store, 10, 20)
        packet = writer.publish()
        assert not is_whole(packet) and reader.poll() == 1 and same(store, serving)
        assert [path.name for path in sorted((packet / "rows").iterdir())] == ["shard-00000", "shard-00001"]
        with Store(CONFIG) as late:
            assert FeedReader(tmp_path / "feed", late).poll() == 2 and same(store, late)
        writer.close()


def test_a_writer_that_broke_off_is_made_up_for(store: RayStore, tmp_path: Path, monkeypatch: Any) -> None:
    with Store(CONFIG) as serving:
        writer, reader = FeedWriter(store, tmp_path), FeedReader(tmp_path, serving)
        step(store, 0, 60)
        writer.publish()
        step(store, 30, 90)
        with monkeypatch.context() as broken:
            broken.setattr(writer, "_write_dense", lambda folder: (_ for _ in ()).throw(OSError("disk full")))
            with pytest.raises(OSError, match="disk full"):
                writer.publish()
        step(store, 100, 110)
        assert not is_whole(writer.publish())  # what the lost one would have held is in this one
        assert reader.poll() == 2 and same(store, serving)
        writer.close()


@pytest.mark.slow
def test_a_standby_that_took_over_publishes_everything(ray: Any, tmp_path: Path) -> None:
    store = RayStore(CONFIG, Adam(lr=0.1), num_shards=2, replicas=2)
    with Store(CONFIG) as serving:
        writer, reader = FeedWriter(store, tmp_path), FeedReader(tmp_path, serving)
        step(store, 0, 60)
        writer.publish()
        while store.stats()["standbys"] < 2:
            step(store, 60, 70)
        os.kill(ray.get(store.processes()[0, 0].ping.remote()), signal.SIGKILL)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # no update was lost
            step(store, 30, 90)
        assert is_whole(writer.publish()) and reader.poll() == 1 and same(store, serving)
        writer.close()
    store.close()


def test_probes_hear_who_answers_who_is_silent_and_who_is_down(store: RayStore, ray: Any) -> None:
    now = [0.0]
    probes = Probes[int](every=1.0, patience=5.0, clock=lambda: now[0])
    first, second = store.processes()[0, 0], store.processes()[1, 0]
    asks = {0: first.figures.remote, 1: second.figures.remote}
    assert probes.look(asks, wait=300.0)
    answers = probes.answers()
    assert {answers[0]["state"], answers[1]["state"]} == {"up"} and answers[0]["role"] == "primary"
    process = ray.get(first.ping.remote())
    hang(process)
    now[0] = 2.0
    probes.look(asks)
    now[0] = 8.0
    assert probes.look({0: asks[0]}) and probes.answers()[0]["state"] == "silent"
    assert probes.answers()[0]["answered_in"] == 6.0 and probes.answers()[0]["rows"] == 0  # what it said last
    os.kill(process, signal.SIGCONT)
    assert probes.look(asks, wait=300.0) and probes.answers()[0]["state"] == "up"

    @ray.remote
    class Dies:
        def figures(self) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

    dying = Dies.remote()
    assert probes.look({7: dying.figures.remote}, wait=300.0) and probes.answers()[7]["state"] == "down"
