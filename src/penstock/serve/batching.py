"""Requests that arrive together are predicted together: one call of the model for many of them."""

from __future__ import annotations

import asyncio
import logging
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.errors import PenstockError
from penstock.core.runtime.threads import new_thread
from penstock.serve.checking import RowError
from penstock.serve.waiting import Portion, Request, RequestQueue, Rows

log = logging.getLogger("penstock.serve")


class QueueFullError(PenstockError):
    """More rows wait than the queue may hold; the client should come again later."""


@dataclass(slots=True)
class _Batch:
    portions: list[Portion]
    seconds: float = 0.0  # that it took

    @property
    def num_rows(self) -> int:
        return sum(map(len, self.portions))


class Batcher:
    """Collects requests on an event loop and predicts them on one thread, a batch at a time.

    When nothing is under way, a request is predicted at once. Whatever comes in while a batch is being predicted is the
    next batch. It waits for more, `max_wait` seconds at most, while another request is already being read, and after a
    batch of several requests for about half the time that one took, until as many are there again: clients that were
    answered together ask again together.
    Requests whose client has hung up are dropped before they are predicted.

    Args:
        predict: rows to probabilities; called on the batcher's own thread, never twice at once.
        max_batch: rows at which a batch is closed. Short requests go first, long ones in portions between them.
        max_wait: seconds that a batch may wait.
        max_queue: rows that may wait; beyond that `submit` raises `QueueFullError`. To a short request, only rows of
            others that are short count.
        observe: called on the event loop with the number of rows of each batch that was predicted.

    >>> async def main():
    ...     batcher = Batcher(lambda rows: np.array([row["x"] / 2 for row in rows]))
    ...     batcher.start()
    ...     answers = await asyncio.gather(batcher.submit([{"x": 1}]), batcher.submit([{"x": 2}, {"x": 3}]))
    ...     await batcher.stop()
    ...     return [answer.tolist() for answer in answers]
    >>> asyncio.run(main())
    [[0.5], [1.0, 1.5]]
    """

    def __init__(
        self,
        predict: Callable[[Rows], np.ndarray],
        *,
        max_batch: int = 128,
        max_wait: float = 0.002,
        max_queue: int = 8192,
        observe: Callable[[int], Any] = lambda rows: None,
    ) -> None:
        self.predict, self.max_batch, self.max_wait, self.max_queue = predict, max_batch, max_wait, max_queue
        self._observe = observe
        self._waiting = RequestQueue(max_batch)
        self._arriving: dict[int, float] = {}  # requests being read, by a number of their own: when they began
        self._arrivals = 0
        self._scheduled = False
        self._under_way = 0  # batches at the thread
        self._together = 1  # requests of clients that return: in the last batch, or beside it
        self._patience = 0.0  # until when it is worth waiting for them
        self._timer: asyncio.TimerHandle | None = None
        self._work: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._thread = new_thread("predict", self._run)
        self._idle = asyncio.Event()

    @property
    def queued_rows(self) -> int:
        """Rows that no batch has taken yet."""
        return self._waiting.num_rows

    @property
    def dropped(self) -> int:
        """Requests whose client had gone before they were predicted."""
        return self._waiting.dropped

    # On the event loop.

    def start(self) -> None:
        """Begin; called on the event loop that requests come from."""
        self._loop = asyncio.get_running_loop()
        self._idle.set()
        self._thread.start()

    async def stop(self) -> None:
        """Predict what is waiting, then end the thread."""
        await self._idle.wait()
        self._work.put(None)
        await asyncio.to_thread(self._thread.join)

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """Around the reading of a request: a batch may wait for it."""
        self._arrivals += 1
        number = self._arrivals
        self._arriving[number] = self._loop.time()
        try:
            yield
        finally:
            del self._arriving[number]
            if self._timer is not None:  # whoever waited for it need not wait any longer
                self._schedule()

    def submit(
        self, rows: Rows, is_gone: Callable[[], bool] = lambda: False, returns: bool = True
    ) -> asyncio.Future[np.ndarray]:
        """The probabilities of these rows, once their batch is done.

        Args:
            rows: as `predict` takes them.
            is_gone: whether nobody waits any more.
            returns: whether it is worth waiting for who asks to ask again.
        """
        waiting = self._waiting
        queued = waiting.num_short_rows if waiting.is_short(rows) else waiting.num_rows
        if queued and queued + len(rows) > self.max_queue:
            raise QueueFullError(f"{queued} rows are waiting; try again in a moment")
        request = Request(rows, self._loop.create_future(), is_gone, self._loop.time(), returns)
        waiting.add(request)
        self._idle.clear()
        if self._may_dispatch():
            self._schedule()
        return request.answer

    def _may_dispatch(self) -> bool:
        # A batch that is full lies ready beside the one under way: waiting could not make it larger.
        return self._under_way == 0 or (self._under_way == 1 and self._waiting.fill_batches(self._loop.time()))

    def _schedule(self) -> None:
        # After the callbacks that are ready now: requests that came in the same moment are in the same batch.
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._scheduled = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            if not self._under_way:
                self._idle.set()
            return
        if not self._may_dispatch():
            return
        if (delay := self._worth_waiting()) > 0:
            self._timer = self._loop.call_later(delay, self._dispatch)
            return
        if portions := self._waiting.take(self._loop.time()):
            self._under_way += 1
            self._work.put(_Batch(portions))
        if not portions or self._may_dispatch():
            self._schedule()

    def _worth_waiting(self) -> float:
        """Seconds that the next batch should wait for requests that have begun to arrive, or are about to."""
        if self.max_wait <= 0 or self.queued_rows >= self.max_batch:
            return 0.0
        until = self._patience if self._waiting.num_returning < self._together else 0.0
        if self._arriving:
            newest = next(reversed(self._arriving.values()))  # one that stalls is waited for once, not by every batch
            until = max(until, min(self._waiting.first.since, newest) + self.max_wait)
        return until - self._loop.time()

    def _finish(self, batch: _Batch) -> None:
        self._under_way -= 1
        self._waiting.took(batch.portions, batch.seconds)
        self._together = sum(portion.request.returns for portion in batch.portions) + self._waiting.num_returning
        # Longer than a share of what a batch takes, waiting would cost more than it can save.
        self._patience = self._loop.time() + min(self.max_wait, batch.seconds / 2)
        self._observe(batch.num_rows)
        for portion in batch.portions:
            self._answered(portion)
        self._schedule()

    def _answered(self, portion: Portion) -> None:
        """Give a request its answer; one that has rows left waits for its next turn behind all others."""
        request, outcome = portion.request, portion.outcome
        if isinstance(outcome, np.ndarray):
            request.found.append(outcome)
            if request.num_left and not request.answer.done():
                self._waiting.go_on(request)
                return
        self._waiting.end(request)
        if request.answer.done():
            return
        if isinstance(outcome, Exception):
            request.answer.set_exception(outcome)
        else:
            request.answer.set_result(request.found[0] if len(request.found) == 1 else np.concatenate(request.found))

    # On the batcher's thread.

    def _run(self) -> None:
        while (batch := self._work.get()) is not None:
            began = time.perf_counter()
            self._answer(batch.portions)
            batch.seconds = time.perf_counter() - began
            self._loop.call_soon_threadsafe(self._finish, batch)

    def _answer(self, portions: list[Portion]) -> None:
        try:
            scores = self._checked([row for portion in portions for row in portion.rows])
        except Exception as error:
            if len(portions) > 1:  # one bad request must not spoil the others
                for portion in portions:
                    self._answer([portion])
            else:
                found = self._explained(portions[0].rows, error)
                portions[0].outcome = found.behind(portions[0].begin) if isinstance(found, RowError) else found
            return
        start = 0
        for portion in portions:
            size = portion.end - portion.begin
            portion.outcome = scores[start : start + size]
            start += size

    def _checked(self, rows: Rows) -> np.ndarray:
        scores = self.predict(rows)
        if not np.isfinite(scores).all():
            row = int(np.flatnonzero(~np.isfinite(scores))[0])
            raise RowError("the model's answer is not a number; are these values in the range it was trained on?", row)
        return scores

    def _explained(self, rows: Rows, error: Exception) -> Exception:
        """The error with the row that it comes from."""
        if not isinstance(error, PenstockError):
            log.error("prediction failed", exc_info=error)
            return error
        if isinstance(error, RowError) and error.row is not None:
            return error
        low, high = 0, len(rows)  # the first that fails is among these; halved, since others are waiting
        while high - low > 1:
            middle = (low + high) // 2
            if self._error_of(rows[low:middle]) is not None:
                high = middle
            else:
                low = middle
        alone = self._error_of(rows[low:high])
        return RowError(str(error)) if alone is None else RowError(str(alone), low)

    def _error_of(self, rows: Rows) -> PenstockError | None:
        try:
            self.predict(rows)
        except PenstockError as error:
            return error
        return None
