"""Bodies of requests, read within the limits of one and of all together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field

from penstock.serve.http.limits import Limits
from penstock.serve.http.parsing import AT_ONCE, BodySize, count_lists
from penstock.serve.http.requests import Message, Receive, RefusedError, Scope, received_already
from penstock.serve.waiting import ClientGoneError

_SMALL = 1 << 16  # bytes of a body that never count: there are no more of them than connections


@dataclass(eq=False)
class _Upload:
    """A body on its way."""

    parts: list[bytes] = field(default_factory=list)
    length: int = 0
    lists: int = 0  # that begin in it
    counted: int = 0
    is_displaced: bool = False
    timeout: asyncio.Timeout | None = None  # while it arrives


class Bodies:
    """Reads bodies. All that are being read or parsed share a budget of bytes.

    Where it is spent, the body that has been arriving longest makes room: who sends slowly on purpose is cut off, and
    who sends and is done hardly ever.

    Args:
        limits: of bytes and time.
        size: of what a body may hold; one that cannot keep to it is not read any further.
    """

    def __init__(self, limits: Limits, size: BodySize) -> None:
        self._limits, self._size = limits, size
        self._most, self._budget = limits.body_bytes, limits.bodies_bytes
        self._arriving: dict[_Upload, None] = {}  # oldest first
        self.held = 0  # bytes that count

    @asynccontextmanager
    async def reading(
        self, scope: Scope, receive: Receive, arriving: AbstractContextManager[None]
    ) -> AsyncIterator[bytes]:
        """The request's body, which counts as long as the block lasts; `arriving` is held while a short one is read.

        Raises:
            RefusedError: where it is not JSON (415), too long (413), too slow (408) or one too many (503).
            ClientGoneError: where the client hangs up.
        """
        length = self._check_headers(scope)
        upload = _Upload()
        try:
            with arriving if length <= AT_ONCE else nullcontext():
                body = self._whole(message := received_already(receive))
                if body is None:
                    body = await self._read(upload, receive, message)
            yield body
        finally:
            self.held -= upload.counted

    def _whole(self, message: Message | None) -> bytes | None:
        """The body, if it is there already, and short: nothing needs to be counted or timed then."""
        if message is None or message["type"] != "http.request" or message.get("more_body"):
            return None
        body: bytes = message.get("body", b"")
        return body if len(body) <= min(_SMALL, self._most) else None

    def _check_headers(self, scope: Scope) -> int:
        """How long the body says it is; 0 where it does not say."""
        headers = dict(scope["headers"])
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if kind != b"application/json" and not kind.endswith(b"+json"):
            shown = kind[:80].decode("latin-1") or "none"
            raise RefusedError(415, f"the content type must be application/json, got {shown}")
        packed = headers.get(b"content-encoding", b"identity").strip().lower()
        if packed != b"identity":
            shown = packed[:80].decode("latin-1")
            raise RefusedError(415, f"a body is taken as it is, not packed, and the content encoding is {shown}")
        length = headers.get(b"content-length", b"0").strip()
        if not length.isdigit():
            raise RefusedError(400, "the content length is not a number", closes=True)
        if len(length) > 18 or int(length) > self._most:  # believed before any of it is read
            raise self._too_long()
        return int(length)

    async def _read(self, upload: _Upload, receive: Receive, message: Message | None) -> bytes:
        seconds = self._limits.body_seconds
        self._arriving[upload] = None
        try:
            async with asyncio.timeout(seconds) as upload.timeout:
                while True:
                    if message is None:
                        message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGoneError("the client has hung up")
                    self._take(upload, message.get("body", b""))
                    if not message.get("more_body"):
                        return b"".join(upload.parts)
                    message = None
        except TimeoutError:
            if upload.is_displaced:
                raise self._one_too_many() from None
            raise RefusedError(408, f"the body did not arrive within {seconds:g} seconds", closes=True) from None
        finally:
            upload.parts.clear()
            self._arriving.pop(upload, None)

    def _take(self, upload: _Upload, part: bytes) -> None:
        if upload.is_displaced:
            raise self._one_too_many()
        upload.parts.append(part)
        upload.length += len(part)
        if upload.length > self._most:
            raise self._too_long()
        upload.lists += count_lists(part)
        more = max(0, upload.length - _SMALL) - upload.counted
        if more > 0:
            self._size.check(upload.length, upload.lists)
            self._make_room(upload, more)
            upload.counted += more
            self.held += more

    def _make_room(self, upload: _Upload, size: int) -> None:
        for oldest in list(self._arriving):
            if self.held + size <= self._budget:
                return
            if oldest is not upload and oldest.counted and oldest.timeout is not None:
                self.held -= oldest.counted
                oldest.counted, oldest.is_displaced = 0, True
                oldest.parts.clear()
                oldest.timeout.reschedule(asyncio.get_running_loop().time())
                del self._arriving[oldest]
        if self.held + size > self._budget:
            raise self._one_too_many()

    def _too_long(self) -> RefusedError:
        message = f"the body is larger than the {self._most:,} bytes that are taken; send fewer rows at once"
        return RefusedError(413, message, closes=True)

    def _one_too_many(self) -> RefusedError:
        message = f"requests of more than {self._budget:,} bytes are being read; come again in a moment"
        return RefusedError(503, message, closes=True)
