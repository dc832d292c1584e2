"""The rows in a request's body, found within bounds.

A C parser keeps Python's lock until it is done, so a body of megabytes that is parsed in one call stops every thread,
whichever one it runs on. Short bodies are parsed in one call; long ones a portion at a time, by a generator that stops
between two of them, and no further than to the first row too many.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from penstock.serve.http.requests import RefusedError

AT_ONCE = 1 << 14  # bytes that are parsed in one call, in a few tenths of a millisecond
_LISTS_AT_ONCE = 400  # lists and objects in them: each costs a hundred times its two bytes
_PORTION = 1 << 12  # characters of a long body that are: the lock is free again within two tenths of one
_PIECE = 1 << 16  # bytes of it that are decoded in one call
_DEPTH = 8  # of what is longer than a portion
_DECODER = json.JSONDecoder()
_SLACK = 1 << 16  # bytes of a body that are neither in a row nor in a value beside them
_SPACE = re.compile(r"[ \t\n\r]{0,65536}")
_Found = TypeVar("_Found")
Steps = Generator[None, None, _Found]  # stops between two portions, and returns what was found
_FORM = 'the body must be {"rows": [{column: value, …}, …]}'


@dataclass(frozen=True)
class BodySize:
    """What a body may hold at most.

    Args:
        rows: of them.
        row: characters that one row may have, where the body is long.
        lists: lists and objects that a row may have inside it, on the average of `rows`, where the body is long: each
            costs a hundred times its two characters, and the collector goes through all of them.

    >>> BodySize(rows=10, row=1000).check(num_bytes=4_000_000, num_lists=3)
    Traceback (most recent call last):
    ...
    penstock.serve.http.requests.RefusedError: a row, or a value beside the rows, is longer than the 1,000 characters...
    """

    rows: int
    row: int
    lists: int = 16

    def check(self, num_bytes: int, num_lists: int) -> None:
        """Refuse a long body as soon as what has arrived of it cannot be the beginning of a good one.

        Args:
            num_bytes: that have arrived.
            num_lists: brackets and braces that open in them.

        Raises:
            RefusedError: there are too many lists and objects, or so few that one of them must be too long.
        """
        most = (1 + self.rows) * (1 + self.lists)
        if num_lists > most:
            message = f"more than the {most:,} lists and objects that are taken at once; send fewer rows"
            raise RefusedError(413, message, closes=True)
        if num_bytes > (1 + num_lists) * self.row + _SLACK:
            message = f"a row, or a value beside the rows, is longer than the {self.row:,} characters that are taken"
            raise RefusedError(413, message, closes=True)


def count_lists(part: bytes) -> int:
    """Lists and objects that begin in a part of a body; signs in its texts count as well."""
    if len(part) <= AT_ONCE:
        return part.count(b"[") + part.count(b"{")
    signs = np.frombuffer(part, np.uint8)  # counts thousands of them as fast as none
    return int(np.count_nonzero(signs == ord("[")) + np.count_nonzero(signs == ord("{")))


def is_short(body: bytes) -> bool:
    """Whether a body is parsed in less than a millisecond."""
    return len(body) <= AT_ONCE and count_lists(body) <= _LISTS_AT_ONCE


def parse_short(body: bytes, size: BodySize) -> list[Any] | None:
    """The rows of a short body; None where something is wrong with it, which `parse_rows` can tell.

    >>> parse_short(b'{"rows": [{"price": 3}]}', BodySize(rows=10, row=100))
    [{'price': 3}]
    """
    try:
        content = json.loads(body.decode())
    except (ValueError, RecursionError):
        return None
    rows = content.get("rows") if isinstance(content, dict) else None
    return rows if isinstance(rows, list) and len(rows) <= size.rows else None


def parse_rows(body: bytes, size: BodySize) -> Steps[list[Any]]:
    """The rows of a body `{"rows": […]}`, unchecked, found in steps.

    Args:
        body: JSON in UTF-8.
        size: what is taken.

    Returns:
        What stands in the list: of a valid request, dicts.

    Raises:
        RefusedError: where it is no such JSON (400) or too much (413).

    >>> in_one_go(parse_rows(b'{"rows": [{"price": 3}]}', BodySize(rows=10, row=100)))
    [{'price': 3}]
    """
    text = yield from _decoded(body)
    return (yield from _Walk(text, replace(size, row=AT_ONCE) if len(body) <= AT_ONCE else size).rows())


def in_one_go(steps: Steps[_Found]) -> _Found:
    """What steps find, where nobody waits."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: _Found = done.value
            return found


def _decoded(body: bytes) -> Steps[str]:
    decoder, parts = codecs.getincrementaldecoder("utf-8")(), []
    for begin in range(0, max(1, len(body)), _PIECE):
        pending = len(decoder.getstate()[0])
        try:
            parts.append(decoder.decode(body[begin : begin + _PIECE], final=begin + _PIECE >= len(body)))
        except UnicodeDecodeError as error:
            at = begin - pending + error.start
            raise RefusedError(400, f"malformed JSON: it is not UTF-8 text: {error.reason} at byte {at}") from None
        yield
    return "".join(parts)


class _Walk:
    """Goes through the text of a request, a value at a time."""

    def __init__(self, text: str, size: BodySize) -> None:
        self._text, self._max_rows, self._max_row = text, size.rows, size.row
        self._window, self._start = text[: 2 * _PORTION], 0  # what the decoder is shown, so that it stops in time
        self._row: int | None = None

    def rows(self) -> Steps[list[Any]]:
        """The rows; all of the text has been looked at then."""
        rows: Any = None
        at = self._space(0)
        if not self._text.startswith("{", at):
            yield from self._value(at)
            raise RefusedError(400, _FORM)
        at = self._space(at + 1)
        while not self._text.startswith("}", at):
            key, at = yield from self._key(at)
            if key == "rows" and self._text.startswith("[", at):
                rows, at = yield from self._list(at)
            else:
                value, at = yield from self._value(at)
                rows = value if key == "rows" else rows
            at = self._next(at, "}")
        if (end := self._space(at + 1)) != len(self._text):
            raise self._malformed("more text behind its end", end)
        if not isinstance(rows, list):
            raise RefusedError(400, _FORM)
        return rows

    def _list(self, at: int) -> Steps[tuple[list[Any], int]]:
        rows: list[Any] = []
        at, one_by_one = self._space(at + 1), 0 if self._max_row >= _PORTION else len(self._text)
        while not self._text.startswith("]", at):
            several = None if at < one_by_one else self._several(at, "[]", "},")
            if len(rows) + (1 if several is None else len(several[0])) > self._max_rows:
                message = f"more than {self._max_rows:,} rows in one request; send them in several"
                raise RefusedError(413, message)
            if several is not None:
                rows += several[0]
                at = several[1]
                yield
                continue
            one_by_one = max(one_by_one, at + _PORTION)
            self._row = len(rows)
            row, at = yield from self._value(at)
            self._row = None
            rows.append(row)
            at = self._next(at, "]")
        return rows, at + 1

    def _value(self, at: int, depth: int = 0) -> Steps[tuple[Any, int]]:
        """The value that begins at `at`, and where it ends."""
        yield
        if at - self._start > _PORTION:  # less than a portion of the window may be left
            self._start, self._window = at, self._text[at : at + 2 * _PORTION]
        try:
            value, end = _DECODER.raw_decode(self._window, at - self._start)
        except RecursionError:
            raise self._too_deep() from None
        except json.JSONDecodeError as error:
            if self._start + len(self._window) < len(self._text) and _is_cut(error):
                return (yield from self._long_value(at, depth))
            raise self._malformed(error.msg, self._start + error.pos) from None
        except ValueError as error:  # a number of thousands of digits
            raise self._malformed(str(error).partition(";")[0], at) from None
        if end + self._start - at > self._max_row:
            raise self._too_long()
        return value, end + self._start

    def _long_value(self, at: int, depth: int) -> Steps[tuple[Any, int]]:
        """A value that is longer than a portion: of a list or an object, as many items as a portion has."""
        if self._text[at] not in "[{":
            return self._long_text(at)
        if depth == _DEPTH:
            raise self._too_deep()
        begin, is_object = at, self._text[at] == "{"
        end = "}" if is_object else "]"
        items: list[tuple[str, Any]] | list[Any] = []
        at, one_by_one = self._space(at + 1), 0
        while not self._text.startswith(end, at):
            if at - begin > self._max_row:
                raise self._too_long()
            several = None if at < one_by_one else self._several(at, "{}" if is_object else "[]", ",")
            if several is not None:
                found, at = several
                items += found.items() if is_object else found
                yield
                continue
            one_by_one = max(one_by_one, at + _PORTION)  # what is nested is not tried again for every item
            item, at = yield from (self._item(at, depth + 1) if is_object else self._value(at, depth + 1))
            items.append(item)
            at = self._next(at, end)
        if at - begin >= self._max_row:
            raise self._too_long()
        return dict(items) if is_object else items, at + 1

    def _item(self, at: int, depth: int) -> Steps[tuple[tuple[str, Any], int]]:
        """A name and its value."""
        key, at = yield from self._key(at, depth)
        value, at = yield from self._value(at, depth)
        return (key, value), at

    def _key(self, at: int, depth: int = 0) -> Steps[tuple[str, int]]:
        key, end = yield from self._value(at, depth)
        if not isinstance(key, str):
            raise self._malformed("a name in double quotes is expected", at)
        return key, self._after(end, ":")

    def _several(self, at: int, brackets: str, sign: str) -> tuple[Any, int] | None:
        """The items up to the last `sign` of a portion, which ends with a comma, and where the next begins; None where
        it is inside of one."""
        last = self._text.rfind(sign, at, at + _PORTION) + len(sign) - 1
        if last <= at:
            return None
        try:
            found = json.loads(brackets[0] + self._text[at:last] + brackets[1])
        except (ValueError, RecursionError):
            return None
        begins = self._space(last + 1)
        if self._text.startswith(brackets[1], begins):
            raise self._malformed("another value is expected behind the comma", begins)
        return found, begins

    def _long_text(self, at: int) -> tuple[Any, int]:
        try:
            value, end = _DECODER.raw_decode(self._text[at : at + self._max_row + 1])
        except json.JSONDecodeError as error:
            if at + self._max_row + 1 < len(self._text) and _is_cut(error):
                raise self._too_long() from None
            raise self._malformed(error.msg, at + error.pos) from None
        if end > self._max_row:
            raise self._too_long()
        return value, at + end

    def _space(self, at: int) -> int:
        while (found := _SPACE.match(self._text, at)) is not None and found.end() > at:
            at = found.end()
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

    def _too_deep(self) -> RefusedError:
        return RefusedError(400, "malformed JSON: nested too deeply", self._row)

    def _too_long(self) -> RefusedError:
        what = "a value beside the rows" if self._row is None else f"row {self._row}"
        return RefusedError(413, f"{what} is longer than the {self._max_row:,} characters that are taken", self._row)


def _is_cut(error: json.JSONDecodeError) -> bool:
    """Whether the text that the decoder was shown may only have ended too early."""
    return error.msg.startswith("Unterminated") or len(error.doc) - error.pos < 32
