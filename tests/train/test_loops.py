"""The loops of a context, and sources that may be late."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from penstock.core.errors import PenstockError
from penstock.train.begun import Later
from penstock.train.loops import Loops
from penstock.train.sources import Interruptible, LateSource
from penstock.train.store_thread import StoreThread


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


class Answer:
    """A call that is answered when somebody says so."""

    def __init__(self, log: list[str], name: str, error: Exception | None = None) -> None:
        self.log, self.name, self.error, self.came = log, name, error, threading.Event()
        log.append(f"begun {name}")

    def is_ready(self) -> bool:
        return self.came.is_set()

    def finish(self) -> str:
        self.came.wait(300)
        self.log.append(f"finished {self.name}")
        if self.error is not None:
            raise self.error
        return self.name


def test_calls_are_begun_before_those_before_them_are_answered_and_finished_in_order() -> None:
    log: list[str] = []
    answers: dict[str, Answer] = {}
    all_begun = threading.Event()

    def begin(name: str) -> Later[str]:
        answers[name] = Answer(log, name)
        if name == "look-up 2":
            all_begun.set()
        return Later(answers[name], lambda finish: str(finish()))

    thread = StoreThread(range(3), lambda n: begin(f"look-up {n}"), lambda batch: begin(f"{batch} again"), ahead=3)
    taken: list[str] = []
    loop = threading.Thread(target=lambda: taken.append(thread.next_batch()))
    loop.start()
    assert all_begun.wait(300)
    for answer in list(answers.values())[::-1]:  # however they come in
        answer.came.set()
    loop.join()
    thread.submit(lambda: Later(answers.setdefault("update", Answer(log, "update")), lambda finish: finish()))
    while "update" not in answers:
        threading.Event().wait(0.001)
    answers["update"].came.set()
    thread.drain()
    calls = ["look-up 0", "look-up 1", "look-up 2", "update"]
    assert taken == ["look-up 0"] and [line for line in log if line.startswith("begun")] == [
        f"begun {c}" for c in calls
    ]
    assert [line for line in log if line.startswith("finished")] == [f"finished {call}" for call in calls]
    assert log.index("begun look-up 2") < log.index("finished look-up 0")
    assert [thread.next_batch(), thread.next_batch(), thread.next_batch()] == ["look-up 1", "look-up 2", None]
    thread.stop()


def test_what_was_begun_does_not_wait_for_a_source_that_was_slow() -> None:
    log: list[str] = []
    more = threading.Event()

    def slow_source() -> Iterator[int]:
        yield 0
        threading.Event().wait(0.02)  # as is noticed
        yield 1
        more.wait(300)
        yield 2

    class Unhurried(Answer):
        """It is there for who waits for it."""

        def finish(self) -> str:
            self.came.set()
            return super().finish()

    def begin(number: int) -> Later[str]:
        return Later(Unhurried(log, str(number)), lambda finish: str(finish()))

    thread = StoreThread(slow_source(), begin, begin, ahead=3)
    assert [thread.next_batch(), thread.next_batch()] == ["0", "1"]  # though the third has not come
    more.set()
    assert thread.next_batch() == "2"
    thread.stop()


def test_a_call_that_fails_ends_the_loop_and_those_behind_it_are_let_go() -> None:
    log: list[str] = []

    def begin(number: int) -> Later[str]:
        answer = Answer(log, str(number), ValueError("no rows") if number == 1 else None)
        answer.came.set()
        return Later(answer, lambda finish: str(finish()))

    thread = StoreThread(range(3), begin, begin, ahead=3)
    with pytest.raises(ValueError, match="no rows"):
        while thread.next_batch() is not None:
            pass
    thread.stop(discard=True)
    assert "finished 1" in log and not thread.is_running


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


def test_an_error_that_an_update_was_answered_with_is_not_raised_again_at_the_end() -> None:
    taken = threading.Event()

    def broken() -> Iterator[int]:
        yield 1
        assert taken.wait(300)
        raise KeyError("column")

    loops = Loops(exit_timeout=300.0)
    thread = thread_over(broken())
    batches = loops.run(thread, training=True)
    assert next(batches) == 1
    taken.set()
    with thread._changed:  # the thread is ahead of the loop, and has met the error already
        assert thread._changed.wait_for(lambda: thread._error is not None, timeout=300)
    with pytest.raises(KeyError, match="column"):
        thread.submit(lambda: None)
    batches.close()  # type: ignore[attr-defined]
    loops.close(failed=False)  # whoever caught it goes on


def test_closing_ends_every_loop_and_keeps_what_was_trained() -> None:
    loops, done = Loops(exit_timeout=300.0), []
    training, evaluating = loops.run(thread_over([1, 2]), True), loops.run(thread_over(feed := Feed(7)), False)
    next(training), next(evaluating)
    loops.training.submit(lambda: done.append("updated"))  # type: ignore[union-attr]
    loops.close(failed=False)
    assert done == ["updated"] and feed.interrupted
