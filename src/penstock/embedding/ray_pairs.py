"""Which of a shard's two processes answers calls, and which standby may take its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Arrangement(NamedTuple):
    """Who is who among the processes of a store with standbys."""

    restored: int  # the epoch of the last time that the store was restored: commands from before it are undone
    primaries: list[int]  # by shard: which of its two processes answers calls
    standbys: list[int]  # by shard: the number of the standby that may take over; 0 where there is none
    promoted: list[int]  # by shard: the number of the standby that took over last


class Pairs:
    """The standbys of a store, each with a number of its own.

    A standby may take over only while every command of its shard is sent to it. Whoever cannot send one, or empties the
    standby, drops it first, and a number that was dropped never counts again: the shard fills another standby.

    >>> pairs = Pairs(2)
    >>> pairs.add(0, 5, 0), pairs.drop(1, 6), pairs.add(1, 6, 0)
    (True, True, False)
    >>> pairs.claim({0: 5}), pairs.claim({0: 5}), pairs.arrangement.primaries
    (True, True, [1, 0])
    >>> pairs.drop(0, 5)  # too late: it has taken over
    False
    """

    def __init__(self, num_shards: int) -> None:
        nobody = [0] * num_shards
        self.arrangement = Arrangement(0, [*nobody], [*nobody], [*nobody])
        self._dropped = [*nobody]  # by shard: this number and all below it may not take over

    def empty(self, shard: int, process: int) -> bool:
        """A shard is about to fill its standby anew; False for a process that is not the primary of the shard."""
        if process != self.arrangement.primaries[shard]:
            return False
        self._dropped[shard] = max(self._dropped[shard], self.arrangement.standbys[shard])
        self.arrangement.standbys[shard] = 0
        return True

    def add(self, shard: int, standby: int, epoch: int) -> bool:
        """A standby holds what its shard held in an epoch; whether it may take over from now on."""
        if standby <= self._dropped[shard] or epoch < self.arrangement.restored:
            return False
        self.arrangement.standbys[shard] = standby
        return True

    def drop(self, shard: int, standby: int) -> bool:
        """A standby misses a command; False where it has taken over already, and so must get what it misses."""
        if self.arrangement.promoted[shard] == standby:
            return False
        self._dropped[shard] = max(self._dropped[shard], standby)
        if self.arrangement.standbys[shard] <= self._dropped[shard]:
            self.arrangement.standbys[shard] = 0
        return True

    def restore(self, epoch: int, newest: int) -> None:
        """The store is about to hold something else: no standby up to the newest number may take over."""
        self.arrangement = self.arrangement._replace(restored=epoch)
        for shard in range(len(self._dropped)):
            self._dropped[shard] = max(self._dropped[shard], newest)
            self.arrangement.standbys[shard] = 0

    def claim(self, standbys: Mapping[int, int]) -> bool:
        """Put standbys in the place of their shards, all or none; done twice it is done once."""
        now = self.arrangement
        if any(number not in (now.standbys[shard], now.promoted[shard]) for shard, number in standbys.items()):
            return False
        for shard, number in standbys.items():
            if now.promoted[shard] != number:
                now.primaries[shard] ^= 1
                now.promoted[shard], now.standbys[shard] = number, 0
                self._dropped[shard] = max(self._dropped[shard], number)
        return True

    def to_plain(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {"arrangement": self.arrangement, "dropped": self._dropped}

    def recall(self, plain: Mapping[str, Any]) -> None:
        """Go on from what `to_plain` gave."""
        self.arrangement, self._dropped = Arrangement(*plain["arrangement"]), list(plain["dropped"])
