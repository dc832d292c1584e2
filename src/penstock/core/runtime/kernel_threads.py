"""A few threads that run the same kernel at once, each drawing tasks from one counter until none is left."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from penstock.core.runtime.threads import LastingPool, thread_count

_SMALL = 4096  # positions below which waking other threads costs more than it saves


class KernelThreads:
    """The calling thread and `num_threads - 1` helpers. Kernels release the GIL and draw from `counter`.

    >>> threads, seen = KernelThreads(2, "example"), []
    >>> threads.run(lambda: seen.append(1), tasks=2, positions=10_000)
    >>> len(seen)
    2
    >>> threads.close()
    """

    def __init__(self, num_threads: int | None, name: str) -> None:
        self.num_threads = thread_count(num_threads)
        self.counter = np.zeros(8, np.int64)  # a cache line of its own
        self._pool = LastingPool(self.num_threads - 1, name) if self.num_threads > 1 else None

    def run(self, function: Callable[[], None], tasks: int, positions: int) -> None:
        """Run `function` on as many threads as there are tasks; errors of any are raised here."""
        self.counter[0] = 0
        helpers = min(self.num_threads, tasks) - 1 if positions >= _SMALL else 0
        futures = [self._pool.submit(function) for _ in range(helpers)] if self._pool else []
        try:
            function()
        finally:
            for future in futures:
                future.result()

    def close(self) -> None:
        """Stop the threads."""
        if self._pool:
            self._pool.close()


def in_stretches(work: Callable[[int, int], Any], count: int, num_threads: int, at_least: int) -> list[Any]:
    """`work(begin, end)` over stretches of `range(count)`, on threads of their own; what it returned.

    Args:
        work: what releases the GIL.
        count: rows.
        num_threads: at most.
        at_least: rows of a thread; fewer are not worth waking it.

    >>> in_stretches(lambda begin, end: end - begin, 10, num_threads=2, at_least=4)
    [5, 5]
    """
    threads = min(num_threads, -(-count // at_least))
    if threads <= 1:
        return [work(0, count)]
    cuts = [count * i // threads for i in range(threads + 1)]
    return _stretch_pool(threads).map(work, cuts[:-1], cuts[1:])


@cache
def _stretch_pool(num_threads: int) -> LastingPool:
    return LastingPool(num_threads, "stretches")
