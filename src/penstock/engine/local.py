"""Threads of this process: the kernels and polars release the GIL, so threads are enough and nothing is copied."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from typing import Any

from penstock.core.runtime.passes import one_pass
from penstock.core.runtime.threads import thread_pool
from penstock.engine.base import in_order


class LocalEngine:
    """Runs on `num_workers` threads; at most two items a worker are in flight, so memory stays bounded.

    >>> engine = LocalEngine(2)
    >>> list(engine.map(lambda x: x * x, range(4)))
    [0, 1, 4, 9]
    >>> engine.reduce(lambda total, x: (total or 0) + x, lambda a, b: a + b, range(10))
    45
    """

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], on_done: Callable[[int], Any] | None = None
    ) -> Iterator[Any]:
        with one_pass():
            yield from self._mapped(function, items, on_done)

    def _mapped(
        self, function: Callable[[Any], Any], items: Sequence[Any], on_done: Callable[[int], Any] | None
    ) -> Iterator[Any]:
        if self.num_workers == 1 or len(items) <= 1:
            for index, item in enumerate(items):
                result = function(item)
                if on_done:
                    on_done(index)
                yield result
            return
        pool = thread_pool(self.num_workers, "engine")

        def end(_: list[Any]) -> None:
            pool.shutdown(wait=True, cancel_futures=True)

        limit = 2 * self.num_workers
        yield from in_order(lambda item: pool.submit(function, item), Future.result, end, items, limit, on_done)

    def reduce(
        self,
        fold: Callable[..., Any],
        merge: Callable[[Any, Any], Any],
        items: Sequence[Any],
        on_done: Callable[[int], Any] | None = None,
    ) -> Any:
        """Each thread folds whatever item comes next into a state of its own; the states are merged at the end."""
        with one_pass():
            states = self._folded(fold, items, on_done)
        return _merge_all(merge, states)

    def _folded(
        self, fold: Callable[..., Any], items: Sequence[Any], on_done: Callable[[int], Any] | None
    ) -> list[Any]:
        todo = iter(range(len(items)))
        lock, stop = threading.Lock(), threading.Event()

        def work() -> Any:
            state = None
            while not stop.is_set():
                with lock:
                    index = next(todo, None)
                if index is None:
                    break
                state = fold(state, items[index])
                if on_done:
                    with lock:
                        on_done(index)
            return state

        num_threads = max(1, min(self.num_workers, len(items)))
        if num_threads == 1:
            return [state for state in (work(),) if state is not None]
        with thread_pool(num_threads, "engine") as pool:
            futures = [pool.submit(work) for _ in range(num_threads)]
            try:
                for future in as_completed(futures):
                    future.result()
            finally:  # after an error or Ctrl-C the other threads end with the item they hold
                stop.set()
        return [state for future in futures if (state := future.result()) is not None]


def _merge_all(merge: Callable[[Any, Any], Any], states: list[Any]) -> Any:
    if not states:
        return None
    if len(states) > 1 and hasattr(merge, "merge_all"):  # knows a better way than one after another
        return merge.merge_all(states)
    total = states[0]
    for state in states[1:]:
        total = merge(total, state)
    return total
