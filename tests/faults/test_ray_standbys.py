"""A store on Ray with standbys: whichever process of a shard dies, the rows are those of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.stopped import hang

from penstock.core.errors import ParameterError
from penstock.embedding import Adam, Admission, Eviction, RayStore, ShardRestartedWarning, SlotConfig, Store
from penstock.embedding.checkpoint import CheckpointLostError
from penstock.embedding.ray_messages import packed
from penstock.train.checkpoint_store import StoreCheckpoints

SLOTS = [SlotConfig("user", 4), SlotConfig("item", 8)]
POLICIES: dict[str, Any] = {"admission": Admission(min_count=2), "eviction": Eviction(max_rows=160)}


@pytest.fixture(scope="module")
def running(ray: Any) -> Iterator[RayStore]:
    with RayStore(SLOTS, Adam(lr=0.1), num_shards=2, name="pairs", timeout=300, replicas=2, **POLICIES) as store:
        yield store


@pytest.fixture
def store(running: RayStore) -> RayStore:
    """The one store of this file, empty, and every shard with its standby."""
    running.timeout = 300
    return cleared(running)


def wait_for_standbys(store: RayStore) -> None:
    while store.stats()["standbys"] < store.num_shards:
        time.sleep(0.02)


def batch(number: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(number)
    return {"user": rng.integers(0, 60, 40), "item": rng.integers(0, 90, 40)}


def gradients(number: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(number)
    return {slot.name: rng.normal(size=(40, slot.dim)).astype(np.float32) for slot in SLOTS}


def cleared(store: RayStore) -> RayStore:
    store.clear()
    wait_for_standbys(store)
    return store


def step(store: Any, number: int) -> np.ndarray:
    found = store.lookup(batch(number))
    seen = found.packed.copy()
    store.update(found, gradients(number))
    return seen


def steps_in_flight(
    store: RayStore, numbers: range, ahead: int, beside: Callable[[int], None] = lambda number: None
) -> list[np.ndarray]:
    """Steps as a training loop takes them: look-ups `ahead` of their updates, and no call waits for the one before."""
    lookups, seen = deque(store.begin_lookup(batch(number)) for number in numbers[:ahead]), []
    updates = []
    for place, number in enumerate(numbers):
        beside(number)
        found = lookups.popleft().finish()
        seen.append(found.packed.copy())
        updates.append(store.begin_update(found, gradients(number)))
        lookups += [store.begin_lookup(batch(coming)) for coming in numbers[place + ahead : place + ahead + 1]]
    for update in updates:
        update.finish()
    return seen


def rows(store: Any) -> np.ndarray:
    return store.lookup({"user": np.arange(60), "item": np.arange(60)}, train=False).packed.copy()


def undisturbed(store: RayStore, numbers: Iterable[int]) -> tuple[list[np.ndarray], np.ndarray]:
    """What these steps give, and the rows at the end, when nothing dies; the store is empty before and after."""
    seen = [step(store, number) for number in numbers]
    last = rows(store)
    cleared(store)
    return seen, last


def process_of(ray: Any, store: RayStore, shard: int, standby: bool = False) -> int:
    calls: Any = store._calls
    calls._rearrange()
    process: int = ray.get((calls._standby(shard) if standby else calls.shards[shard]).ping.remote())
    return process


def kill_somewhere_in(store: RayStore, process: int, numbers: range, seed: int, ahead: int) -> list[np.ndarray]:
    """Take steps while another thread kills a process, at a moment that the seed alone does not determine."""
    rng = random.Random(seed)
    begun, pause = threading.Event(), rng.random() * 0.02
    at = rng.choice(numbers)

    def kill() -> None:
        begun.wait()
        time.sleep(pause)
        os.kill(process, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    seen = steps_in_flight(store, numbers, ahead, lambda number: begun.set() if number == at else None)
    killer.join()
    return seen


def standby_numbers(store: RayStore) -> list[int]:
    numbers: list[int] = store._calls.ask_coordinator("arrangement").standbys
    return numbers


def disturbed(
    ray: Any, store: RayStore, kills: int, steps_each: int, ahead: int
) -> tuple[list[np.ndarray], list[float]]:
    """Steps and kills, each while all shards have standbys; what was seen, and how long."""
    seen, pauses = [], []
    rng = random.Random(kills)
    for number in range(kills):
        shard = rng.randrange(2)
        wait_for_standbys(store)  # on a machine with too much work one may have been given up and filled again
        victim, before = process_of(ray, store, shard, standby=rng.random() < 0.25), standby_numbers(store)[shard]
        began = time.monotonic()
        seen += kill_somewhere_in(store, victim, range(number * steps_each, (number + 1) * steps_each), number, ahead)
        pauses.append(time.monotonic() - began)
        while standby_numbers(store)[shard] <= before:
            store.stats()  # where nobody has noticed
            time.sleep(0.05)
    return seen, pauses


@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_no_update_is_lost_whichever_process_dies(ray: Any, store: RayStore, kills: int) -> None:
    wanted, last = undisturbed(store, range(kills * 6))
    seen, pauses = disturbed(ray, store, kills, 6, ahead=1)
    for number, (got, want) in enumerate(zip(seen, wanted, strict=True)):
        np.testing.assert_array_equal(got, want, err_msg=f"step {number}")
    np.testing.assert_array_equal(rows(store), last)
    figures = store.stats()
    assert [shard["updates"] for shard in figures["shards"]] == [kills * 6] * 2
    assert figures["evicted"] > 0 or kills < 3
    print(f"{kills} kills, the longest six steps with one took {max(pauses):.1f} s")


def test_look_ups_ahead_of_a_shard_that_dies_are_those_of_an_undisturbed_run(ray: Any, store: RayStore) -> None:
    wanted = steps_in_flight(store, range(6), ahead=3)
    last = rows(store)
    cleared(store)
    seen, _ = disturbed(ray, store, 1, 6, ahead=3)
    np.testing.assert_array_equal(seen, wanted)
    np.testing.assert_array_equal(rows(store), last)


def test_answers_that_are_lost_change_nothing(store: RayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, last = undisturbed(store, range(6))
    calls: Any = store._calls
    real, count = calls._await, iter(range(10**6))

    def await_some(*arguments: Any) -> Any:
        reply = real(*arguments)
        return None if next(count) % 3 == 0 and arguments[1] in ("lookup", "update") else reply

    monkeypatch.setattr(calls, "_await", await_some)
    monkeypatch.setattr(calls, "_await_all", lambda *_: None)  # ask for each answer by itself
    seen = [step(store, number) for number in range(6)]
    np.testing.assert_array_equal(seen, wanted)
    np.testing.assert_array_equal(rows(store), last)
    assert not [entry for entry in store.stats()["restarts"] if not entry.get("took_over")]


def test_checkpoints_go_on_where_a_standby_took_over(ray: Any, store: RayStore, tmp_path: Path) -> None:
    _, last = undisturbed(store, range(6))
    other = RayStore.attach("pairs", timeout=300)
    for number in range(3):
        step(store, number)
    store.save(tmp_path / "base")
    step(other, 3)
    os.kill(process_of(ray, store, 1), signal.SIGKILL)
    step(store, 4)
    step(other, 5)  # what it had kept for the standby was applied once
    store.save(tmp_path / "more", base=tmp_path / "base")
    np.testing.assert_array_equal(rows(other), last)
    with Store.open(tmp_path / "more") as opened:
        np.testing.assert_array_equal(rows(opened), last)
    other.close()


def keep_writer_busy(shard: Any) -> None:
    shard._writer.submit(threading.Event().wait)


def test_incremental_checkpoints_beside_training_go_on_over_take_overs(
    ray: Any, store: RayStore, tmp_path: Path
) -> None:
    """One shard's process is killed between two checkpoints, and one while it writes."""
    checkpoints, wanted, is_whole = StoreCheckpoints(full_every=4), {}, {}
    for number in range(7):
        step(store, number)
        if number == 3:
            ray.get(store._calls.shards[0].__ray_call__.remote(keep_writer_busy))
        place = tmp_path / f"store-{number:08d}"
        write, last = checkpoints.begin(store, place, store.begin_save), rows(store)
        if number == 3:
            os.kill(process_of(ray, store, 0), signal.SIGKILL)
            with pytest.raises(CheckpointLostError, match="shard 0 died"):
                write()
            checkpoints.forget_base()
            wait_for_standbys(store)
            continue
        write()
        wanted[place], is_whole[number] = last, json.loads((place / "store.json").read_text())["base"] is None
        if number == 1:
            os.kill(process_of(ray, store, 1), signal.SIGKILL)
    assert is_whole == {0: True, 1: False, 2: False, 4: True, 5: False, 6: False}
    for place, last in wanted.items():
        with Store.open(place) as opened:
            np.testing.assert_array_equal(rows(opened), last)
    _, undisturbed_rows = undisturbed(cleared(store), range(7))
    np.testing.assert_array_equal(wanted[place], undisturbed_rows)


def fill_slowly(shard: Any) -> None:
    copied = shard.copy_piece

    def copy_piece(*arguments: int) -> Any:
        time.sleep(0.1)
        return copied(*arguments)

    shard.copy_piece = copy_piece


def test_a_standby_that_counts_is_not_emptied_again(ray: Any, store: RayStore) -> None:
    """The store is restored while a shard fills its standby: that one is wanted twice, and filled once."""
    wanted, last = undisturbed(store, range(2))
    primary = store._calls.shards[1]
    ray.get(primary.__ray_call__.remote(fill_slowly))
    ray.get(primary.run.remote(*packed("lose_standby", (standby_numbers(store)[1],))))
    time.sleep(0.1)
    cleared(store)
    counts = standby_numbers(store)
    seen = [step(store, 0)]
    os.kill(process_of(ray, store, 1), signal.SIGKILL)
    np.testing.assert_array_equal([*seen, step(store, 1)], wanted)  # and nobody is warned of a restart
    np.testing.assert_array_equal(rows(store), last)
    assert store._calls.ask_coordinator("arrangement").promoted[1] == counts[1]


def test_where_both_processes_of_a_shard_die_all_go_back_to_the_checkpoint(
    ray: Any, store: RayStore, tmp_path: Path
) -> None:
    _, last = undisturbed(store, (0, 2))
    step(store, 0)
    store.save(tmp_path / "saved")
    step(store, 1)
    both = [process_of(ray, store, 0, standby) for standby in (False, True)]
    for process in both:
        os.kill(process, signal.SIGKILL)
    with pytest.warns(ShardRestartedWarning, match=r"shard 0 of store 'pairs' died .* 1 updates since then are lost"):
        step(store, 2)
    np.testing.assert_array_equal(rows(store), last)


@pytest.mark.slow
def test_a_shard_that_hangs_is_replaced_by_its_standby(ray: Any, store: RayStore) -> None:
    """Long before its time is up."""
    _, last = undisturbed(store, range(2))
    step(store, 0)
    standby = standby_numbers(store)[1]
    hang(process_of(ray, store, 1))
    began = time.monotonic()
    step(store, 1)
    print(f"the step with a shard that hangs took {time.monotonic() - began:.1f} s")
    assert store._calls.ask_coordinator("arrangement").promoted[1] == standby
    assert time.monotonic() - began < store.timeout / 2
    wait_for_standbys(store)  # the process that hung was ended, and another was filled
    np.testing.assert_array_equal(rows(store), last)


def be_busy(shard: Any, seconds: float) -> None:
    held = threading.Event()

    def hold() -> None:
        with shard._lock:
            held.set()
            time.sleep(seconds)

    threading.Thread(target=hold).start()
    held.wait()


def test_a_shard_that_is_slow_is_waited_for(ray: Any, store: RayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    _, last = undisturbed(store, range(2))
    calls: Any = store._calls
    step(store, 0)
    before, asked = calls.ask_coordinator("arrangement"), []
    monkeypatch.setattr(calls, "silence", 0.05)
    monkeypatch.setattr(calls, "_longest", 0.0)
    monkeypatch.setattr(calls, "pulse_patience", 60.0)
    real = calls._has_pulse
    monkeypatch.setattr(calls, "_has_pulse", lambda number: asked.append(number) or real(number))
    ray.get(calls.shards[1].__ray_call__.remote(be_busy, 1.0))
    step(store, 1)
    assert set(asked) == {1}
    assert calls.ask_coordinator("arrangement") == before
    np.testing.assert_array_equal(rows(store), last)


@pytest.mark.slow
def test_a_checkpoint_is_loaded_though_a_shard_hangs(
    ray: Any, store: RayStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a trainer dies while a shard hangs: nobody has noticed that yet."""
    monkeypatch.setattr(store._calls, "hung_after", 2.0)
    step(store, 0)
    last = rows(store)
    store.save(tmp_path / "saved")
    step(store, 1)
    hang(process_of(ray, store, 1))
    store.load(tmp_path / "saved")
    np.testing.assert_array_equal(rows(store), last)


def test_what_standbys_cannot_follow_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"eviction\.max_bytes goes by the memory of one process"):
        RayStore(SLOTS, Adam(), eviction=Eviction(max_bytes=1 << 20), replicas=2)
    with pytest.raises(ParameterError, match="replicas"):
        RayStore(SLOTS, Adam(), replicas=3)
