"""How a client calls the processes of a store: on a line where there is one, by Ray otherwise."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypeAlias

from penstock.embedding.ray_lines import Line, LineBroken, Ticket
from penstock.embedding.ray_memory import this_machine

ON_LINES = frozenset({"lookup", "update", "follow"})  # calls that are short and many
Pending: TypeAlias = Any  # a Ticket, or what Ray gives for a call


class CallFailed(Exception):
    """A shard raised an error (`__cause__`) when it was called on a line."""


class Lines:
    """A client's lines to the processes of its store. Calls go by Ray until a line is there, and where there is none.

    Args:
        ray: the module.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._lines: dict[Any, Line | None] = {}  # by actor; None where there can be none
        self._asked: dict[Any, tuple[Line, Any]] = {}  # on their way

    def submit(self, actor: Any, method: str, call: list[Any], deadline: float) -> Pending:
        """Call a method of a shard, packed with its arguments; the answer is to be had by `get`."""
        line = self._line(actor) if method in ON_LINES and len(call) == 1 else None
        if line is not None:
            try:
                return line.send(call[0], deadline)
            except LineBroken:
                del self._lines[actor]
        return actor.run.remote(*call)

    def get(self, pending: Sequence[Pending], timeout: float) -> list[Any]:
        """The answers to calls.

        Raises:
            GetTimeoutError: of Ray; one of them did not come in time.
            RayActorError: of Ray; a shard is gone.
            RayTaskError: of Ray; a shard raised an error.
            CallFailed: a shard raised an error on a line.
        """
        deadline = time.monotonic() + timeout
        by_ray = [call for call in pending if not isinstance(call, Ticket)]
        for call in pending:
            if isinstance(call, Ticket):
                self._wait(call, deadline)
        replies = iter(self._ray.get(by_ray, timeout=max(0.001, deadline - time.monotonic())) if by_ray else ())
        return [call.outcome[1] if isinstance(call, Ticket) and call.outcome else next(replies) for call in pending]

    def _wait(self, ticket: Ticket, deadline: float) -> None:
        try:
            if not ticket.wait(deadline):
                raise self._ray.exceptions.GetTimeoutError("no answer came on a line")
        except LineBroken:
            raise self._ray.exceptions.RayActorError from None
        assert ticket.outcome is not None
        went_well, answer = ticket.outcome
        if not went_well:
            raise CallFailed from answer

    def answered(self, call: Pending) -> Any:
        """The answer to a call, if it has come on a line; else None."""
        if not isinstance(call, Ticket) or not call.is_done or call.outcome is None or not call.outcome[0]:
            return None
        return call.outcome[1]

    def are_done(self, pending: Sequence[Pending]) -> bool:
        """Whether nobody works on these calls any more."""
        by_ray = [call for call in pending if not isinstance(call, Ticket)]
        if by_ray and self._ray.wait(by_ray, num_returns=len(by_ray), timeout=0)[1]:
            return False
        return all(call.is_done for call in pending if isinstance(call, Ticket))

    def has(self, actor: Any) -> bool:
        """Whether there is a line to a process."""
        line = self._lines.get(actor)
        return line is not None and not line.broken

    def forget(self) -> None:
        """Shards may be elsewhere now: ask those again that could not be reached."""
        self._lines = {actor: line for actor, line in self._lines.items() if line is not None}

    def close(self) -> None:
        """End all lines."""
        for line in [*self._lines.values(), *(line for line, _ in self._asked.values())]:
            if line is not None and line.made_in.is_this():
                line.close()
        self._lines.clear()
        self._asked.clear()

    def _line(self, actor: Any) -> Line | None:
        """The line to a process, if it is there by now; one is asked for where none was."""
        if actor in self._lines:
            line = self._lines[actor]
            if line is None or not line.broken:
                return line if line is None or line.made_in.is_this() else None
            del self._lines[actor]
        if actor in self._asked:
            self._hear_of(actor)
        elif this_machine():
            line = Line()
            self._asked[actor] = line, actor.connect.remote(line.ends)
        return self._lines.get(actor)

    def _hear_of(self, actor: Any) -> None:
        line, reference = self._asked[actor]
        if not self._ray.wait([reference], timeout=0)[0]:
            return
        del self._asked[actor]
        try:
            is_there = self._ray.get(reference)
        except self._ray.exceptions.RayError:  # it has died: ask the next one
            line.close()
            return
        if is_there:
            line.opened()
        else:
            line.close()
        self._lines[actor] = line if is_there else None
