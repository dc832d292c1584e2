"""Rows from outside: every value is checked against its column, and what is wrong names row and field."""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from penstock.core.dtypes import FLOATS, INTEGERS, to_numpy
from penstock.core.errors import DataError, suggest
from penstock.core.schema import ColumnSchema, Role, Schema

_PREFIXES = ("x", "X")  # of 0x
_ITEMS_SHOWN = 20  # of a list, in an error message
_NAMES_SHOWN = 40  # of a row's fields, where one is missing: each is compared with it
Convert = Callable[[Any], Any]  # a JSON value to what the workflow reads; ValueError or TypeError where it is none


class RowError(DataError):
    """A row that cannot be predicted on: which one, which field, and why.

    >>> error = RowError("must be a number", row=3, field="price")
    >>> str(error), error.row, error.field
    ("row 3, field 'price': must be a number", 3, 'price')
    """

    def __init__(self, reason: str, row: int | None = None, field: str | None = None) -> None:
        self.reason, self.row, self.field = reason, row, field
        where = [f"row {row}"] * (row is not None) + [f"field {field!r}"] * (field is not None)
        super().__init__(f"{', '.join(where)}: {reason}" if where else reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.row, self.field)

    def behind(self, begin: int) -> RowError:
        """The same of a part's row, as that of the whole, in which so many rows are before the part."""
        return self if self.row is None else RowError(self.reason, self.row + begin, self.field)


class RowChecker:
    """Checks rows as JSON brings them, and gives them back with the columns of `schema` only.

    Every column must be there; a missing value is null. Integers may be written as `3.0`, never as text; hashed ids
    (`properties={"text": "hex"}`) as hexadecimal text or as the integer; dates and times as ISO text; binary columns as
    base64. NaN and infinity are refused. With `as_features` the rows go to the model without a workflow: then a
    category is a code inside its table, and nothing may be null.

    >>> check = RowChecker(Schema([ColumnSchema("user", "string"), ColumnSchema("price", "float32")]))
    >>> check([{"user": "ann", "price": 3, "more": 1}])
    [{'user': 'ann', 'price': 3.0}]
    >>> check([{"user": "ann", "price": 3}, {"user": 7, "price": 3}])
    Traceback (most recent call last):
    ...
    penstock.serve.checking.RowError: row 1, field 'user': must be a string or null, got 7
    """

    def __init__(self, schema: Schema, as_features: bool = False) -> None:
        self.schema = schema
        self._columns = [(column.name, *_converter(column, as_features)) for column in schema]
        self._pairs = [(name, convert) for name, convert, _ in self._columns]

    def __call__(self, rows: Iterable[Any]) -> list[dict[str, Any]]:
        pairs, out = self._pairs, []
        for number, row in enumerate(rows):
            try:
                out.append({name: convert(row[name]) for name, convert in pairs})
            except (KeyError, TypeError, ValueError, OverflowError):
                raise self._reason(row, number) from None
        return out

    @property
    def accepted(self) -> list[str]:
        """What each column takes, in words."""
        return [wanted for _, _, wanted in self._columns]

    def example(self) -> dict[str, Any]:
        """A row that passes."""
        return {column.name: _example(column) for column in self.schema}

    def _reason(self, row: Any, number: int) -> RowError:
        """What is wrong with a row that did not pass."""
        if not isinstance(row, Mapping):
            return RowError(f"a row is an object with a value for each column, got {_shown(row)}", number)
        for name, convert, wanted in self._columns:
            if name not in row:
                given = [field[:60] for field in islice(row, _NAMES_SHOWN)]
                return RowError(f"is missing{suggest(name, given, 'fields given')}; send null", number, name)
            try:
                convert(row[name])
            except (TypeError, ValueError, OverflowError):
                return RowError(f"must be {wanted}, got {_shown(row[name])}", number, name)
        return RowError("cannot be read", number)


def _converter(column: ColumnSchema, as_features: bool) -> tuple[Convert, str]:
    """What turns a value of a column into what the workflow reads, and the words for what it must be."""
    one, wanted = _scalar(column, as_features)
    nullable = "" if as_features else " or null"
    if not column.is_list:
        return one, wanted + nullable

    def convert(value: Any) -> Any:
        if type(value) is list:
            return [one(item) for item in value]
        if value is None and not as_features:
            return None
        raise TypeError

    return convert, f"a list, each item {wanted}{nullable}{nullable and ',' + nullable}"


def _scalar(column: ColumnSchema, as_features: bool) -> tuple[Convert, str]:
    # One function a column and no further call inside: this runs for every value of every row.
    dtype, nullable = column.dtype, not as_features
    if dtype in INTEGERS:
        limits = np.iinfo(to_numpy(dtype))
        low, high = int(limits.min), int(limits.max)
        if as_features and column.role is Role.CATEGORICAL:
            low, high = 0, high if column.cardinality is None else column.cardinality - 1
        if column.properties.get("text") == "hex":
            return _hexadecimal(high, nullable), f"hexadecimal text or an integer from 0 to {high}"
        # The bounds of 64 bits are no figures that anybody reads.
        bounds = f"from {low} to {high}" if high < 2**62 else "of 64 bits" + ", not negative" * (low == 0)
        return _integer(low, high, nullable), f"an integer {bounds}"
    if dtype in FLOATS:
        return _number(float(np.finfo(dtype).max), nullable), f"a finite number that {dtype} can hold"
    parse, wanted = _TEXTS.get(dtype, (_moment, "a date and time in ISO form (2026-11-15T13:45:00)"))
    return _parsed(parse, nullable), wanted


def _integer(low: int, high: int, nullable: bool) -> Convert:
    def convert(value: Any) -> int | None:
        if type(value) is not int:
            if value is None and nullable:
                return None
            if type(value) is not float or not value.is_integer():
                raise TypeError
            value = int(value)
        if not low <= value <= high:
            raise ValueError
        checked: int = value
        return checked

    return convert


def _hexadecimal(high: int, nullable: bool) -> Convert:
    def convert(value: Any) -> int | None:
        if type(value) is str:
            if not (value.isalnum() and value.isascii()) or value[1:2] in _PREFIXES:
                raise ValueError  # int() takes signs, spaces, underscores, 0x and the digits of other scripts as well
            value = int(value, 16)
        elif value is None and nullable:
            return None
        elif type(value) is not int:
            raise TypeError
        if not 0 <= value <= high:
            raise ValueError
        checked: int = value
        return checked

    return convert


def _number(largest: float, nullable: bool) -> Convert:
    def convert(value: Any) -> float | None:
        if type(value) is not float:
            if value is None and nullable:
                return None
            if type(value) is not int:
                raise TypeError
            value = float(value)
        if not -largest <= value <= largest:  # NaN fails as well
            raise ValueError
        checked: float = value
        return checked

    return convert


def _parsed(parse: Convert, nullable: bool) -> Convert:
    return lambda value: None if value is None and nullable else parse(value)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    if not value.isascii():
        value.encode()  # half a surrogate pair, which JSON can spell, is no text
    return value


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError
    return value


def _base64(value: Any) -> bytes:
    return base64.b64decode(value, validate=True)


def _moment(value: Any) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(value)
    return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)


def _nothing(value: Any) -> None:
    raise ValueError


_TEXTS: dict[str, tuple[Convert, str]] = {
    "string": (_text, "a string"),
    "bool": (_truth, "true or false"),
    "binary": (_base64, "base64 text"),
    "date": (datetime.date.fromisoformat, "a date in ISO form (2026-11-15)"),
    "time": (datetime.time.fromisoformat, "a time in ISO form (13:45:00)"),
    "null": (_nothing, "nothing"),
}


def _shown(value: Any) -> str:
    """A value in an error message, as JSON writes it, short."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN or infinity, which JSON does not have; send null for a missing value"
    if isinstance(value, (list, dict)) and len(value) > _ITEMS_SHOWN:
        return f"a list of {len(value):,}" if isinstance(value, list) else f"an object with {len(value):,} fields"
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        text = "a value that is nested too deeply"
    return text if len(text) <= 60 else text[:59] + "…"


def _example(column: ColumnSchema) -> Any:
    if column.properties.get("text") == "hex":
        one: Any = "1a"
    elif column.dtype in INTEGERS:
        one = 0
    elif column.dtype in FLOATS:
        one = 0.5
    else:
        texts = {
            "string": "text",
            "bool": True,
            "binary": "AAE=",
            "date": "2026-11-15",
            "time": "13:45:00",
            "null": None,
        }
        one = texts.get(column.dtype, "2026-11-15T13:45:00")
    return [one] if column.is_list else one
