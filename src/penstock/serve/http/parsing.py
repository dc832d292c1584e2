"""The rows in a request's body, found within bounds.

A C parser keeps Python's lock until it is done, so a body of megabytes that is parsed in one call stops every thread,
whichever one it runs on. Short bodies are parsed in one call; long ones a row at a time, long rows a portion at a time,
and no further than to the first row too many.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from penstock.serve.http.requests import RefusedError

AT_ONCE = 1 << 16  # bytes that are parsed in one call, in about a millisecond
_PORTION = 1 << 13  # characters of a long body that are: the lock is free again within a few tenths of one
_DEPTH = 8  # of what is longer than a portion
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]{0,65536}")
_FORM = 'the body must be {"rows": [{column: value, …}, …]}'


@dataclass(frozen=True)
class BodySize:
    """What a body may hold at most.

    Args:
        rows: of them.
        row: characters that one row may have, where the body is long.
        lists: lists and objects that a row may have inside it, on the average of `rows`, where the body is long: each
            costs a hundred times its two characters, and the collector goes through all of them.
    """

    rows: int
    row: int
    lists: int = 16


def parse_rows(body: bytes, size: BodySize) -> list[Any]:
    """The rows of a body `{"rows": […]}`, unchecked.

    Args:
        body: JSON in UTF-8.
        size: what is taken.

    Returns:
        What stands in the list: of a valid request, dicts.

    Raises:
        RefusedError: where it is no such JSON (400) or too much (413).

    >>> parse_rows(b'{"rows": [{"price": 3}]}', BodySize(rows=10, row=100))
    [{'price': 3}]
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise RefusedError(400, f"malformed JSON: it is not UTF-8 text: {error.reason} at byte {error.start}") from None
    if len(body) > AT_ONCE:
        return _Walk(text, size).rows()
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        _Walk(text, replace(size, row=AT_ONCE)).rows()  # says where
        raise RefusedError(400, "malformed JSON") from None
    rows = content.get("rows") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise RefusedError(400, _FORM)
    if len(rows) > size.rows:
        raise RefusedError(413, f"{len(rows):,} rows in one request; at most {size.rows:,} are taken at once")
    return rows


class _Walk:
    """Goes through the text of a request, a value at a time."""

    def __init__(self, text: str, size: BodySize) -> None:
        self._text, self._max_rows, self._max_row = text, size.rows, size.row
        self._window, self._start = text[: 2 * _PORTION], 0  # what the decoder is shown, so that it stops in time
        self._row: int | None = None
        self._lists, self._max_lists = 0, (1 + size.rows) * (1 + size.lists)

    def rows(self) -> list[Any]:
        """The rows; all of the text has been looked at then."""
        rows: Any = None
        at = self._space(0)
        if not self._text.startswith("{", at):
            self._value(at)
            raise RefusedError(400, _FORM)
        at = self._space(at + 1)
        while not self._text.startswith("}", at):
            key, at = self._key(at)
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

    def _value(self, at: int, depth: int = 0) -> tuple[Any, int]:
        """The value that begins at `at`, and where it ends."""
        if at - self._start > _PORTION:  # less than a portion of the window may be left
            self._count_lists(self._start, at)
            self._start, self._window = at, self._text[at : at + 2 * _PORTION]
        try:
            value, end = _DECODER.raw_decode(self._window, at - self._start)
        except RecursionError:
            raise self._too_deep() from None
        except json.JSONDecodeError as error:
            if self._start + len(self._window) < len(self._text) and _is_cut(error):
                return self._long_value(at, depth)
            raise self._malformed(error.msg, self._start + error.pos) from None
        except ValueError as error:  # a number of thousands of digits
            raise self._malformed(str(error).partition(";")[0], at) from None
        if end + self._start - at > self._max_row:
            raise self._too_long()
        return value, end + self._start

    def _long_value(self, at: int, depth: int) -> tuple[Any, int]:
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
            several = None if at < one_by_one else self._several(at, is_object)
            if several is not None:
                found, at = several
                items += found
                continue
            one_by_one = max(one_by_one, at + _PORTION)  # what is nested is not tried again for every item
            item, at = self._item(at, depth + 1) if is_object else self._value(at, depth + 1)
            items.append(item)
            at = self._next(at, end)
        if at - begin >= self._max_row:
            raise self._too_long()
        return dict(items) if is_object else items, at + 1

    def _item(self, at: int, depth: int = 0) -> tuple[tuple[str, Any], int]:
        """A name and its value."""
        key, at = self._key(at, depth)
        value, at = self._value(at, depth)
        return (key, value), at

    def _key(self, at: int, depth: int = 0) -> tuple[str, int]:
        key, end = self._value(at, depth)
        if not isinstance(key, str):
            raise self._malformed("a name in double quotes is expected", at)
        return key, self._after(end, ":")

    def _several(self, at: int, is_object: bool) -> tuple[list[Any], int] | None:
        """The items up to the last comma of a portion, and where the next begins; None where it is inside of one."""
        last = self._text.rfind(",", at, at + _PORTION)
        if last <= at:
            return None
        brackets = "{}" if is_object else "[]"
        try:
            found = json.loads(brackets[0] + self._text[at:last] + brackets[1])
        except (ValueError, RecursionError):
            return None
        begins = self._space(last + 1)
        if self._text.startswith(brackets[1], begins):
            raise self._malformed("another value is expected behind the comma", begins)
        return list(found.items()) if is_object else found, begins

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

    def _count_lists(self, start: int, end: int) -> None:
        self._lists += self._text.count("[", start, end) + self._text.count("{", start, end)
        if self._lists > self._max_lists:
            message = f"more than the {self._max_lists:,} lists and objects that are taken at once; send fewer rows"
            raise RefusedError(413, message, self._row)

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

    def _too_deep(self) -> RefusedError:
        return RefusedError(400, "malformed JSON: nested too deeply", self._row)

    def _too_long(self) -> RefusedError:
        what = "a value beside the rows" if self._row is None else f"row {self._row}"
        return RefusedError(413, f"{what} is longer than the {self._max_row:,} characters that are taken", self._row)


def _is_cut(error: json.JSONDecodeError) -> bool:
    """Whether the text that the decoder was shown may only have ended too early."""
    return error.msg.startswith("Unterminated") or len(error.doc) - error.pos < 32
