"""One request for predictions: its body read within limits, its rows found, and what is refused said as JSON."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import PenstockError
from penstock.core.params import Int, Real, check_all
from penstock.data.files import parse_bytes
from penstock.serve.batching import ClientGoneError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

READ_SECONDS = 30.0  # for a body that does not come in one piece
LINGER_SECONDS = 2.0  # for a client that is still sending what was refused
_JSON = (b"content-type", b"application/json")
_ROWS = re.compile(r'"rows"\s*:\s*\[')


@dataclass(frozen=True)
class Limits:
    """What a service takes, and how it batches.

    Args:
        max_batch: rows that are predicted in one call.
        max_wait_ms: milliseconds that a batch may wait for more requests; an idle service never waits.
        max_rows: rows in one request.
        max_body: bytes of one request (`"4MB"`).
        max_queue: rows that may wait; beyond it, requests are answered 503.

    >>> Limits(max_body="1MB").body_bytes
    1000000
    """

    max_batch: int = 128
    max_wait_ms: float = 2.0
    max_rows: int = 1000
    max_body: int | str = "4MB"
    max_queue: int = 4096

    def __post_init__(self) -> None:
        numbers = dict.fromkeys(("max_batch", "max_rows", "max_queue"), Int(min=1))
        check_all(vars(self), {**numbers, "max_wait_ms": Real(0, 1000)}, "Limits")
        check_all({"max_body": self.body_bytes}, {"max_body": Int(min=1)}, "Limits")

    @property
    def body_bytes(self) -> int:
        return parse_bytes(self.max_body)


class RefusedError(PenstockError):
    """A request that is not answered with predictions: the HTTP status, why, and where in it."""

    def __init__(self, status: int, message: str, row: int | None = None, field: str | None = None) -> None:
        self.status, self.message, self.row, self.field = status, message, row, field
        super().__init__(message)

    def __reduce__(self) -> tuple:
        return type(self), (self.status, self.message, self.row, self.field)

    def body(self) -> dict[str, Any]:
        """What the client is told."""
        return {"error": {"message": self.message, "row": self.row, "field": self.field}}


async def respond(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes], more: bool = False) -> None:
    """Send a JSON answer; with `more`, leave it open."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]})
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def refuse(send: Send, receive: Receive, refusal: RefusedError) -> None:
    """Answer with an error. A body that is too large is not taken in: it is thrown away for a moment, then cut off."""
    body = json.dumps(refusal.body(), ensure_ascii=False).encode()
    if refusal.status == 503:
        await respond(send, 503, body, (b"retry-after", b"1"))
    elif refusal.status in (408, 413):
        # Closed at once, the answer would be lost to a client that is still sending: it would see a reset.
        await respond(send, refusal.status, body, (b"connection", b"close"), more=True)
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                while (await receive()).get("more_body"):
                    pass
        except TimeoutError:
            pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    else:
        await respond(send, refusal.status, body)


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes:
    """The request's body, if it is JSON and not too long; the length it declares is believed before any is read."""
    headers = dict(scope["headers"])
    kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    if kind != b"application/json" and not kind.endswith(b"+json"):
        shown = kind.decode("latin-1") or "none"
        raise RefusedError(415, f"the content type must be application/json, got {shown}")
    if int(headers.get(b"content-length", b"0")) > most:
        raise _too_long(most)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGoneError("the client has hung up")
    body = message.get("body", b"")
    if not message.get("more_body"):
        if len(body) > most:
            raise _too_long(most)
        return body
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await _rest(receive, [body], most)
    except TimeoutError:
        raise RefusedError(408, f"the body did not arrive within {READ_SECONDS:.0f} seconds") from None


async def _rest(receive: Receive, parts: list[bytes], most: int) -> bytes:
    length, more = len(parts[0]), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError("the client has hung up")
        parts.append(message.get("body", b""))
        length += len(parts[-1])
        if length > most:
            raise _too_long(most)
        more = bool(message.get("more_body"))
    return b"".join(parts)


def _too_long(most: int) -> RefusedError:
    return RefusedError(413, f"the body is larger than the {most:,} bytes that are taken; send fewer rows at once")


def rows_of(body: bytes, most: int) -> list[Any]:
    """The rows in a body `{"rows": […]}`, unchecked."""
    try:
        content = json.loads(body)
    except RecursionError:
        raise RefusedError(400, "malformed JSON: nested too deeply") from None
    except ValueError as error:
        raise _malformed(body, error) from None
    rows = content.get("rows") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise RefusedError(400, 'the body must be {"rows": [{column: value, …}, …]}')
    if len(rows) > most:
        raise RefusedError(413, f"{len(rows):,} rows in one request; at most {most:,} are taken at once")
    return rows


def _malformed(body: bytes, error: ValueError) -> RefusedError:
    text = body.decode("utf-8", "replace")
    return RefusedError(400, f"malformed JSON: {error}", _broken_row(text))


def _broken_row(text: str) -> int | None:
    """The row in which JSON text stops being JSON; None where that is not inside a row."""
    found = _ROWS.search(text)
    if found is None:
        return None
    decoder, at, row = json.JSONDecoder(), found.end(), 0
    while at < len(text):
        if text[at] in " \t\r\n,":
            at += 1
        elif text[at] == "]":
            return None
        else:
            try:
                at = decoder.raw_decode(text, at)[1]
            except (ValueError, RecursionError):
                return row
            row += 1
    return None


def has_hung_up(receive: Receive) -> bool:
    """Whether the client has gone: one step of `receive`, which would go on waiting if it had not."""
    step: Any = receive()
    try:
        step.send(None)
    except StopIteration as done:
        return done.value["type"] == "http.disconnect"
    step.close()
    return False
