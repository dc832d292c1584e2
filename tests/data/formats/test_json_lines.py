"""JSON lines: columns and dtypes come from all rows, in pieces of any size; what cannot be read names its line."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

from penstock.core.errors import DataError, SchemaError
from penstock.data import Dataset

LINES = (
    b'{"user": "ann", "click": 1, "price": 2, "tags": ["a", "b"], "gone": null}\n'
    b'{"user": "bob", "click": 0, "price": 2.5, "tags": []}\n'
    b'\n{"price": null, "click": 1, "user": "caf\xc3\xa9", "late": 7}\n'
)


def written(folder: Path, text: bytes, name: str = "rows.jsonl") -> Path:
    (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder / name


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.ndjson.gz", "rows.json", "rows"])
@pytest.mark.parametrize("part_size", [1, 100, 10_000])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_pieces_of_any_size_say_the_same(tmp_path: Path, name: str, part_size: int, mark: bytes) -> None:
    data = Dataset(written(tmp_path, mark + LINES.replace(b"\n", b"\r\n"), name), part_size=part_size)
    expected = pl.DataFrame(
        {"user": ["ann", "bob", "café"], "click": [1, 0, 1], "price": [2.0, 2.5, None],
         "tags": [["a", "b"], [], None], "gone": [None] * 3, "late": [None, None, 7]},
        schema_overrides={"gone": pl.String},
    )  # fmt: skip
    assert data.num_rows == 3
    assert data.to_polars().equals(expected)
    assert data.to_polars(["late", "user"]).equals(expected.select("late", "user"))


def test_ids_beyond_64_bits_are_text(tmp_path: Path) -> None:
    data = Dataset(written(tmp_path, b'{"id": 10000169349117863715}\n{"id": 3}\n'))
    assert data.to_polars()["id"].to_list() == ["10000169349117863715", "3"]


def test_fractions_in_another_file(tmp_path: Path) -> None:
    files = [
        written(tmp_path, b'{"price": %s}\n' % price, f"{i}.jsonl") for i, price in enumerate((b"1", b"0.5", b"2"))
    ]
    assert Dataset(files).to_polars()["price"].to_list() == [1.0, 0.5, 2.0]


def test_dtypes_are_heard_first(tmp_path: Path) -> None:
    mixed = written(tmp_path, b'{"click": true, "zip": 123}\n{"click": 1, "zip": 4}\n')
    with pytest.raises(DataError, match=r"line 2, column 'click': a number, and true or false in line 1"):
        Dataset(mixed)
    data = Dataset(mixed, dtypes={"zip": "string", "click": "string"}, part_size=1)
    assert data.to_polars()["zip"].to_list() == ["123", "4"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"a": 1}\n{"a": 2\n', r"rows\.jsonl, line 2 is no JSON \(.*\); mend it or take it out"),
        (b'{"a": 1}\n\n{"a": NaN}\n', r"rows\.jsonl, line 3 is no JSON \(NaN is no value; write null\)"),
        (b'{"a": 1}\n[1, 2]\n', r"line 2 is no object with columns: '\[1, 2\]'"),
        (b'{"a": {"b": 1}}\n', r"rows\.jsonl, column 'a': Struct.* is not read; write what it holds as columns of "),
        (b'{"a": [{"b": 1}]}\n', r"rows\.jsonl, column 'a': List\(Struct.* is not read"),
        (b'{"a": "\xff"}\n', r"rows\.jsonl"),
        (b'{"a": 1} {"a": 2}\n', r"line 1 is no JSON"),
        (b'{"a": ' + b"[" * 50_000 + b"\n", r"rows\.jsonl"),
        (b"{}\n{}\n", r"rows\.jsonl: its objects have no keys"),
        (b"\n \n", r"rows\.jsonl is empty"),
    ],
)
@pytest.mark.parametrize("part_size", [1, 1_000_000])
def test_what_cannot_be_read_names_its_line(tmp_path: Path, text: bytes, message: str, part_size: int) -> None:
    with pytest.raises(DataError, match=message):
        Dataset(written(tmp_path, text), part_size=part_size)


def test_objects_in_a_column_spoil_no_file(tmp_path: Path) -> None:
    data = Dataset(written(tmp_path, b'{"a": 1, "style": {"Color:": "red"}, "b": [[1], []]}\n{"a": 2}\n'), part_size=1)
    assert data.to_polars().to_dict(as_series=False) == {"a": [1, 2], "b": [[[1], []], None]}
    with pytest.raises(SchemaError, match=r"column 'style' is of type Struct.*, which is not read"):
        data.select(["style"])


def test_a_file_that_is_changed_after_it_was_opened(tmp_path: Path) -> None:
    path = written(tmp_path, b'{"a": 1}\n{"a": 2}\n')
    data = Dataset(path)
    path.write_bytes(b'{"a": 1,"b":234}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl .* open the data set again"):
        data.to_polars()
