"""What the connections of one server share: their limits, who is there, and a look at everybody once a second."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.serve.http.connection import FIRST, HEAD, GuardedProtocol
from penstock.serve.http.limits import Limits
from penstock.serve.http.requests import RefusedError
from penstock.serve.http.turns import Turns

log = logging.getLogger("penstock.serve")
SWEEP_SECONDS = 1.0
_SPARE_FILES = 128  # that a process keeps for other things than connections


class Guard:
    """The limits of one server's connections.

    Args:
        limits: of heads, connections and time.
        turns: those of the service behind it.
        refused: called with the HTTP status of whatever is refused here.
    """

    def __init__(self, limits: Limits, turns: Turns, refused: Callable[[int], Any] = lambda status: None) -> None:
        self.limits, self.turns, self.refused = limits, turns, refused
        self.head_bytes, self.body_bytes = limits.head_bytes, limits.body_bytes
        self.max_connections = min(limits.max_connections, _openable())
        self._connections: dict[GuardedProtocol, None] = {}  # oldest first
        self._timer: asyncio.TimerHandle | None = None

    def protocol(self, **settings: Any) -> GuardedProtocol:
        """A connection's protocol, as uvicorn asks for it."""
        return GuardedProtocol(self, **settings)

    def admit(self, newcomer: GuardedProtocol) -> None:
        """Let a connection in; where there are too many, in place of the one that has been idle longest."""
        if len(self._connections) >= self.max_connections:
            idle = [one for one in self._connections if one.waiting in (FIRST, HEAD)]
            if not idle:
                message = f"{self.max_connections:,} connections have requests under way; come again in a moment"
                newcomer.refuse(RefusedError(503, message))
                newcomer.transport.close()
                return
            # Half a head is suspect; a connection kept open between two requests is not.
            min(idle, key=lambda one: (one.waiting is FIRST, one.since)).abort()
            self.refused(408)
        self._connections[newcomer] = None
        if self._timer is None:
            self._timer = newcomer.loop.call_later(SWEEP_SECONDS, self._sweep, newcomer.loop)

    def dismiss(self, connection: GuardedProtocol) -> None:
        """A connection is over."""
        self._connections.pop(connection, None)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        for connection in list(self._connections):
            try:
                connection.check_time(loop.time())
            except Exception:  # one connection in a state that nobody thought of must not free all others of limits
                log.exception("a connection could not be looked at, and was ended")
                self.dismiss(connection)
                with suppress(Exception):
                    connection.abort()
        self._timer = loop.call_later(SWEEP_SECONDS, self._sweep, loop) if self._connections else None


def _openable() -> int:
    """Connections for which the process may open files."""
    if sys.platform == "win32":
        return 1 << 16
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 16 if files == resource.RLIM_INFINITY else max(8, files - _SPARE_FILES)
