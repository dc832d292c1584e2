"""What a service takes: rows, bytes, connections and time."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.params import Int, Real, check_all
from penstock.data.files import parse_bytes


@dataclass(frozen=True)
class Limits:
    """What a service takes, and how it batches.

    Args:
        max_batch: rows that are predicted in one call.
        max_wait_ms: milliseconds that a batch may wait for more requests; an idle service never waits.
        max_rows: rows in one request.
        max_body: bytes of one request (`"4MB"`).
        max_queue: rows that may wait; beyond it, requests are answered 503.
        max_row: bytes of one row.
        max_bodies: bytes of all requests that are being read; beyond it, the one that has been arriving longest is
            answered 503. At least `max_body`.
        max_head: bytes of a request's line and headers; more are answered 431.
        max_headers: headers of a request; more are answered 431.
        max_connections: connections that are open; beyond them, one that sends no request is closed for a new one, and
            where all have requests under way the new one is answered 503. Never more than the process may open.
        head_seconds: for the line and the headers of a request to arrive; then 408.
        body_seconds: for its body to arrive, and for its answer to be taken; then 408.

    Raises:
        ParameterError: where one is out of range.

    >>> Limits(max_body="1MB").body_bytes
    1000000
    """

    max_batch: int = 128
    max_wait_ms: float = 2.0
    max_rows: int = 1000
    max_body: int | str = "4MB"
    max_queue: int = 4096
    max_row: int | str = "64kB"
    max_bodies: int | str = "64MB"
    max_head: int | str = "32kB"
    max_headers: int = 100
    max_connections: int = 1000
    head_seconds: float = 10.0
    body_seconds: float = 30.0

    def __post_init__(self) -> None:
        numbers = ("max_batch", "max_rows", "max_queue", "max_headers", "max_connections")
        seconds = dict.fromkeys(("head_seconds", "body_seconds"), Real(0.01, 86_400))
        check_all(vars(self), {**dict.fromkeys(numbers, Int(min=1)), **seconds, "max_wait_ms": Real(0, 1000)}, "Limits")
        sizes = {name: parse_bytes(getattr(self, name)) for name in ("max_body", "max_row", "max_bodies", "max_head")}
        check_all(sizes, dict.fromkeys(sizes, Int(min=1)), "Limits")

    @property
    def body_bytes(self) -> int:
        """Bytes of one request."""
        return parse_bytes(self.max_body)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return parse_bytes(self.max_row)

    @property
    def bodies_bytes(self) -> int:
        """Bytes of all requests that are being read."""
        return max(parse_bytes(self.max_bodies), self.body_bytes)

    @property
    def head_bytes(self) -> int:
        """Bytes of a request's line and headers."""
        return parse_bytes(self.max_head)
