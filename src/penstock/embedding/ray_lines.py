"""Lines between a client of a store on Ray and the shards on its machine: two pipes each, instead of a call of Ray.

A call of Ray that does nothing takes a millisecond of several threads; what is large lies in shared memory anyway
(`ray_memory`), so that the rest of a call is a short message. As there, a shard opens the pipes through the process
that made them: whoever may not read that process's memory cannot open them, and nothing is left behind. Ray stays the
way of every call that is long or rare, and of all of them where a line is broken or has never been there.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

from penstock.core.runtime.forks import Process
from penstock.embedding.ray_memory import file_of, this_machine

_HEAD = struct.Struct("<IQ")  # length of what follows, number of the message
_PIECE = 65536


class Ends(NamedTuple):
    """What a shard opens of a line."""

    machine: str
    process: int
    calls: int
    replies: int


class LineBroken(Exception):
    """The other end of a line is gone."""


class Ticket:
    """A call that was sent on a line, and its answer once that has come."""

    __slots__ = ("line", "number", "outcome")

    def __init__(self, line: Line, number: int) -> None:
        self.line, self.number = line, number
        self.outcome: tuple[bool, Any] | None = None

    def wait(self, deadline: float) -> bool:
        """Whether the answer has come until then.

        Raises:
            LineBroken: there will be no answer.
        """
        while self.outcome is None:
            if not self.line.listen(deadline):
                return False
        return True

    @property
    def is_done(self) -> bool:
        """Whether the shard does not work on it any more."""
        try:
            return self.wait(0.0)
        except LineBroken:
            return True


class Line:
    """A client's end of a line. Calls are answered in their order.

    >>> line = Line()
    >>> if this_machine():
    ...     mine = open_ends(line.ends)
    ...     line.opened()
    ...     ticket = line.send(b"twice", time.monotonic() + 5)
    ...     from penstock.core.runtime.threads import start_thread
    ...     thread = start_thread("example", answer_calls, *mine, lambda call: call * 2)
    ...     assert ticket.wait(time.monotonic() + 5) and ticket.outcome == (True, b"twicetwice")
    ...     line.close()
    ...     thread.join()
    """

    def __init__(self) -> None:
        self.made_in = Process()
        self._theirs = ExitStack()
        self._mine = ExitStack()
        their_calls, self._calls = os.pipe()
        self._replies, their_replies = os.pipe()
        for stack, files in ((self._theirs, (their_calls, their_replies)), (self._mine, (self._calls, self._replies))):
            for file in files:
                stack.callback(os.close, file)
        os.set_blocking(self._calls, False)
        os.set_blocking(self._replies, False)
        self.ends = Ends(this_machine(), self.made_in.number, their_calls, their_replies)
        self._open: dict[int, Ticket] = {}
        self._count = 0
        self._received = bytearray()
        self.broken = False
        weakref.finalize(self, _close_all, self._theirs, self._mine).atexit = False

    def opened(self) -> None:
        """The shard has its ends: from here on only it holds them, so that its death breaks the line."""
        self._theirs.close()

    def send(self, call: bytes, deadline: float) -> Ticket:
        """Send a call.

        Raises:
            LineBroken: it could not be sent.
        """
        self._count += 1
        ticket = Ticket(self, self._count)
        self._open[ticket.number] = ticket
        self._write(_HEAD.pack(len(call), ticket.number) + call, deadline)
        return ticket

    def _write(self, message: bytes, deadline: float) -> None:
        while message and not self.broken:
            try:
                message = message[os.write(self._calls, message) :]
            except BlockingIOError:
                if not _ready(self._calls, select.POLLOUT, deadline):
                    self.close()  # half a message must not be followed by another
            except OSError:
                self.close()
        if self.broken:
            raise LineBroken

    def listen(self, deadline: float) -> bool:
        """Take what answers there are; False where none has come until the deadline."""
        if self.broken:
            raise LineBroken
        if not _ready(self._replies, select.POLLIN, deadline):
            return False
        try:
            piece = os.read(self._replies, _PIECE)
        except OSError:
            piece = b""
        if not piece:
            self.close()
            raise LineBroken
        self._received += piece
        for number, reply in _messages(self._received):
            ticket = self._open.pop(number, None)
            if ticket is not None:
                ticket.outcome = pickle.loads(reply)
        return True

    def close(self) -> None:
        """End the line."""
        self.broken = True
        self._open.clear()
        _close_all(self._theirs, self._mine)


def _close_all(*ends: ExitStack) -> None:
    for files in ends:
        files.close()


def _ready(file: int, events: int, deadline: float) -> bool:
    """Whether a pipe can be read or written until then."""
    poll = select.poll()
    poll.register(file, events)
    return bool(poll.poll(max(0.0, 1e3 * (deadline - time.monotonic()))))


def _messages(heard: bytearray) -> Iterator[tuple[int, bytes]]:
    """The whole messages of what was heard, which are taken out of it."""
    while len(heard) >= _HEAD.size:
        length, number = _HEAD.unpack_from(heard)
        end = _HEAD.size + length
        if len(heard) < end:
            return
        content = bytes(heard[_HEAD.size : end])
        del heard[:end]
        yield number, content


# The shard's end


def open_ends(ends: Ends) -> tuple[int, int] | None:
    """Where a shard reads calls and writes answers; None where it cannot reach the client."""
    if ends.machine != this_machine():
        return None
    calls = file_of(ends.process, ends.calls, os.O_RDONLY)
    if calls is None:
        return None
    replies = file_of(ends.process, ends.replies, os.O_WRONLY)
    if replies is None:
        os.close(calls)
        return None
    return calls, replies


def answer_calls(calls: int, replies: int, answer: Callable[[bytes], Any]) -> None:
    """Answer a client until it is gone."""
    with open(calls, "rb") as source, open(replies, "wb", buffering=0) as target:
        while len(head := source.read(_HEAD.size)) == _HEAD.size:
            length, number = _HEAD.unpack(head)
            call = source.read(length)
            if len(call) < length:
                return
            try:
                outcome: tuple[bool, Any] = True, answer(call)
            except BaseException as error:
                outcome = False, error
            reply = _dumped(outcome)
            message = _HEAD.pack(len(reply), number) + reply
            try:
                while message:
                    message = message[target.write(message) :]
            except OSError:
                return


def _dumped(outcome: tuple[bool, Any]) -> bytes:
    try:
        return pickle.dumps(outcome, protocol=5)
    except Exception:  # an error that cannot travel
        return pickle.dumps((False, RuntimeError(f"{type(outcome[1]).__name__}: {outcome[1]}")), protocol=5)
