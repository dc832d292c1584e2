"""Rows as JSON brings them: what passes, what it becomes, and what the others are told."""

from __future__ import annotations

import datetime
import pickle

import pytest

from penstock.core.schema import ColumnSchema, Schema
from penstock.serve.checking import RowChecker, RowError


def converted(column: ColumnSchema, value, as_features: bool = False):
    return RowChecker(Schema([column]), as_features)([{column.name: value}])[0][column.name]


def refused(column: ColumnSchema, value, as_features: bool = False) -> RowError:
    with pytest.raises(RowError) as found:
        RowChecker(Schema([column]), as_features)([{column.name: None}] * (not as_features) + [{column.name: value}])
    assert found.value.row == (not as_features) and found.value.field == column.name
    return found.value


HEX = ColumnSchema("c", "uint32", properties={"text": "hex"})


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        (ColumnSchema("c", "int32"), 7, 7),
        (ColumnSchema("c", "int32"), 7.0, 7),
        (ColumnSchema("c", "int32"), None, None),
        (ColumnSchema("c", "uint64"), 2**64 - 1, 2**64 - 1),
        (HEX, "68fd1e64", 0x68FD1E64),
        (HEX, 5, 5),
        (ColumnSchema("c", "float32"), 3, 3.0),
        (ColumnSchema("c", "float64"), 1e300, 1e300),
        (ColumnSchema("c", "string"), "", ""),
        (ColumnSchema("c", "bool"), True, True),
        (ColumnSchema("c", "binary"), "AAE=", b"\0\1"),
        (ColumnSchema("c", "date"), "2026-11-15", datetime.date(2026, 11, 15)),
        (ColumnSchema("c", "time"), "13:45:00", datetime.time(13, 45)),
        (ColumnSchema("c", "datetime[us]"), "2026-11-15T13:45:00", datetime.datetime(2026, 11, 15, 13, 45)),
        (ColumnSchema("c", "datetime[us]"), "2026-11-15T13:45:00+01:00", datetime.datetime(2026, 11, 15, 12, 45)),
        (ColumnSchema("c", "int64", is_list=True), [1, None, 2.0], [1, None, 2]),
        (ColumnSchema("c", "int64", is_list=True), [], []),
        (ColumnSchema("c", "int64", is_list=True), None, None),
    ],
)
def test_what_passes(column, value, expected) -> None:
    got = converted(column, value)
    assert got == expected and type(got) is type(expected)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (ColumnSchema("c", "int32"), "7", 'must be an integer from -2147483648 to 2147483647 or null, got "7"'),
        (ColumnSchema("c", "int32"), 7.5, "got 7.5"),
        (ColumnSchema("c", "int32"), True, "got true"),
        (ColumnSchema("c", "int8"), 128, "from -128 to 127"),
        (ColumnSchema("c", "int64"), float("inf"), "which JSON does not have; send null"),
        (HEX, "zz", 'must be hexadecimal text or an integer from 0 to 4294967295 or null, got "zz"'),
        (HEX, "1" * 9, "got"),
        (HEX, "-1", "got"),
        (HEX, 1.0, "got 1.0"),
        (ColumnSchema("c", "float32"), float("nan"), "NaN"),
        (ColumnSchema("c", "float32"), 1e39, "a finite number that float32 can hold"),
        (ColumnSchema("c", "float64"), 10**400, "a finite number that float64 can hold"),
        (ColumnSchema("c", "float32"), "3", 'got "3"'),
        (ColumnSchema("c", "string"), 3, "must be a string or null, got 3"),
        (ColumnSchema("c", "string"), {"a": ["x" * 100]}, "…"),
        (ColumnSchema("c", "bool"), 1, "true or false"),
        (ColumnSchema("c", "binary"), "?", "base64"),
        (ColumnSchema("c", "date"), "15.11.2026", "ISO"),
        (ColumnSchema("c", "datetime[ms]"), 5, "ISO"),
        (ColumnSchema("c", "int64", is_list=True), 5, "a list, each item an integer"),
        (ColumnSchema("c", "int64", is_list=True), [1, "2"], "a list, each item an integer"),
        (ColumnSchema("c", "null"), 1, "must be nothing or null"),
    ],
)
def test_what_does_not_pass(column, value, words) -> None:
    assert words in str(refused(column, value))


def test_features_are_codes_inside_their_tables_and_never_null() -> None:
    column = ColumnSchema("c", "int32", role="categorical", cardinality=10)
    assert converted(column, 9, as_features=True) == 9
    for value in (10, -1, None):
        assert "from 0 to 9" in str(refused(column, value, as_features=True))


def test_fields_that_are_missing_or_too_many() -> None:
    check = RowChecker(Schema([ColumnSchema("user", "string"), ColumnSchema("ad", "int64")]))
    assert check([{"ad": 1, "user": "a", "click": 1}]) == [{"user": "a", "ad": 1}]
    assert check([]) == []
    with pytest.raises(RowError, match=r"row 1, field 'user': is missing; did you mean 'usr'\?.*send null"):
        check([{"ad": 1, "user": "a"}, {"ad": 1, "usr": "a"}])
    for row in (3, None, ["a", 1], "text"):
        with pytest.raises(RowError, match="row 0: a row is an object"):
            check([row])


def test_an_error_crosses_processes() -> None:
    error = pickle.loads(pickle.dumps(RowError("is bad", 3, "price")))
    assert (str(error), error.row, error.field) == ("row 3, field 'price': is bad", 3, "price")
