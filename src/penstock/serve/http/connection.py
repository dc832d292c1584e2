"""One connection of the HTTP service: uvicorn's protocol, and limits on what a client may do before it has asked.

uvicorn parses HTTP and knows no limits on heads, on time or on what a client leaves unfinished.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from enum import Enum
from typing import TYPE_CHECKING, Any

from penstock.core.errors import PenstockError
from penstock.core.extras import require
from penstock.serve.http.draining import Drain
from penstock.serve.http.requests import DRAIN, KNOWN, LINGER_SECONDS, RefusedError
from penstock.serve.http.turns import PORTION, Backlog, Flow

if TYPE_CHECKING:
    from penstock.serve.http.guard import Guard

require("httptools", "serve")
require("uvicorn", "serve")

import httptools  # noqa: E402
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol  # noqa: E402

PIPELINED = 16  # requests of one connection that may wait for the one before
_PROBE_SECONDS = (0.02, 0.2)  # after a client has stopped sending: when to look whether it has gone altogether


class Waiting(Enum):
    """What a connection is waited for."""

    FIRST = "the first byte of a request"
    HEAD = "the rest of a head"
    BODY = "the rest of a body"
    ANSWER = "nothing: its request is with the application"


FIRST, HEAD, BODY, ANSWER = Waiting  # looked at for every header, and slower to get at inside the class


class _UnfitError(PenstockError):
    """Stops the parser; the protocol knows why."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection: what it sends is parsed within limits, and it is closed where it lets others wait."""

    def __init__(self, guard: Guard, **settings: Any) -> None:
        super().__init__(**settings)
        self.guard = guard
        self.waiting, self.since = FIRST, self.loop.time()
        self._unproductive = 0  # bytes that have brought neither a head to its end nor any of a body
        self._head_bytes = self._num_headers = self._discarded = 0
        self._most_head_bytes, self._most_headers = guard.head_bytes, guard.limits.max_headers
        self._problem: RefusedError | None = None
        self._refusal: RefusedError | None = None  # that waits for its turn
        self._is_refused = self._is_half_closed = self._is_upgrade = False
        self._closing_since: float | None = None
        self._drain: Drain | None = None
        self._running: Any = None  # the request that is being answered: `cycle` is the newest, which may wait behind it
        self._write_paused_since: float | None = None
        self._plain = 0  # bytes of a body that comes whole which are still to come
        self._has_ended = self._is_known = False

    # The life of a connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = self._flow = Flow(transport)
        self._backlog = Backlog(self.guard.turns, self._flow, self._take, self._worked_off)
        self.guard.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.guard.dismiss(self)
        self._backlog.drop()
        if self._drain is not None:
            self._drain.close()
        self._disconnect()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self._write_paused_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._write_paused_since = None
        super().resume_writing()

    def abort(self) -> None:
        """End it now; what is still to be sent is lost."""
        self.guard.dismiss(self)
        self._disconnect()
        self.transport.abort()

    def _disconnect(self) -> None:
        """Tell the application that nobody takes its answer: uvloop's closed transports raise where it writes on."""
        for cycle in (self._running, self.cycle):
            if cycle is not None:
                cycle.disconnected = True
                cycle.message_event.set()

    def check_time(self, now: float) -> None:
        """Close it where it has been waited for too long."""
        limits, waited = self.guard.limits, now - self.since
        is_answered = self.cycle is None or self.cycle.response_complete or self.cycle.disconnected
        if self.transport.is_closing() or (self._is_refused and is_answered):
            self._closing_since = now if self._closing_since is None else self._closing_since
            if now - self._closing_since > LINGER_SECONDS:  # its last answer is not taken
                self.abort()
        elif self._write_paused_since is not None and now - self._write_paused_since > limits.body_seconds:
            self.guard.refused(408)
            self.abort()
        elif self.waiting is HEAD and waited > limits.head_seconds:
            self.refuse(RefusedError(408, f"the request's head did not arrive within {limits.head_seconds:g} seconds"))
        elif self.waiting is FIRST and self.cycle is None and waited > limits.head_seconds:
            self.transport.close()  # uvicorn sees to the time between two requests
        elif self.waiting is BODY and waited > limits.body_seconds + 2 * LINGER_SECONDS:
            self.guard.refused(408)  # the application has said so, or was never interested in it
            self.abort()
        elif self._is_half_closed:
            self._probe()

    # What arrives.

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            self._throw_away().add_done_callback(lambda _: self.transport.close())
        elif len(data) <= PORTION and not self._backlog and (self._is_known or self.guard.turns.may_begin()):
            if self._is_known and self.waiting is FIRST:
                self.guard.turns.expect()
            self._take(data)
        else:
            self._backlog.add(data, self._plain, not self._is_known)

    def _throw_away(self) -> asyncio.Future[None]:
        """Take no notice of anything that comes from now on; done when the client has stopped."""
        if self._drain is None:
            self._flow.stop()
            self._drain = Drain(self.transport, self.guard.turns)
        return self._drain.ended

    async def _refused(self) -> None:
        """The application has refused this request, and does not read its rest."""
        self._is_refused = True
        await self._throw_away()

    def _take(self, data: bytes) -> int:
        """Parse what has arrived; the bytes of a whole body that are still to come."""
        if not self._is_refused and not self.transport.is_closing():
            self._take_in(data)
        else:
            self._backlog.drop()
        return self._plain

    def _worked_off(self) -> None:
        if self._has_ended and not self.transport.is_closing() and self.eof_received() is None:
            self.transport.close()

    def _take_in(self, data: bytes) -> None:
        if self.waiting is FIRST:
            self.waiting, self.since = HEAD, self.loop.time()
        self._unset_keepalive_if_required()
        self._unproductive += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse_in_turn(self._problem or RefusedError(400, "this is not a request of HTTP/1.1"))
            return
        if self._unproductive > self.guard.head_bytes:
            self._refuse_in_turn(self._head_too_large())

    def _parse(self, data: bytes) -> None:
        """Feed the parser, which takes a wish for another protocol for granted: such a request begins anew without."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._is_upgrade:
                version = self.parser.get_http_version().encode()
                head = [self.parser.get_method(), b" ", self.url, b" HTTP/", version, b"\r\n"]
                for name, value in self.headers:
                    if name != b"upgrade":
                        head += [name, b": ", value, b"\r\n"]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
                self._is_upgrade = False
                self._parse(b"".join([*head, b"\r\n", data[upgrade.args[0] :]]))

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client sends no more. It may still wait for its answer, or have gone."""
        if self._backlog:  # asked again behind it
            self._has_ended = True
            return True
        if self.waiting is FIRST:
            return None
        is_answered = self.cycle is None or self.cycle.response_complete
        if self._is_refused:  # what was whole before it is still answered
            if self._refusal is not None:
                return True
            return None if is_answered or self.cycle.disconnected else True
        if self.waiting is HEAD or (self.waiting is BODY and not is_answered):
            self._refuse_in_turn(RefusedError(400, "the connection ended before the request did"))
            return True
        if is_answered:
            return None
        self.cycle.keep_alive = False
        self._is_half_closed = True
        first = not self.pipeline and not self.cycle.response_started
        if first and self.cycle.scope["http_version"] == "1.1":
            # Whoever has gone answers this with a reset, and need not be predicted for; others pass over it.
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            for seconds in _PROBE_SECONDS:
                self.loop.call_later(seconds, self._probe)
        return True

    def _probe(self) -> None:
        """Look whether a client that sends no more has gone altogether."""
        if self.transport.is_closing() or self.cycle is None or self.cycle.response_complete:
            return
        line: socket.socket = self.transport.get_extra_info("socket")
        if line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (errno.EPIPE, errno.ECONNRESET):
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self.abort()

    # What the parser finds.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.waiting = HEAD
        self._head_bytes = self._num_headers = self._discarded = 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._num_headers += 1
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > self._most_head_bytes or self._num_headers > self._most_headers:
            self._count(0)  # says which
        if self.waiting is HEAD:  # what comes behind a body in pieces is not looked at
            HttpToolsProtocol.on_header(self, name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= PIPELINED:
            raise self._unfit(RefusedError(503, f"more than {PIPELINED} requests wait on this connection"))
        self._unproductive = 0
        self._is_upgrade = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._is_upgrade:
            return
        self._check_framing()
        self.waiting, self.since = BODY, self.loop.time()
        self.scope.update({KNOWN: self._is_known, DRAIN: self._refused})  # type: ignore[misc]
        super().on_headers_complete()
        if self._running is None or self._running.response_complete:
            self._running = self.cycle

    def _check_framing(self) -> None:
        """Refuse a body whose end a proxy could see elsewhere."""
        self._plain = 0
        for name, value in self.headers:
            if name == b"transfer-encoding" and (
                value.strip().lower() != b"chunked" or self.parser.get_http_version() != "1.1"
            ):
                raise self._unfit(RefusedError(400, "a body comes whole or chunked, in HTTP/1.1, and not otherwise"))
            if name == b"content-length" and len(value) < 19 and value.isdigit():
                self._plain = int(value)

    def on_body(self, body: bytes) -> None:
        self._unproductive = 0
        self._plain -= len(body)
        if self.cycle.response_complete:
            self._discarded += len(body)
            if self._discarded > self.guard.body_bytes:
                raise self._unfit(RefusedError(413, "the body goes on behind its answer"))
        super().on_body(body)

    def on_chunk_header(self) -> None:
        """A piece of a body begins."""
        self._unproductive = 0

    def on_message_complete(self) -> None:
        self._unproductive = self._plain = 0
        if self._is_upgrade:  # it begins anew
            return
        self.waiting = FIRST if self.cycle.response_complete else ANSWER
        self.since = self.loop.time()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.waiting is ANSWER and not self.pipeline:
            self.waiting, self.since = FIRST, self.loop.time()
        if self.pipeline:
            self._running = self.pipeline[-1][0]  # uvicorn begins with it now
        self._is_known = True
        super().on_response_complete()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self.guard.head_bytes:
            raise self._unfit(self._head_too_large())
        if self._num_headers > self.guard.limits.max_headers:
            most = self.guard.limits.max_headers
            raise self._unfit(RefusedError(431, f"the request has more than the {most:,} headers that are taken"))

    def _head_too_large(self) -> RefusedError:
        most = self.guard.head_bytes
        return RefusedError(431, f"the request's line and headers are longer than the {most:,} bytes that are taken")

    def _unfit(self, problem: RefusedError) -> _UnfitError:
        self._problem = problem
        return _UnfitError(problem.message)

    # Refusing.

    def _refuse_in_turn(self, refusal: RefusedError) -> None:
        """Read no further, and say so when it does not keep short requests waiting."""
        self._is_refused, self._refusal = True, refusal
        self.guard.turns.add(self)

    def work(self) -> bool:
        """Say what is wrong: it is this connection's turn."""
        refusal, self._refusal = self._refusal, None
        if refusal is not None and not self.transport.is_closing():
            self.refuse(refusal)
        return True

    def refuse(self, refusal: RefusedError) -> None:
        """Say what is wrong and read no further. Requests that were whole are answered first."""
        self._is_refused = True
        self.guard.refused(refusal.status)
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False
            if self.waiting is not BODY:
                return  # it closes behind the answers that are due
            cycle.disconnected = True  # the application waits for a body that does not come
            cycle.message_event.set()
            if cycle.response_started or self.pipeline:
                self.transport.close()
                return
        elif self.waiting is BODY:  # answered already
            self.abort()
            return
        content = refusal.content()
        head = f"content-type: application/json\r\ncontent-length: {len(content)}\r\nconnection: close\r\n"
        head += "retry-after: 1\r\n" * (refusal.status == 503)
        self.transport.write(b"".join([STATUS_LINE[refusal.status], head.encode(), b"\r\n", content]))
        if self._is_half_closed or not self.transport.can_write_eof():
            self.transport.close()
        else:
            self.transport.write_eof()  # closed at once, the answer could be lost to a reset
