"""A store on Ray whose processes die, hang or are not heard: no update counts twice, and what is lost is said."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tests.faults.stopped import hang

from penstock.core.errors import ArtefactError, PenstockError
from penstock.embedding import (
    Adam,
    RayStore,
    SecondWriterError,
    ShardRestartedWarning,
    SlotConfig,
    Store,
    StoreTimeoutError,
)
from penstock.embedding.checkpoint import CheckpointLostError
from penstock.embedding.ray_lines import Line, Ticket
from penstock.embedding.ray_messages import TooEarly, unpacked
from penstock.loader.torch import Loader
from penstock.nn import MLP
from penstock.train import Checkpointer, CheckpointRecord, fit

SLOTS = [SlotConfig("c", 4)]
IDS = np.arange(200)


@pytest.fixture(scope="module")
def running(ray: Any) -> Iterator[RayStore]:
    with RayStore(SLOTS, Adam(lr=0.1), num_shards=2, name="faults", timeout=300) as store:
        yield store


@pytest.fixture
def store(running: RayStore) -> RayStore:
    """The one store of this file, empty: its processes take seconds to start."""
    running.timeout = 300
    running.clear()
    return running


def gradient(number: int) -> dict[str, np.ndarray]:
    return {"c": np.random.default_rng(number).normal(size=(len(IDS), 4)).astype(np.float32)}


def step(store: Any, number: int) -> None:
    store.update(store.lookup({"c": IDS}), gradient(number))


def rows(store: Any) -> np.ndarray:
    return store.lookup({"c": IDS}, train=False)["c"].copy()


def expected_rows(*numbers: int) -> np.ndarray:
    with Store(SLOTS, Adam(lr=0.1), num_threads=1) as undisturbed:
        for number in numbers:
            step(undisturbed, number)
        return rows(undisturbed)


def kill(ray: Any, actor: Any, with_signal: int = signal.SIGKILL) -> int:
    process: int = ray.get(actor.ping.remote())
    if with_signal == signal.SIGSTOP:
        hang(process)
    else:
        os.kill(process, with_signal)
    return process


def lose_answers(monkeypatch: pytest.MonkeyPatch, store: RayStore, lost: Callable[[int], bool]) -> None:
    """The network loses some of the answers: the shards have done what they were asked to, and nobody hears of it."""
    real, count = store._calls._await, iter(range(10**6))

    def await_some(*arguments: Any) -> Any:
        reply = real(*arguments)
        return None if lost(next(count)) else reply

    monkeypatch.setattr(store._calls, "_await", await_some)
    monkeypatch.setattr(store._calls, "_await_all", lambda *_: None)  # ask for each answer by itself


def test_calls_of_a_client_on_the_same_machine_go_on_lines_and_by_ray_where_one_breaks(store: RayStore) -> None:
    steps = 1
    step(store, 0)
    while not all(map(store._calls.lines.has, store._calls.shards)):  # asked for by the first call
        step(store, steps)
        steps += 1
    line = store._calls.lines._lines[store._calls.shards[1]]
    assert line is not None
    line.close()
    step(store, steps)
    np.testing.assert_array_equal(rows(store), expected_rows(*range(steps + 1)))
    with pytest.raises(TypeError, match="missing"):  # an error of a shard
        store._calls.call("update", lambda *_: (), store._calls.numbers.new())


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(lambda count: count % 2 == 0, id="every second"),
        pytest.param(lambda count: count % 3 == 0, id="every third"),
        pytest.param(lambda count: 5 <= count < 13, id="a partition"),
    ],
)
def test_an_update_counts_once_when_its_answer_is_lost(
    store: RayStore, monkeypatch: pytest.MonkeyPatch, lost: Callable[[int], bool]
) -> None:
    lose_answers(monkeypatch, store, lost)
    for number in range(4):
        step(store, number)
    np.testing.assert_array_equal(rows(store), expected_rows(0, 1, 2, 3))
    figures = store.stats()
    assert [shard["updates"] for shard in figures["shards"]] == [4, 4]
    assert figures["tables"]["c"]["distinct"] == 4 * len(IDS)  # look-ups that train are counted once, too


def steps_in_flight(store: Any, numbers: range, ahead: int) -> list[np.ndarray]:
    """Steps as a training loop takes them: look-ups `ahead` of their updates, and no call waits for the one before."""
    lookups, updates, seen = deque(store.begin_lookup({"c": IDS}) for _ in numbers[:ahead]), [], []
    for place, number in enumerate(numbers):
        found = lookups.popleft().finish()
        seen.append(found["c"].copy())
        updates.append(store.begin_update(found, gradient(number)))
        lookups += [store.begin_lookup({"c": IDS}) for _ in numbers[place + ahead : place + ahead + 1]]
    for update in updates:
        update.finish()
    return seen


def expected_ahead(numbers: range, ahead: int) -> tuple[list[np.ndarray], np.ndarray]:
    """The same, one call after the other."""
    with Store(SLOTS, Adam(lr=0.1), num_threads=1) as undisturbed:
        lookups, seen = deque(undisturbed.lookup({"c": IDS}) for _ in numbers[:ahead]), []
        for place, number in enumerate(numbers):
            found = lookups.popleft()
            seen.append(found["c"].copy())
            undisturbed.update(found, gradient(number))
            lookups += [undisturbed.lookup({"c": IDS}) for _ in numbers[place + ahead : place + ahead + 1]]
        return seen, rows(undisturbed)


@pytest.mark.parametrize("ahead", [1, 3])
def test_calls_in_flight_count_in_their_order(store: RayStore, ahead: int) -> None:
    wanted, last = expected_ahead(range(6), ahead)
    np.testing.assert_array_equal(steps_in_flight(store, range(6), ahead), wanted)
    assert store.calls_in_flight == 0
    np.testing.assert_array_equal(rows(store), last)
    begun = [store.begin_lookup({"c": IDS}) for _ in range(3)]
    assert store.calls_in_flight == 3 and store.stats()["rows"] == len(IDS)  # which is behind them
    assert all(call.is_ready() for call in begun) and store.calls_in_flight == 0
    np.testing.assert_array_equal(begun[2].finish()["c"], last)  # whatever becomes of those before it


@pytest.mark.parametrize("lost", [pytest.param(lambda count: count % 3 == 0, id="every third")])
def test_calls_in_flight_whose_answers_are_lost_count_once(
    store: RayStore, monkeypatch: pytest.MonkeyPatch, lost: Callable[[int], bool]
) -> None:
    lose_answers(monkeypatch, store, lost)
    wanted, last = expected_ahead(range(5), 3)
    np.testing.assert_array_equal(steps_in_flight(store, range(5), 3), wanted)
    np.testing.assert_array_equal(rows(store), last)
    assert [shard["updates"] for shard in store.stats()["shards"]] == [5, 5]


def test_a_call_that_overtakes_another_is_applied_behind_it(store: RayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    step(store, 0)
    calls, real, heard = store._calls, store._calls._submit, []
    while not all(map(calls.lines.has, calls.shards)):  # on which calls arrive in their order
        rows(store)
    get = calls.lines.get

    def submit(number: int, method: str, call: Any, deadline: float) -> Any:
        if method == "update" and number == 1 and "lost" not in heard:
            heard.append("lost")  # on its way to one of the shards
            line = Line()
            line.close()
            return Ticket(line, 1)
        return real(number, method, call, deadline)

    def listen(*given: Any) -> Any:
        replies = get(*given)
        heard.extend(reply for reply in replies if isinstance(reply, TooEarly))
        return replies

    monkeypatch.setattr(calls, "_submit", submit)
    monkeypatch.setattr(calls.lines, "get", listen)
    update = store.begin_update(store.lookup({"c": IDS}), gradient(1))
    ahead = store.begin_lookup({"c": IDS})
    np.testing.assert_array_equal(ahead.finish()["c"], expected_rows(0, 1))
    update.finish()
    assert heard == ["lost", TooEarly()]


def test_a_copy_of_a_command_that_arrives_when_it_is_settled_counts_no_more(
    store: RayStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = RayStore.attach("faults", timeout=300)  # nobody else has commands of its own
    calls, real, sent = other._calls, other._calls._submit, []

    def submit(*given: Any) -> Any:
        sent.append(given)
        return real(*given)

    monkeypatch.setattr(calls, "_submit", submit)
    step(other, 0)
    copies = [given for given in sent if unpacked(*given[2])[1][0].epoch == calls._epoch]
    step(other, 1)
    assert len(copies) == 4
    for copy in copies:  # as a network may deliver them once more
        assert calls.lines.get([real(*copy)], 300) == [TooEarly()]
    np.testing.assert_array_equal(rows(store), expected_rows(0, 1))
    other.close()


def test_what_is_in_flight_when_a_shard_dies_is_not_counted_as_lost(ray: Any, store: RayStore, tmp_path: Path) -> None:
    step(store, 0)
    store.save(tmp_path / "saved")
    step(store, 1)
    found = [store.lookup({"c": IDS}) for _ in range(2)]
    kill(ray, store._calls.shards[1])
    updates = [store.begin_update(lookup, gradient(number)) for number, lookup in enumerate(found, 2)]
    ahead = store.begin_lookup({"c": IDS})
    with pytest.warns(ShardRestartedWarning, match=r"restored from .*saved; 1 updates since then are lost"):
        updates[0].finish()
    np.testing.assert_array_equal(ahead.finish()["c"], expected_rows(0, 2, 3))
    updates[1].finish()
    np.testing.assert_array_equal(rows(store), expected_rows(0, 2, 3))


def test_calls_behind_one_that_is_not_answered_are_given_up_with_it(ray: Any, store: RayStore) -> None:
    step(store, 0)
    found = store.lookup({"c": IDS})
    stopped = kill(ray, store._calls.shards[1], signal.SIGSTOP)
    try:
        store.timeout = 0.2
        update, ahead = store.begin_update(found, gradient(1)), store.begin_lookup({"c": IDS})
        for begun in (ahead, update):
            with pytest.raises(StoreTimeoutError, match=r"shard 1 .* did not answer 'update'"):
                begun.finish()
        assert store.calls_in_flight == 0
    finally:
        os.kill(stopped, signal.SIGCONT)
    store.timeout = 300
    store.update(found, gradient(1))
    np.testing.assert_array_equal(rows(store), expected_rows(0, 1))


def test_an_update_may_be_tried_again_after_a_shard_hung(ray: Any, store: RayStore) -> None:
    step(store, 0)
    found = store.lookup({"c": IDS})
    stopped = kill(ray, store._calls.shards[1], signal.SIGSTOP)
    try:
        store.timeout = 0.2
        with pytest.raises(StoreTimeoutError, match=r"shard 1 of store 'faults' did not answer 'update' within 0\.2 s"):
            store.update(found, gradient(1))
        with pytest.raises(StoreTimeoutError, match="shard 1"):
            store.update(found, gradient(1))
        with pytest.raises(StoreTimeoutError, match="did not answer 'lookup'"):
            store.lookup({"c": IDS})
    finally:
        os.kill(stopped, signal.SIGCONT)
    store.timeout = 300
    store.update(found, gradient(1))
    np.testing.assert_array_equal(rows(store), expected_rows(0, 1))
    step(store, 2)
    np.testing.assert_array_equal(rows(store), expected_rows(0, 1, 2))


def test_all_shards_go_back_to_the_checkpoint_when_one_died(ray: Any, store: RayStore, tmp_path: Path) -> None:
    other = RayStore.attach("faults", timeout=300)
    step(other, 0)
    store.save(tmp_path / "saved")
    step(store, 1)
    step(other, 2)
    found = store.lookup({"c": IDS})
    kill(ray, store._calls.shards[1])
    with pytest.warns(
        ShardRestartedWarning,
        match=r"shard 1 of store 'faults' died .* restored from .*saved; 2 updates since then are lost",
    ):
        store.update(found, gradient(3))  # applied by shard 0 already when shard 1 is found dead
    with pytest.warns(ShardRestartedWarning, match="2 updates since then are lost"):  # whoever trains is told
        assert len(other.lookup({"c": IDS}, train=False)["c"])
    np.testing.assert_array_equal(rows(store), expected_rows(0, 3))
    figures = store.stats()
    assert figures["restarts"][-1] == {"shard": 1, "restored_from": str(tmp_path / "saved"), "updates_lost": 2}
    assert {tuple(shard["steps"]) for shard in figures["shards"]} == {(2,)}
    other.close()


def test_without_a_checkpoint_all_shards_begin_anew(ray: Any, store: RayStore) -> None:
    step(store, 0)
    kill(ray, store._calls.shards[0])
    with pytest.warns(ShardRestartedWarning, match="all shards are empty: no checkpoint was there; 1 updates"):
        assert not rows(store).any()
    step(store, 1)
    np.testing.assert_array_equal(rows(store), expected_rows(1))


def test_a_coordinator_that_died_knows_what_it_knew(ray: Any, store: RayStore, tmp_path: Path) -> None:
    step(store, 0)
    store.save(tmp_path / "base")
    restarts = store.stats()["restarts"]
    kill(ray, store._calls.coordinator)
    assert store.stats()["restarts"] == restarts
    step(store, 1)
    store.save(tmp_path / "more", base=tmp_path / "base")
    kill(ray, store._calls.coordinator)
    kill(ray, store._calls.shards[1])
    with pytest.warns(ShardRestartedWarning, match="restored from .*more; 0 updates"):
        np.testing.assert_array_equal(rows(store), expected_rows(0, 1))
    with Store.open(tmp_path / "more") as opened:
        np.testing.assert_array_equal(rows(opened), expected_rows(0, 1))


def test_a_shard_that_cannot_reach_the_memory_of_a_client_is_sent_what_it_needs(
    store: RayStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    step(store, 0)
    real = store._shared.place
    monkeypatch.setattr(store._shared, "place", lambda array: real(array)._replace(machine="another"))
    step(store, 1)
    assert store._calls._shares == [False, False]
    np.testing.assert_array_equal(rows(store), expected_rows(0, 1))
    assert store.stats()["tables"]["c"]["distinct"] == 2 * len(IDS)


def limit_files(shard: Any, size: int) -> None:
    """No file that this process writes may be longer: what a full disk is to a writer, and takes no rights."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_a_disk_that_is_full_for_one_shard_leaves_the_checkpoint_before_whole(
    ray: Any, store: RayStore, tmp_path: Path
) -> None:
    step(store, 0)
    store.save(tmp_path / "base")
    step(store, 1)
    shard = store._calls.shards[1]
    ray.get(shard.__ray_call__.remote(limit_files, 1000))
    try:
        for base in (None, tmp_path / "base"):
            with pytest.raises(ArtefactError, match=r"cannot write the checkpoint .*more: .* is whole") as failed:
                store.save(tmp_path / "more", base=base)
            assert "Traceback" not in str(failed.value)
            assert [path.name for path in tmp_path.iterdir()] == ["base"]
    finally:
        ray.get(shard.__ray_call__.remote(limit_files, resource.RLIM_INFINITY))
    with Store.open(tmp_path / "base") as opened:
        np.testing.assert_array_equal(rows(opened), expected_rows(0))
    step(store, 2)  # training was not disturbed, and the next checkpoint may build on the last whole one
    store.save(tmp_path / "more", base=tmp_path / "base")
    with Store.open(tmp_path / "more") as opened:
        np.testing.assert_array_equal(rows(opened), expected_rows(0, 1, 2))


def test_a_checkpoint_written_aside_holds_what_was_there_when_it_began(store: RayStore, tmp_path: Path) -> None:
    step(store, 0)
    saving = store.begin_save(tmp_path / "base")
    step(store, 1)
    with pytest.raises(SecondWriterError, match=r"is being saved to .*base"):
        store.save(tmp_path / "other")
    saving.finish()
    step(store, 2)
    saving = store.begin_save(tmp_path / "more", base=tmp_path / "base")
    step(store, 3)
    saving.finish()
    for name, steps in (("base", (0,)), ("more", (0, 1, 2))):
        with Store.open(tmp_path / name) as opened:
            np.testing.assert_array_equal(rows(opened), expected_rows(*steps))
    np.testing.assert_array_equal(rows(store), expected_rows(0, 1, 2, 3))


def keep_writer_busy(shard: Any) -> None:
    shard._writer.submit(threading.Event().wait)


def test_a_shard_that_dies_while_it_writes_aside_leaves_no_checkpoint(
    ray: Any, store: RayStore, tmp_path: Path
) -> None:
    step(store, 0)
    store.save(tmp_path / "base")
    step(store, 1)
    shard = store._calls.shards[1]
    ray.get(shard.__ray_call__.remote(keep_writer_busy))
    saving = store.begin_save(tmp_path / "more", base=tmp_path / "base")
    kill(ray, shard)
    with (
        pytest.warns(ShardRestartedWarning, match="restored from .*base; 1 updates"),
        pytest.raises(CheckpointLostError, match="died, or was restored, while it wrote a checkpoint"),
    ):
        saving.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["base"]
    step(store, 2)
    store.save(tmp_path / "more", base=tmp_path / "base")
    with Store.open(tmp_path / "more") as opened:
        np.testing.assert_array_equal(rows(opened), expected_rows(0, 2))


def written(saver: Checkpointer) -> None:
    """Wait for the disk: a checkpoint that comes due before that is left out."""
    while saver.is_writing():
        time.sleep(0.002)


def test_training_with_checkpoints_beside_it_can_be_resumed(store: RayStore, tmp_path: Path) -> None:
    def trained(home: Any, steps: int, **settings: Any) -> list[Any]:
        rng = np.random.default_rng(0)
        frame = pl.DataFrame({"c": rng.integers(0, 200, 160), "click": rng.integers(0, 2, 160).astype(np.float32)})
        loader = Loader(frame, 16, categorical=["c"], labels=["click"], shuffle=True)
        torch.manual_seed(0)
        model = MLP(loader.schema, embedding_dim=4, hidden=[4])
        saver = Checkpointer(tmp_path / "saved", full_every=3, **settings)
        history = fit(
            model, loader, home, epochs=3, max_steps=steps, staleness=1, checkpoint_dir=saver, checkpoint_every=2,
            progress=False, log_every=1, callbacks=[lambda record: written(saver)],
        )  # fmt: skip
        assert saver.steps()[-1] == steps
        return [record.step for record in history.records if isinstance(record, CheckpointRecord)]

    assert trained(store, 9, asynchronous=True) == [2, 4, 6, 8, 9]
    store.clear()
    assert trained(store, 20, asynchronous=True)[-2:] == [18, 20]
    shutil.rmtree(tmp_path / "saved")
    with Store(SLOTS, Adam(lr=0.1), num_threads=1) as undisturbed:
        assert trained(undisturbed, 20, asynchronous=True)[-2:] == [18, 20]
        np.testing.assert_array_equal(rows(store), rows(undisturbed))


class Saver:
    """A client in a process of its own."""

    def __init__(self) -> None:
        self.store = RayStore.attach("faults", timeout=300)
        self.store._calls.lease_seconds = 1.0
        self.store.stats()  # it knows of the last time the store was cleared

    def ping(self) -> int:
        return os.getpid()

    def save(self, path: str) -> None:
        self.store.save(path)


def test_a_client_that_dies_while_it_saves_does_not_block_the_next(ray: Any, store: RayStore, tmp_path: Path) -> None:
    step(store, 0)
    saver = ray.remote(num_cpus=0)(Saver).remote()
    ray.get(saver.ping.remote())
    stopped = kill(ray, store._calls.shards[1], signal.SIGSTOP)  # the save cannot end
    try:
        under_way = saver.save.remote(str(tmp_path / "never"))
        while not list(tmp_path.rglob("shard-00000")):
            assert not ray.wait([under_way], timeout=0.05)[0]
        ray.kill(saver)
    finally:
        os.kill(stopped, signal.SIGCONT)
    while not (tmp_path / "saved").exists():
        try:
            store.save(tmp_path / "saved")
        except SecondWriterError:
            time.sleep(0.05)
    with Store.open(tmp_path / "saved") as opened:
        np.testing.assert_array_equal(rows(opened), expected_rows(0))


class Creator:
    """Creates a store, as a process of its own."""

    def create(self) -> int:
        self.store = RayStore(SLOTS, Adam(lr=0.1), num_shards=1, name="left behind", detached=True, timeout=300)
        step(self.store, 0)
        return os.getpid()


def test_a_detached_store_outlives_the_process_that_created_it(ray: Any) -> None:
    creator = ray.remote(num_cpus=0)(Creator).remote()
    ray.get(creator.create.remote())
    ray.kill(creator)
    with pytest.raises(ray.exceptions.RayActorError):  # it is gone
        ray.get(creator.create.remote())
    with RayStore.attach("left behind", timeout=300, owns=True) as store:
        step(store, 1)
        np.testing.assert_array_equal(rows(store), expected_rows(0, 1))
    with pytest.raises(PenstockError, match="detached=True needs a name="):
        RayStore(SLOTS, Adam(), detached=True)


def test_a_store_that_could_not_be_started_leaves_no_process_and_no_name(ray: Any) -> None:
    with pytest.raises(StoreTimeoutError):
        RayStore(SLOTS, Adam(), num_shards=1, name="too slow", detached=True, timeout=0.001)
    with pytest.raises(PenstockError, match="no store named 'too slow'"):
        RayStore.attach("too slow", timeout=300)
