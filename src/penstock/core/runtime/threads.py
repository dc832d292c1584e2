"""Named threads and pools, and how many of them there are by default."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from penstock.core.runtime.forks import Process

P = ParamSpec("P")
T = TypeVar("T")
PREFIX = "penstock-"

ThreadPool = ThreadPoolExecutor


def available_cores() -> int:
    """The cores this process may use, which containers and schedulers often limit."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


def thread_count(asked: int | None, *, most: int | None = None, spare: int = 0) -> int:
    """The number of threads to use: as asked, or by default one a core.

    Args:
        asked: what a user said, or None.
        most: more than this do not help.
        spare: cores to leave to others.

    >>> thread_count(3), thread_count(None, most=1), thread_count(None, spare=10**6)
    (3, 1, 1)
    """
    if asked:
        return asked
    cores = available_cores() - spare
    return max(1, cores if most is None else min(most, cores))


def new_thread(
    name: str, target: Callable[..., Any], *arguments: Any, keeps_process_alive: bool = False
) -> threading.Thread:
    """A thread that is still to be started; one that keeps the process alive is waited for at its end.

    >>> new_thread("example", print).name
    'penstock-example'
    """
    return threading.Thread(target=target, args=arguments, name=PREFIX + name, daemon=not keeps_process_alive)


def start_thread(name: str, target: Callable[..., Any], *arguments: Any) -> threading.Thread:
    """A thread that runs already."""
    thread = new_thread(name, target, *arguments)
    thread.start()
    return thread


def thread_pool(num_threads: int, name: str) -> ThreadPool:
    """A pool of this process, for work that ends before the caller does; `LastingPool` is for what stays."""
    return ThreadPoolExecutor(num_threads, PREFIX + name)


class LastingPool:
    """A pool that is kept: begun when it is first used, and begun anew in a forked child.

    >>> pool = LastingPool(2, "example")
    >>> pool.submit(sum, [1, 2]).result()
    3
    >>> pool.close()
    """

    def __init__(self, num_threads: int, name: str) -> None:
        self.num_threads, self._name = num_threads, name
        self._process = Process()
        self._pool: ThreadPool | None = None

    def submit(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Run the function on one of the threads."""
        return self._threads().submit(function, *arguments, **named)

    def map(self, function: Callable[..., T], *arguments: Any) -> list[T]:
        """The results for each item, in order."""
        return list(self._threads().map(function, *arguments))

    def _threads(self) -> ThreadPool:
        if self._pool is None or not self._process.is_this():
            self._process, self._pool = Process(), thread_pool(self.num_threads, self._name)
        return self._pool

    def close(self) -> None:
        """Stop the threads, once they have done what was submitted."""
        if self._pool is not None and self._process.is_this():
            self._pool.shutdown(wait=True)
        self._pool = None
