"""What arrives on a connection is parsed in turn with what arrives on others, a moment at a time.

One read can bring a quarter of a megabyte. Of a plain body that is one call of the parser; of pieces of one byte, of
headers or of requests behind one another it is tens of thousands, during which nobody else would be answered.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from penstock.core.extras import require

require("uvicorn", "serve")

from uvicorn.protocols.http.flow_control import FlowControl  # noqa: E402

PORTION = 2048  # bytes that the parser is given at once, where it may have much to say about them: 0.3 ms at most
_TURN_SECONDS = 0.0005


class Turns:
    """Connections that have more to parse than a portion; one of them has its turn whenever the loop comes round."""

    def __init__(self) -> None:
        self._waiting: deque[Backlog] = deque()

    def are_idle(self) -> bool:
        """Whether nobody waits."""
        return not self._waiting

    def add(self, backlog: Backlog, loop: asyncio.AbstractEventLoop) -> None:
        """Let a connection wait for its turn."""
        self._waiting.append(backlog)
        if len(self._waiting) == 1:
            loop.call_soon(self._turn, loop)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        is_done = True
        try:
            is_done = self._waiting[0].work()
        finally:
            backlog = self._waiting.popleft()
            if not is_done:
                self._waiting.append(backlog)
            if self._waiting:
                loop.call_soon(self._turn, loop)


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

    def add(self, data: bytes, loop: asyncio.AbstractEventLoop) -> None:
        """Parse this: at once where nobody waits and it is soon done, else in turn."""
        if self._data:  # of a read that was under way
            self._data = self._data[self._at :] + data
            self._at = 0
            return
        self._data, self._at, self._plain = data, 0, 0
        if not (self._turns.are_idle() and self.work()):
            self._flow.hold(True)
            self._turns.add(self, loop)

    def drop(self) -> None:
        """Forget what is left."""
        self._at = len(self._data)

    def work(self) -> bool:
        """Parse for a moment; whether nothing is left."""
        until = time.perf_counter() + _TURN_SECONDS
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
        self._is_held = False

    def hold(self, is_held: bool) -> None:
        """Rest, or go on, for what is to be parsed."""
        if is_held == self._is_held:
            return
        self._is_held = is_held
        if not self.read_paused and not self._transport.is_closing():
            (self._transport.pause_reading if is_held else self._transport.resume_reading)()

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
