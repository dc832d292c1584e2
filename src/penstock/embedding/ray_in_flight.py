"""Commands of a client of a store on Ray: their numbers, and those that were sent and are not answered yet."""

from __future__ import annotations

import uuid
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from penstock.embedding.ray_messages import Command, packed
from penstock.embedding.ray_submitting import Pending

Arguments: TypeAlias = Callable[[int, bool], tuple[Any, ...]]  # for a shard, and whether it shares this memory


class CommandNumbers:
    """Numbers of a client's commands, and which of them will not be sent again.

    >>> numbers = CommandNumbers()
    >>> first, second = numbers.new(), numbers.new()
    >>> numbers.settle(second)
    >>> numbers.settled, first
    (0, 1)
    >>> numbers.settle(first)
    >>> numbers.settled
    2
    """

    def __init__(self) -> None:
        self.client = uuid.uuid4().hex
        self._last = 0
        self._open: set[int] = set()
        self._given_up: deque[int] = deque()  # collected by whichever thread drops the last reference

    def new(self, owner: object | None = None) -> int:
        """The next number; with an owner, which may send it again, it is settled when the owner is gone."""
        self._last += 1
        self._open.add(self._last)
        if owner is not None:
            weakref.finalize(owner, self._given_up.append, self._last).atexit = False
        return self._last

    def settle(self, number: int) -> None:
        """This command will not be sent again."""
        self._open.discard(number)

    @property
    def settled(self) -> int:
        """This number and all below it will not be sent again."""
        while self._given_up:
            self._open.discard(self._given_up.popleft())
        return min(self._open, default=self._last + 1) - 1


class Sent(NamedTuple):
    """A command as it was sent to all shards."""

    method: str
    command: Command
    given: Arguments
    keep: object
    shared: list[bool]  # by shard: whether arrays lie in memory that it shares with this client
    calls: list[list[Any]]  # by shard, packed

    def call(self, shard: int, shared: bool) -> list[Any]:
        """The command of a shard for another process: as it was sent, if that shares this client's memory as well."""
        if shared == self.shared[shard]:
            return self.calls[shard]
        return packed(self.method, (self.command, *self.given(shard, shared)))


class InFlight:
    """A command from the moment that it is sent to the moment that all shards have answered it.

    Args:
        method: of a shard.
        given: its arguments.
        number: of the command; 0 where it changes nothing.
        keep: memory that shards read and write: after an error it stays until the last of them is done with it.
    """

    def __init__(self, method: str, given: Arguments, number: int, keep: object) -> None:
        self.method, self.given, self.number, self.keep = method, given, number, keep
        self.sent: Sent | None = None  # as it was sent last
        self.pending: list[Pending] = []
        self.replies: list[Any] | None = None
        self.error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        """Whether it is answered, or never will be."""
        return self.replies is not None or self.error is not None
