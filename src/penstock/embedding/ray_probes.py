"""Asks actors of Ray how they are, again and again, and never waits for one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.core.extras import require

Key = TypeVar("Key", bound=Hashable)


class _Asked(NamedTuple):
    """A question under way."""

    reference: Any
    since: float  # by the clock of who asks
    at: float  # seconds since the epoch


class Probes(Generic[Key]):
    """What each of several actors said last, and whether it still answers.

    An actor that has not answered is not asked again: questions never pile up before one that is busy. What it says has
    the time `at` which it was said, by its machine's clock: how long the question waited until then is how long any
    command would have, since it stood in the same queue.

    Args:
        every: seconds between two questions to the same actor.
        patience: seconds after which one that has not answered counts as silent.
        clock: seconds that never go back.
    """

    def __init__(self, every: float = 2.0, patience: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._ray, self._every, self._patience, self._clock = require("ray", "ray"), every, patience, clock
        self._asked: dict[Key, _Asked] = {}
        self._answers: dict[Key, dict[str, Any]] = {}
        self._due: dict[Key, float] = {}

    def look(self, ask: Mapping[Key, Callable[[], Any]], wait: float = 0.0) -> bool:
        """Hear who has answered, and ask those whose turn it is; whether there is news.

        Args:
            ask: what sends the question to each of the actors; it gives a reference.
            wait: ask all of them now, and wait so many seconds for their answers.
        """
        self._asked = {key: asked for key, asked in self._asked.items() if key in ask}
        news = [self._hear(key) for key in list(self._asked)]
        now = self._clock()
        for key, send in ask.items():
            if key not in self._asked and (wait or now >= self._due.get(key, now)):
                self._asked[key], self._due[key] = _Asked(send(), now, time.time()), now + self._every
        if wait and self._asked:
            waited_for = [asked.reference for asked in self._asked.values()]
            self._ray.wait(waited_for, num_returns=len(waited_for), timeout=wait)
            news += [self._hear(key) for key in list(self._asked)]
        return any(news)

    def answers(self) -> dict[Key, dict[str, Any]]:
        """By actor, what it said last, with its `state` ("up", "silent" or "down") and how long it took to answer."""
        now, found = self._clock(), dict(self._answers)
        for key, asked in self._asked.items():
            if now - asked.since > self._patience:
                found[key] = {**found.get(key, {}), "state": "silent", "answered_in": now - asked.since}
        return found

    def _hear(self, key: Key) -> bool:
        asked = self._asked[key]
        waited = self._clock() - asked.since
        if not self._ray.wait([asked.reference], timeout=0)[0]:
            return waited > self._patience
        del self._asked[key]
        try:
            said, state = self._ray.get(asked.reference), "up"
        except self._ray.exceptions.RayError:
            said, state = self._answers.get(key, {}), "down"
        if state == "up" and "at" in said:  # clocks of two machines differ by little; it was not before, nor after this
            waited = min(waited, max(0.0, said["at"] - asked.at))
        self._answers[key] = {**said, "state": state, "answered_in": waited}
        return True
