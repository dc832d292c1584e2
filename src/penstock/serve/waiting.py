"""Requests that wait to be predicted: short ones go first, long ones in portions between them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.core.errors import PenstockError

Rows = list[dict[str, Any]]
_SHORT_ROWS = 16  # up to which a request is short
_LEAST_ROWS = 16  # of a portion: a prediction costs as much before it comes to its first row
_MIXED_SECONDS = 10.0  # behind a short request beside a long one: for so long there may be another
_PORTION_BATCHES = 2.0  # of short requests: the time that a portion may take beside them
_SHORT_SECONDS = 0.001  # that a batch of short ones takes, until one was seen


class ClientGoneError(PenstockError):
    """Who asked has hung up before the answer was begun."""


@dataclass(slots=True)
class Request:
    """Rows that somebody wants to know about.

    Args:
        rows: of them.
        answer: set when all are predicted.
        is_gone: whether nobody waits for the answer any more.
        since: when it came, by the event loop's clock.
        returns: whether who asks has asked before, and will again.
    """

    rows: Rows
    answer: asyncio.Future[np.ndarray]
    is_gone: Callable[[], bool]
    since: float
    returns: bool = True
    begin: int = 0  # of its rows, the first that no batch has taken yet
    found: list[np.ndarray] = field(default_factory=list)  # of the rows before

    @property
    def num_left(self) -> int:
        """Rows that no batch has taken yet."""
        return len(self.rows) - self.begin


@dataclass(slots=True)
class Portion:
    """What a batch takes of a request: all of it, or some rows of a long one."""

    request: Request
    begin: int
    end: int
    outcome: np.ndarray | Exception | None = None

    @property
    def rows(self) -> Rows:
        """Of the request's rows, these."""
        return self.request.rows[self.begin : self.end]

    def __len__(self) -> int:
        return self.end - self.begin


class RequestQueue:
    """Who waits, and what the next batch takes.

    A batch is filled with short requests. A long one goes where none waits; behind a batch of short ones alone, some of
    its rows join the next. Where there are both kinds, these are as many as take about the time of two batches of short
    ones, so that who asks for one row does not wait for a thousand.

    Args:
        max_batch: rows of a batch.

    >>> waiting, loop = RequestQueue(max_batch=128), asyncio.new_event_loop()
    >>> for count in (1000, 2, 3):
    ...     waiting.add(Request([{}] * count, loop.create_future(), lambda: False, since=0.0))
    >>> [len(portion) for portion in waiting.take(now=0.0)]
    [2, 3]
    >>> [len(portion) for portion in waiting.take(now=0.0)], waiting.num_rows
    ([128], 872)
    >>> loop.close()
    """

    def __init__(self, max_batch: int) -> None:
        self.max_batch = max_batch
        self.num_rows = self.num_short_rows = 0
        self.num_returning = 0  # requests whose client will ask again
        self.dropped = 0  # requests whose client had gone
        self._short: deque[Request] = deque()
        self._long: deque[Request] = deque()
        self._portion_rows, self._short_seconds = max_batch, _SHORT_SECONDS
        self._num_long = 0  # not all of whose rows are predicted
        self._last_mixed = -float("inf")
        self._is_long_due = False  # a batch of short ones alone has gone before it

    def __len__(self) -> int:
        return len(self._short) + len(self._long)

    @property
    def first(self) -> Request:
        """Who is next."""
        return (self._short or self._long)[0]

    def is_short(self, rows: Rows) -> bool:
        """Whether these go before others."""
        return len(rows) <= min(_SHORT_ROWS, self.max_batch)

    def add(self, request: Request) -> None:
        """Let a request wait, behind its like."""
        self._count(request, request.num_left)
        if not self.is_short(request.rows):
            self._num_long += 1
        elif self._num_long:
            self._last_mixed = request.since
        self.go_on(request)

    def go_on(self, request: Request) -> None:
        """Let what is left of a request wait for its next turn; it has counted all the time."""
        self.num_returning += request.returns
        (self._short if self.is_short(request.rows) else self._long).append(request)

    def end(self, request: Request) -> None:
        """Forget a request, and what is left of it."""
        self._count(request, -request.num_left)
        self._num_long -= not self.is_short(request.rows)

    def fill_batches(self, now: float) -> bool:
        """Whether the next batch could become neither larger nor better by waiting."""
        if self._is_mixed(now):  # a portion of a long one does not lie ready before a short one
            return self.num_short_rows >= self.max_batch
        return self.num_rows >= self.max_batch and bool(self._long) and self._long[0].num_left <= self.max_batch

    def take(self, now: float) -> list[Portion]:
        """What the next batch takes; those whose client has gone are dropped."""
        portions: list[Portion] = []
        room = self.max_batch
        while self._short and self._short[0].num_left <= room:
            room -= self._take(self._short, room, portions)
        joins = not portions or (self._is_long_due and room > 0)
        self._is_long_due = bool(self._long) and not joins
        if joins and self._long:
            is_mixed = self._is_mixed(now)
            room -= self._take(self._long, min(room, self._portion_rows) if is_mixed else room, portions)
            while not is_mixed and self._long and self._long[0].num_left <= room:
                room -= self._take(self._long, room, portions)
        return portions

    def took(self, portions: list[Portion], seconds: float) -> None:
        """Learn from what a batch took how many rows of a long request are as quick as short ones."""
        if all(self.is_short(portion.request.rows) for portion in portions):
            self._short_seconds += (seconds - self._short_seconds) / 8
        elif len(portions) == 1:
            wanted = _PORTION_BATCHES * self._short_seconds
            fitting = int(len(portions[0]) * min(2.0, wanted / max(seconds, 1e-9)))
            self._portion_rows = max(min(_LEAST_ROWS, self.max_batch), min(fitting, self.max_batch))

    def _is_mixed(self, now: float) -> bool:
        return bool(self._short) or now - self._last_mixed < _MIXED_SECONDS

    def _take(self, queue: deque[Request], most: int, portions: list[Portion]) -> int:
        """Take rows of who is first in a queue; how many."""
        request = queue.popleft()
        self.num_returning -= request.returns
        if request.answer.done() or request.is_gone():
            self.end(request)
            self.dropped += 1
            if not request.answer.done():
                request.answer.set_exception(ClientGoneError("the client has hung up"))
            return 0
        taken = min(request.num_left, most)
        self._count(request, -taken)
        portions.append(Portion(request, request.begin, request.begin + taken))
        request.begin += taken
        return taken

    def _count(self, request: Request, rows: int) -> None:
        self.num_rows += rows
        if self.is_short(request.rows):
            self.num_short_rows += rows
