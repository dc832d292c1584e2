"""The loops of a context, and sources that may be late."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from penstock.core.errors import PenstockError
from penstock.train.loops import Loops
from penstock.train.store_thread import Interruptible, LateSource, StoreThread


class Feed:
    """A source of one's own: what has been put so far, and an end when it is interrupted."""

    def __init__(self, *items: int) -> None:
        self._items: queue.Queue[int | None] = queue.Queue()
        self.interrupted = False
        for item in items:
            self._items.put(item)

    def __iter__(self) -> Iterator[int]:
        while (item := self._items.get(timeout=300)) is not None:
            yield item

    def available(self, seconds: float) -> bool:
        return not self._items.empty()

    def interrupt(self) -> None:
        self.interrupted = True
        self._items.put(None)


def thread_over(source: object) -> StoreThread:
    return StoreThread(source, lambda item: item, lambda item: item, ahead=3)  # type: ignore[arg-type]


def test_a_source_says_by_itself_that_it_may_be_late() -> None:
    assert isinstance(Feed(), LateSource) and isinstance(Feed(), Interruptible)
    assert not isinstance([], LateSource) and not isinstance([], Interruptible)


def test_updates_do_not_wait_for_a_late_batch_and_leaving_interrupts_the_source() -> None:
    loops, feed = Loops(exit_timeout=300.0), Feed(1)
    batches = loops.run(thread_over(feed), training=True)
    assert next(batches) == 1
    updated = threading.Event()
    loops.training.submit(updated.set)  # type: ignore[union-attr]
    loops.drain()
    assert updated.is_set() and not feed.interrupted
    batches.close()  # type: ignore[attr-defined]
    assert feed.interrupted and loops.training is None


def test_only_one_loop_trains_and_any_number_evaluate() -> None:
    loops = Loops(exit_timeout=300.0)
    training = loops.run(thread_over([1, 2]), training=True)
    next(training)
    with pytest.raises(PenstockError, match="under way already"):
        next(loops.run(thread_over([3]), training=True))
    assert list(loops.run(thread_over([4, 5]), training=False)) == [4, 5]
    assert list(training) == [2]


def test_an_update_that_failed_behind_a_loop_that_was_left_is_raised_at_the_end() -> None:
    def fail() -> None:
        raise ValueError("the store is full")

    loops, begun = Loops(exit_timeout=300.0), threading.Event()
    batches = loops.run(thread_over([1, 2]), training=True)
    next(batches)
    loops.training.submit(lambda: begun.wait(300.0) and fail())  # type: ignore[union-attr]
    begun.set()
    batches.close()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="the store is full"):
        loops.close(failed=False)
    loops.close(failed=False)  # told once


def test_closing_ends_every_loop_and_keeps_what_was_trained() -> None:
    loops, done = Loops(exit_timeout=300.0), []
    training, evaluating = loops.run(thread_over([1, 2]), True), loops.run(thread_over(feed := Feed(7)), False)
    next(training), next(evaluating)
    loops.training.submit(lambda: done.append("updated"))  # type: ignore[union-attr]
    loops.close(failed=False)
    assert done == ["updated"] and feed.interrupted
