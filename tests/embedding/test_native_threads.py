"""Rows moved by native threads: the same rows as by one thread, without the GIL, whatever becomes of the process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

from penstock.embedding import Adagrad, SlotConfig, Store
from penstock.embedding.native_threads import NativeThreads
from penstock.embedding.numbered_rows import NumberedRows
from penstock.kernels import cpu_native_threads as kernel
from penstock.kernels.cpu_intrinsics import address_of
from penstock.kernels.cpu_vector import fetch_add

SIZES = {"user": 50_000, "item": 7, "ad": 30_000}
TOTAL = sum(SIZES.values())
posix = pytest.mark.skipif(not kernel.AVAILABLE, reason="needs POSIX threads")


def mark(address: int) -> None:
    """A job: the words `(next task, number of tasks, 0, 0, …)` get one more wherever a task was done."""
    words = numba.carray(kernel.pointer_to(address), 2, np.int64)
    done = numba.carray(kernel.pointer_to(address + np.uint64(16)), words[1], np.int64)
    while True:
        task = fetch_add(address, 1)
        if task >= words[1]:
            return
        done[task] += 1


def meet(address: int) -> None:
    """A job that returns once as many threads are in it as the second word says; the third counts who gave up."""
    words = numba.carray(kernel.pointer_to(address), 3, np.int64)
    fetch_add(address, 1)
    for _ in range(300_000_000):  # several seconds
        if fetch_add(address, 0) >= words[1]:
            return
    fetch_add(address + np.uint64(16), 1)


@pytest.fixture(scope="module")
def marking():
    return kernel.compiled_job(mark)


@pytest.fixture(scope="module")
def meeting():
    return kernel.compiled_job(meet)


@pytest.fixture
def threads() -> Iterator[NativeThreads]:
    threads = NativeThreads(2)
    yield threads
    threads.close()


def tasks_done(threads: NativeThreads, marking, tasks: int) -> list[int]:
    words = np.zeros(2 + tasks, np.int64)
    words[1] = tasks
    threads.run(marking, words, tasks)
    return words[2:].tolist()


def helpers() -> int:
    return sum(thread.name == "penstock-native" for thread in threading.enumerate())


def filled(num_threads: int) -> tuple[NumberedRows, dict[str, np.ndarray]]:
    """Rows of a store, and what is in them."""
    store = Store([SlotConfig(name, 5) for name in SIZES], Adagrad(lr=0.1), num_threads=num_threads)
    rows, rng = NumberedRows(store, SIZES), np.random.default_rng(3)
    columns = {name: rng.random((TOTAL, 5), np.float32) for name in ("weight", "state")}
    rows.write_all(columns)
    return rows, columns


def check_moves(rows: NumberedRows, columns: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    """Random numbers of rows are read and written as NumPy does it."""
    numbers = rows.known()
    for count in [0, 1, 2047, 2048, 4096, *rng.integers(0, 40_000, 15).tolist()]:
        keys = np.sort(rng.choice(TOTAL, count, replace=False))
        held = {name: np.full((count, 5), np.nan, np.float32) for name in columns}
        rows.read(keys, numbers[keys], held)
        for name, column in columns.items():
            np.testing.assert_array_equal(held[name], column[keys])
            column[keys] = held[name] = rng.random((count, 5), np.float32)
        rows.write(keys, numbers[keys], held)
    whole = {name: np.empty_like(column) for name, column in columns.items()}
    rows.read_all(whole)
    for name, column in columns.items():
        np.testing.assert_array_equal(whole[name], column)


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_rows_move_as_on_one_thread(num_threads: int) -> None:
    rows, columns = filled(num_threads)
    check_moves(rows, columns, np.random.default_rng(num_threads))
    rows.store.close()


def test_several_teams_at_once() -> None:
    stores = [filled(3) for _ in range(4)]
    with ThreadPoolExecutor(len(stores)) as pool:
        list(pool.map(lambda i: check_moves(*stores[i], np.random.default_rng(i)), range(len(stores))))
    for rows, _ in stores:
        rows.store.close()


def test_every_task_is_done_once(threads: NativeThreads, marking) -> None:
    for tasks in [*range(1, 50), 5000]:
        assert tasks_done(threads, marking, tasks) == [1] * tasks


@posix
def test_helpers_need_no_gil(threads: NativeThreads, meeting) -> None:
    words = np.array([0, 2, 0])
    threads.run(meeting, words, 2)
    assert words.tolist() == [2, 2, 0]  # the helper has started
    run_with_gil = numba.njit(kernel.run.py_func)
    for _ in range(200):
        words[0] = 0
        run_with_gil(threads._awaiting(1), 1, meeting.address, address_of(words))
        assert words.tolist() == [2, 2, 0]


@posix
def test_who_comes_late_is_neither_waited_for_nor_let_in(marking) -> None:
    state, words = kernel.new_state(), np.array([0, 3, 0, 0, 0])
    kernel.run(state, 7, marking.address, address_of(words))
    assert words.tolist() == [4, 3, 1, 1, 1]
    late = threading.Thread(target=kernel.serve, args=(state,))
    late.start()
    late.join(0.2)
    assert late.is_alive() and words[0] == 4  # the job's memory is its caller's again
    kernel.stop(state)
    late.join(300)
    assert not late.is_alive()


@posix
def test_helpers_start_when_wanted_and_end_with_the_team(marking) -> None:
    before, threads = helpers(), NativeThreads(4)
    tasks_done(threads, marking, 1)
    assert helpers() == before
    tasks_done(threads, marking, 2)
    assert helpers() == before + 1
    tasks_done(threads, marking, 100)
    assert helpers() == before + 3
    threads.close()
    threads.close()
    assert helpers() == before
    assert tasks_done(threads, marking, 100) == [1] * 100  # by the caller
    assert helpers() == before


@posix
def test_a_forgotten_team_ends_its_helpers(marking) -> None:
    before, threads = helpers(), NativeThreads(3)
    tasks_done(threads, marking, 9)
    assert helpers() == before + 2
    del threads
    gc.collect()
    until = time.monotonic() + 300
    while helpers() > before:  # nobody waits for them: the collector may run while threads can neither start nor end
        assert time.monotonic() < until
        time.sleep(0.001)


def test_without_posix_threads_the_caller_does_it_all(
    monkeypatch: pytest.MonkeyPatch, threads: NativeThreads, marking
) -> None:
    monkeypatch.setattr(kernel, "AVAILABLE", False)
    before = helpers()
    assert tasks_done(threads, marking, 100) == [1] * 100
    assert helpers() == before


@posix
def test_a_closed_store_still_moves_rows() -> None:
    rows, columns = filled(2)
    rows.store.close()
    before = helpers()
    keys = np.arange(20_000)
    held = {name: np.empty((20_000, 5), np.float32) for name in columns}
    rows.read(keys, rows.known()[keys], held)
    np.testing.assert_array_equal(held["weight"], columns["weight"][:20_000])
    assert helpers() == before


SCRIPT = """
import os, sys, threading, time
import numpy as np
from penstock.embedding import SGD, SlotConfig, Store
from penstock.embedding.numbered_rows import NumberedRows

store = Store([SlotConfig("user", 4)], SGD(lr=0.1), num_threads=4)
rows = NumberedRows(store, {"user": 50_000})
keys = np.arange(50_000)
weights = np.arange(200_000, dtype=np.float32).reshape(-1, 4)
rows.write_all({"weight": weights})

def check():
    held = np.zeros_like(weights)
    rows.read(keys, keys, {"weight": held})
    np.testing.assert_array_equal(held, weights)
    assert sum(thread.name == "penstock-native" for thread in threading.enumerate()) == 3

for _ in range(5):
    check()
"""


def outcome(script: str) -> str:
    """What a process prints that ends by itself."""
    done = subprocess.run([sys.executable, "-c", SCRIPT + script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


@posix
@pytest.mark.slow  # the process that forks ends with one, too
def test_a_process_ends_with_a_live_team() -> None:
    assert outcome("print('over')") == "over\n"


@posix
def test_a_process_ends_while_rows_move() -> None:
    forever = """
def move():
    while True:
        held = np.zeros_like(weights)
        rows.read(keys, keys, {"weight": held})

threading.Thread(target=move, daemon=True).start()
time.sleep(0.2)
print("over")
"""
    assert outcome(forever) == "over\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_helpers_of_its_own() -> None:
    fork = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of every fork with threads

for _ in range(3):
    child = os.fork()
    if not child:
        for _ in range(2):
            check()
        sys.exit(7)  # not os._exit: finalizers of the parent's threads run here, too
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    check()
unused = os.fork()
if not unused:
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(unused, 0)[1]) == 7
print("fine")
"""
    assert outcome(fork) == "fine\n"


FORKED = """
import os, signal, warnings
import numpy as np
import torch
from penstock.embedding import SGD, SlotConfig, Store
from penstock.embedding import FusedEmbeddings

warnings.simplefilter("ignore", DeprecationWarning)
torch.set_num_threads(4)
store = Store([SlotConfig("user", 4), SlotConfig("item", 4)], SGD(lr=0.1), num_threads=4)
tables, ids = FusedEmbeddings([50_000, 50_000], 4), np.arange(50_000)

def looked_up(train=False):
    found = np.array(store.lookup({"user": ids, "item": ids}, train=train).packed)
    with torch.no_grad():
        return found, tables(torch.from_numpy(np.stack([ids, ids], 1))).numpy()

before = looked_up(train=True)
child = os.fork()
if not child:
    signal.alarm(600)  # rather than hang, with nobody left to wait for it
    for mine, theirs in zip(looked_up(), before):
        np.testing.assert_array_equal(mine, theirs)
    store.close()
    os._exit(7)  # a forked process that has torch's threads crashes when it ends in the usual way
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
store.close()
print("fine")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_looks_rows_up() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=600)
    assert done.stdout == "fine\n", done.stderr
