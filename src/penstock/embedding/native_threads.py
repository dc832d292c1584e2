"""A few threads for short work, asleep in native code: waking fifteen of them takes microseconds and no GIL."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

from penstock.core.runtime.forks import Process
from penstock.core.runtime.threads import start_thread
from penstock.kernels import cpu_native_threads as kernel
from penstock.kernels.cpu_intrinsics import address_of


class NativeThreads:
    """The calling thread and up to `num_threads - 1` helpers, each started when it is first wanted.

    A job is compiled (`kernels.cpu_native_threads.compiled_job`) and draws its tasks from `counter`. One runs at a
    time, which is for the caller to see to. Once closed, and where there are no POSIX threads, the caller does it all.

    >>> from penstock.kernels.cpu_embedding_cache import MOVE, move_job
    >>> threads, nothing = NativeThreads(2), np.zeros((), MOVE)
    >>> nothing["counter"] = address_of(threads.counter)
    >>> threads.run(move_job(), nothing, tasks=2)
    >>> bool(threads.counter[0] > 0)  # someone has looked for a task
    True
    >>> threads.close()
    """

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self.counter = np.zeros(8, np.int64)  # a cache line of its own
        self._helpers: _Helpers | None = None
        self._closed = False

    def run(self, job: Any, argument: np.ndarray, tasks: int) -> None:
        """Call `job` with where `argument` lies, on as many threads as there are tasks; all have returned after."""
        self.counter[0] = 0
        helpers = min(self.num_threads, tasks) - 1
        if helpers > 0 and kernel.AVAILABLE and not self._closed:
            kernel.run(self._awaiting(helpers), helpers, job.address, address_of(argument))
        else:
            job.ctypes(address_of(argument))

    def _awaiting(self, count: int) -> np.ndarray:
        """The state that `count` helpers, or more, watch or are about to."""
        if self._helpers is None or not self._helpers.process.is_this():  # a forked process has none of them
            self._helpers = _Helpers()
            weakref.finalize(self, self._helpers.stop).atexit = False  # asleep, they never meet a dying interpreter
        self._helpers.start(count)
        return self._helpers.state

    def close(self) -> None:
        """Stop the helpers."""
        self._closed = True
        if self._helpers:
            self._helpers.end()


class _Helpers:
    """Threads of one process; apart from `NativeThreads`, so that one that is forgotten can stop them."""

    def __init__(self) -> None:
        self.process, self.state = Process(), kernel.new_state()
        self._threads: list[threading.Thread] = []

    def start(self, count: int) -> None:
        while len(self._threads) < count:
            self._threads.append(start_thread("native", kernel.serve, self.state))

    def stop(self) -> None:
        """Let them return, and wait for nothing: the collector may call this anywhere."""
        if self.process.is_this():  # in a forked process the mutex may be locked for ever
            kernel.stop(self.state)

    def end(self) -> None:
        self.stop()
        for thread in self._threads:
            thread.join()
