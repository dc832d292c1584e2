"""The rows in a request's body, found within bounds.

A C parser keeps Python's lock until it is done, so a body of megabytes that is parsed in one call stops every thread,
whichever one it runs on. Short bodies are parsed in one call; long ones a row at a time, and no further than to the
first row too many.
"""

from __future__ import annotations

import json
import re
from typing import Any

from penstock.serve.http.requests import RefusedError

AT_ONCE = 1 << 16  # bytes that are parsed in one call, in about a millisecond
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]{0,65536}")
_FORM = 'the body must be {"rows": [{column: value, …}, …]}'


def parse_rows(body: bytes, max_rows: int, max_row: int) -> list[Any]:
    """The rows of a body `{"rows": […]}`, unchecked.

    Args:
        body: JSON in UTF-8.
        max_rows: rows that are taken.
        max_row: characters that one row may have, where the body is long.

    Returns:
        What stands in the list: of a valid request, dicts.

    Raises:
        RefusedError: where it is no such JSON (400) or too much (413).

    >>> parse_rows(b'{"rows": [{"price": 3}]}', 10, 100)
    [{'price': 3}]
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise RefusedError(400, f"malformed JSON: it is not UTF-8 text: {error.reason} at byte {error.start}") from None
    if len(body) > AT_ONCE:
        return _Walk(text, max_rows, max_row).rows()
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        _Walk(text, max_rows, AT_ONCE).rows()  # says where
        raise RefusedError(400, "malformed JSON") from None
    rows = content.get("rows") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise RefusedError(400, _FORM)
    if len(rows) > max_rows:
        raise RefusedError(413, f"{len(rows):,} rows in one request; at most {max_rows:,} are taken at once")
    return rows


class _Walk:
    """Goes through the text of a request, a value at a time."""

    def __init__(self, text: str, max_rows: int, max_row: int) -> None:
        self._text, self._max_rows, self._max_row = text, max_rows, max_row
        self._window, self._start = text[: 2 * max_row], 0  # what the decoder is shown, so that it stops in time
        self._row: int | None = None

    def rows(self) -> list[Any]:
        """The rows; all of the text has been looked at then."""
        rows: Any = None
        at = self._space(0)
        if not self._text.startswith("{", at):
            self._value(at)
            raise RefusedError(400, _FORM)
        at = self._space(at + 1)
        while not self._text.startswith("}", at):
            key, at = self._value(at)
            if not isinstance(key, str):
                raise self._malformed("a name in double quotes is expected", at)
            at = self._after(at, ":")
            if key == "rows" and self._text.startswith("[", at):
                rows, at = self._list(at)
            else:
                value, at = self._value(at)
                rows = value if key == "rows" else rows
            at = self._next(at, "}")
        if (end := self._space(at + 1)) != len(self._text):
            raise self._malformed("more text behind its end", end)
        if not isinstance(rows, list):
            raise RefusedError(400, _FORM)
        return rows

    def _list(self, at: int) -> tuple[list[Any], int]:
        rows: list[Any] = []
        at = self._space(at + 1)
        while not self._text.startswith("]", at):
            if len(rows) == self._max_rows:
                message = f"more than {self._max_rows:,} rows in one request; send them in several"
                raise RefusedError(413, message)
            self._row = len(rows)
            row, at = self._value(at)
            self._row = None
            rows.append(row)
            at = self._next(at, "]")
        return rows, at + 1

    def _value(self, at: int) -> tuple[Any, int]:
        """The value that begins at `at`, and where it ends."""
        if at - self._start > self._max_row:  # less than a row's worth of the window may be left
            self._start, self._window = at, self._text[at : at + 2 * self._max_row]
        try:
            value, end = _DECODER.raw_decode(self._window, at - self._start)
        except RecursionError:
            raise RefusedError(400, "malformed JSON: nested too deeply", self._row) from None
        except json.JSONDecodeError as error:
            is_cut = self._start + len(self._window) < len(self._text)
            if is_cut and (error.msg.startswith("Unterminated") or len(self._window) - error.pos < 32):
                raise self._too_long() from None
            raise self._malformed(error.msg, self._start + error.pos) from None
        except ValueError as error:  # a number of thousands of digits
            raise self._malformed(str(error).partition(";")[0], at) from None
        if end + self._start - at > self._max_row:
            raise self._too_long()
        return value, end + self._start

    def _space(self, at: int) -> int:
        while (found := _SPACE.match(self._text, at)) is not None and found.end() > at:
            at = found.end()  # in portions, between which other threads may run
        return at

    def _after(self, at: int, sign: str) -> int:
        at = self._space(at)
        if not self._text.startswith(sign, at):
            raise self._malformed(f"{sign!r} is expected", at)
        return self._space(at + 1)

    def _next(self, at: int, end: str) -> int:
        """Where the next item begins, or the `end` of what holds them is."""
        at = self._space(at)
        if self._text.startswith(end, at):
            return at
        at = self._after(at, ",")
        if self._text.startswith(end, at):
            raise self._malformed("another value is expected behind the comma", at)
        return at

    def _malformed(self, reason: str, at: int) -> RefusedError:
        return RefusedError(400, f"malformed JSON: {reason} (character {at:,})", self._row)

    def _too_long(self) -> RefusedError:
        what = "a value beside the rows" if self._row is None else f"row {self._row}"
        return RefusedError(413, f"{what} is longer than the {self._max_row:,} characters that are taken", self._row)
