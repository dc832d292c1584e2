"""Threads and pools: named, counted in one place, and begun anew in a forked child."""

from __future__ import annotations

import os
import threading
import time

import pytest

from penstock.core.runtime.kernel_threads import KernelThreads
from penstock.core.runtime.threads import LastingPool, available_cores, new_thread, start_thread, thread_count


def test_threads_have_names_and_do_not_keep_the_process() -> None:
    seen: list[str] = []
    start_thread("one", lambda: seen.append(threading.current_thread().name)).join()
    assert seen == ["penstock-one"]
    assert new_thread("two", print).daemon
    assert not new_thread("three", print, keeps_process_alive=True).daemon


def test_a_default_is_one_thread_a_core() -> None:
    assert thread_count(None) == available_cores()
    assert thread_count(100, most=2) == 100  # what a user says is what he gets
    assert thread_count(None, most=1) == 1


def test_an_error_of_a_helper_is_raised() -> None:
    threads, main = KernelThreads(2, "test"), threading.current_thread()

    def fail() -> None:
        if threading.current_thread() is not main:
            raise ValueError("in a helper")
        time.sleep(0.05)  # until the helper has come

    with pytest.raises(ValueError, match="in a helper"):
        threads.run(fail, tasks=2, positions=10_000)
    threads.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    pool = LastingPool(2, "test")
    assert pool.submit(os.getpid).result() == os.getpid()
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if pool.submit(os.getpid).result(timeout=300) == os.getpid() else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pool.close()
