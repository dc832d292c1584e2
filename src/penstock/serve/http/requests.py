"""One request for predictions: what it is answered, and what is refused said as JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from penstock.core.errors import PenstockError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

DRAIN = "penstock.drain"  # of a scope: throws away what a connection still brings, until the client stops
KNOWN = "penstock.known"  # of a scope: whether its connection has been answered before
LINGER_SECONDS = 2.0  # for a client that is still sending what was refused
_JSON = (b"content-type", b"application/json")


class RefusedError(PenstockError):
    """A request that is not answered with predictions: the HTTP status, why, and where in it.

    Args:
        status: of HTTP.
        message: why, and what to do.
        row, field: where in the request, if that is known.
        closes: whether the connection ends with it, because the rest of the request is not read.

    >>> RefusedError(400, "must be a number", 3, "price").content()
    b'{"error": {"message": "must be a number", "row": 3, "field": "price"}}'
    """

    def __init__(
        self, status: int, message: str, row: int | None = None, field: str | None = None, closes: bool = False
    ) -> None:
        self.status, self.message, self.row, self.field, self.closes = status, message, row, field, closes
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.message, self.row, self.field, self.closes)

    def body(self) -> dict[str, Any]:
        """What the client is told."""
        return {"error": {"message": self.message, "row": self.row, "field": self.field}}

    def content(self) -> bytes:
        """What the client is told, as bytes; half a surrogate pair in it is escaped, since UTF-8 has none."""
        return json.dumps(self.body(), ensure_ascii=False).encode(errors="backslashreplace")


async def respond(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes], more: bool = False) -> None:
    """Send a JSON answer; with `more`, leave it open."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]})
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def refuse(scope: Scope, receive: Receive, send: Send, refusal: RefusedError) -> None:
    """Answer with an error. A body that is not taken in is thrown away for a moment, then cut off."""
    headers = [(b"retry-after", b"1")] if refusal.status == 503 else []
    if not refusal.closes:
        await respond(send, refusal.status, refusal.content(), *headers)
        return
    await respond(send, refusal.status, refusal.content(), *headers, (b"connection", b"close"), more=True)
    drain: Callable[[], Awaitable[None]] | None = scope.get(DRAIN)
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            if drain is not None:
                await drain()
            else:
                while (await receive()).get("more_body"):
                    pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def received_already(receive: Receive) -> Message | None:
    """What `receive` would give without waiting: one step of it. None where it would wait."""
    step: Any = receive()
    try:
        step.send(None)
    except StopIteration as done:
        message: Message = done.value
        return message
    step.close()
    return None


def has_hung_up(receive: Receive) -> bool:
    """Whether the client has gone."""
    message = received_already(receive)
    return message is not None and message["type"] == "http.disconnect"
