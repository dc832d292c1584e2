"""Short requests go first: whatever takes longer waits for its turn, a moment at a time.

The service has one event loop and Python one lock, so whoever is parsed or answered keeps everybody else waiting. A
request of a few rows is answered in a millisecond. A body of megabytes, a read that brings thousands of pieces of one,
or a page takes many; its work is cut into moments, and those are taken while no short request is under way. While there
is one, a moment comes up now and then all the same, so that nobody waits for ever. Who has just connected, and has not
been answered yet, lets those pass who have, and goes before all that is long.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from penstock.core.extras import require

require("uvicorn", "serve")

from uvicorn.protocols.http.flow_control import FlowControl  # noqa: E402

PORTION = 2048  # bytes that the parser is given at once, where it may have much to say about them: 0.3 ms at most
SHORT_READ = 20_000  # bytes of a read that is begun at once: a request of some rows, with its head
_TURN_SECONDS = 0.00025
_BEGIN_SECONDS = 0.0001  # for which a short read is parsed at once; a plain body is done by then
_WAIT_SECONDS = 0.002  # after which a turn comes although short requests are under way: a tenth of the time is theirs
_TICK_SECONDS = 0.001  # of uvloop's timers: less than half of it is not waited for at all
_EXPECT_SECONDS = 0.002  # from the first byte of a request until it must be there, to go first


_Found = TypeVar("_Found")


class _Work(Protocol):
    def work(self) -> bool:
        """Work for a moment; whether nothing is left."""


class Turns:
    """Who is under way, and who waits for a turn.

    All of it is called on the event loop.

    >>> turns = Turns()
    >>> with turns.short():
    ...     turns.is_clear()
    False
    >>> turns.is_clear()
    True
    """

    def __init__(self) -> None:
        self._waiting: deque[_Work] = deque()
        self._newcomers: deque[_Work] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when a turn comes, whoever is under way
        self._num_short = self._num_returning = 0
        self._expected = 0.0
        self._newcomer_is_next = True

    # Short requests.

    @contextmanager
    def short(self, returns: bool = True) -> Iterator[None]:
        """Around a short request that is all there, until it is answered; `returns`: its client has asked before."""
        self._num_short += 1
        self._num_returning += returns
        try:
            yield
        finally:
            self._num_short -= 1
            self._num_returning -= returns
            if not self._num_short:
                self._expected = 0.0
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = asyncio.get_running_loop().call_later(0, self._turn)

    def expect(self) -> None:
        """A short request has begun to arrive, from a client that has asked before."""
        self._expected = time.monotonic() + _EXPECT_SECONDS

    def is_clear(self) -> bool:
        """Whether no short request is under way."""
        return not self._num_short and not self._is_expected()

    def may_begin(self) -> bool:
        """Whether who has just connected need not wait: nobody is under way who was here before."""
        return not self._num_returning and not self._newcomers and not self._is_expected()

    def _is_expected(self) -> bool:
        return self._expected > 0.0 and time.monotonic() < self._expected

    # Whoever waits for them.

    def are_idle(self) -> bool:
        """Whether nobody waits."""
        return not self._waiting and not self._newcomers

    def add(self, work: _Work, is_newcomer: bool = False) -> None:
        """Let something wait for its turn, and for another as long as something is left."""
        (self._newcomers if is_newcomer else self._waiting).append(work)
        if self._timer is None:
            self._schedule()

    async def take(self) -> None:
        """Wait for a turn, and take it."""
        if self._waiting or not self.is_clear():
            taken = _Taken()
            self.add(taken)
            await taken.future

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = time.monotonic() + _WAIT_SECONDS
        self._timer = loop.call_later(0 if self.is_clear() else _WAIT_SECONDS, self._turn)

    def _turn(self) -> None:
        if not self.is_clear() and (left := self._due - time.monotonic()) > 0:  # a short request has begun since
            self._timer = asyncio.get_running_loop().call_later(max(left, _TICK_SECONDS), self._turn)
            return
        is_done, queue = True, self._next_queue()
        work = queue.popleft()
        try:
            is_done = work.work()
        finally:
            if not is_done:
                self._waiting.append(work)
            self._timer = None
            if not self.are_idle():
                self._schedule()

    def _next_queue(self) -> deque[_Work]:
        """Newcomers and others in turn, where there are both."""
        if self._newcomers and self._waiting:
            self._newcomer_is_next = not self._newcomer_is_next
            return self._waiting if self._newcomer_is_next else self._newcomers
        return self._newcomers or self._waiting

    async def run(self, steps: Generator[None, None, _Found]) -> _Found:
        """Go through steps, a moment at a time, and return what they do."""
        work = _Steps(steps)
        self.add(work)
        return await work.future


class _Taken:
    """A turn that a coroutine takes."""

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def work(self) -> bool:
        if not self.future.done():
            self.future.set_result(None)
        return True


class _Steps(Generic[_Found]):
    """Steps that are gone through in turn."""

    def __init__(self, steps: Generator[None, None, _Found]) -> None:
        self._steps = steps
        self.future: asyncio.Future[_Found] = asyncio.get_running_loop().create_future()

    def work(self) -> bool:
        until = time.perf_counter() + _TURN_SECONDS
        try:
            while time.perf_counter() < until and not self.future.done():
                next(self._steps)
        except StopIteration as done:
            if not self.future.done():
                self.future.set_result(done.value)
        except Exception as error:
            if not self.future.done():
                self.future.set_exception(error)
        return self.future.done()


class Backlog:
    """What has arrived on one connection and is not parsed yet; nothing more is read meanwhile.

    Args:
        turns: those of all connections.
        flow: of this connection.
        parse: takes a portion, and says how many bytes of a plain body are still to come: they are no work.
        done: called when nothing is left.
    """

    def __init__(self, turns: Turns, flow: Flow, parse: Callable[[bytes], int], done: Callable[[], None]) -> None:
        self._turns, self._flow, self._parse, self._done = turns, flow, parse, done
        self._data, self._at, self._plain = b"", 0, 0

    def __bool__(self) -> bool:
        return bool(self._data)

    def add(self, data: bytes, plain: int, is_newcomer: bool) -> None:
        """Parse this, of which so many bytes are of a plain body: at once where it is short, else in turn. To read a
        quarter of a megabyte takes as long as to parse a short request, so that there is one such read a turn."""
        if self._data:  # of a read that was under way
            self._data = self._data[self._at :] + data
            self._at = 0
            return
        self._data, self._at, self._plain = data, 0, plain
        is_free, is_short = self._turns.are_idle() and self._turns.is_clear(), len(data) <= SHORT_READ
        may_begin = is_short and (is_free or not is_newcomer or self._turns.may_begin())
        if not (may_begin and self.work(_TURN_SECONDS if is_free else _BEGIN_SECONDS)):
            self._flow.hold(True)
            self._turns.add(self, is_newcomer and is_short and not may_begin)

    def drop(self) -> None:
        """Forget what is left."""
        self._at = len(self._data)

    def work(self, seconds: float = _TURN_SECONDS) -> bool:
        """Parse for a moment; whether nothing is left."""
        until = time.perf_counter() + seconds
        while self._at < len(self._data):
            portion = self._data[self._at : self._at + max(PORTION, self._plain)]
            self._at += len(portion)
            self._plain = self._parse(portion)
            if time.perf_counter() >= until and self._at < len(self._data):
                return False
        self._data = b""
        self._flow.hold(False)
        self._done()
        return True


class Flow(FlowControl):
    """Reading rests for two reasons: what the application has not taken yet, and what is not parsed yet."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_held = self._is_stopped = False

    def hold(self, is_held: bool) -> None:
        """Rest, or go on, for what is to be parsed."""
        if is_held == self._is_held or self._is_stopped:
            return
        self._is_held = is_held
        if not self.read_paused and not self._transport.is_closing():
            (self._transport.pause_reading if is_held else self._transport.resume_reading)()

    def stop(self) -> None:
        """Rest for good."""
        self.hold(True)
        self._is_stopped = True

    def pause_reading(self) -> None:
        if self._is_held:
            self.read_paused = True
        else:
            super().pause_reading()

    def resume_reading(self) -> None:
        if self._is_held:
            self.read_paused = False
        else:
            super().resume_reading()
