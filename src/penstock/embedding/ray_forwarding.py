"""Commands on their way from a client to the standbys of a store, kept until those have them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from penstock.embedding.ray_in_flight import Sent
from penstock.embedding.ray_replica import Placed, Told
from penstock.embedding.ray_submitting import Pending

_AHEAD = 4  # messages that a standby may be behind
_WAITING = 8  # commands that wait for a message to be sent with


class Kept:
    """A command that some standbys do not have yet."""

    def __init__(self, sent: Sent) -> None:
        self.sent = sent
        self.missing = 0  # standbys
        self.settled = False  # the client will not send it again for its own sake


class Message:
    """Commands that were passed on together."""

    def __init__(self, standby: int, commands: list[tuple[int, Kept]]) -> None:
        self.standby, self.commands = standby, commands
        self.call: Pending = None


class Forwarding:
    """What each standby still has to be told, and what it was told but has not acknowledged.

    Args:
        num_shards: of the store.
        settle: called with the number of a command that every standby has.
    """

    def __init__(self, num_shards: int, settle: Callable[[int], None]) -> None:
        self._settle = settle
        self._open: dict[int, Kept] = {}
        self.outbox: list[list[tuple[int, Kept]]] = [[] for _ in range(num_shards)]  # with their places
        self.unacknowledged: list[deque[Message]] = [deque() for _ in range(num_shards)]
        self.standbys = [0] * num_shards  # the number of the youngest that was heard of
        self.shares = [True] * num_shards  # whether a standby can reach this client's memory

    def add(self, sent: Sent, replies: list[Placed]) -> None:
        """A command that all shards have applied; those with a standby say so in their answer."""
        kept = Kept(sent)
        for shard, reply in enumerate(replies):
            self.place(shard, kept, reply)
        if kept.missing:
            self._open[sent.command.number] = kept

    def place(self, shard: int, kept: Kept, reply: Placed) -> None:
        """A shard has applied a command, and may have a standby for it."""
        if reply.standby:
            kept.missing += 1
            self.standbys[shard] = max(self.standbys[shard], reply.standby)
            self.outbox[shard].append((reply.place, kept))

    def settle(self, number: int) -> bool:
        """The client will not send a command again by itself; False where it is kept for a standby."""
        if number not in self._open:
            return True
        self._open[number].settled = True
        return False

    @property
    def is_full(self) -> bool:
        """Whether so much waits that it should be passed on at once."""
        return max(map(len, self.outbox)) >= _WAITING

    def late(self, shard: int) -> bool:
        """Whether the oldest message to a standby must be acknowledged before another is sent."""
        return len(self.unacknowledged[shard]) > _AHEAD

    def arguments(self, shard: int, commands: Iterable[tuple[int, Kept]], here: bool) -> tuple[Any, ...]:
        """What a process is told: the places of the commands, then the calls as they were packed for the shard."""
        calls = [(place, kept.sent.call(shard, here)) for place, kept in commands]
        return [Told(place, len(call)) for place, call in calls], *(part for _, call in calls for part in call)

    def acknowledge(self, message: Message) -> None:
        """A standby has these."""
        for _, kept in message.commands:
            self._release(kept)

    def kept(self, shard: int) -> list[tuple[int, Kept]]:
        """All that a shard's standby may not have, in order."""
        return [command for message in self.unacknowledged[shard] for command in message.commands] + self.outbox[shard]

    def take(self, shard: int) -> list[tuple[int, Kept]]:
        """All that a shard's standby may not have; nothing is kept for it any more."""
        commands = self.kept(shard)
        self.unacknowledged[shard].clear()
        self.outbox[shard] = []
        for _, kept in commands:
            kept.missing -= 1
        return commands

    def forget(self, shard: int, standby: int) -> None:
        """A standby is no more, and its shard fills another from what it holds."""
        if self.standbys[shard] <= standby:
            for _, kept in self.take(shard):
                self.release_unless_missing(kept)
            return
        while self.unacknowledged[shard] and self.unacknowledged[shard][0].standby <= standby:
            self.acknowledge(self.unacknowledged[shard].popleft())

    def forget_before(self, epoch: int) -> None:
        """The store was restored under an epoch: commands of earlier ones are undone."""
        for shard in range(len(self.outbox)):
            for place, kept in self.take(shard):
                if kept.sent.command.epoch >= epoch:
                    kept.missing += 1
                    self.outbox[shard].append((place, kept))
                else:
                    self.release_unless_missing(kept)

    def _release(self, kept: Kept) -> None:
        kept.missing -= 1
        self.release_unless_missing(kept)

    def release_unless_missing(self, kept: Kept) -> None:
        """Let go of a command that every standby has."""
        number = kept.sent.command.number
        if not kept.missing and number in self._open:
            del self._open[number]
            if kept.settled:
                self._settle(number)
