"""Text: the fast and the general reader, and malformed lines in every mode."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from penstock import Dataset
from penstock.core.errors import DataError, ParameterError
from penstock.data.bad_lines import BadLineWarning
from penstock.data.formats import text_bytes, text_kernel

NAMES = ["label", "count", "id"]
FAST = {"label": "int8", "count": "int32", "id": "hex32"}
GENERAL = {**FAST, "id": "string"}


@pytest.fixture(params=["fast", "general"])
def dtypes(request):
    return FAST if request.param == "fast" else GENERAL


def written(tmp_path, lines: list[str]) -> str:
    path = tmp_path / "log.tsv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def opened(path, dtypes, **options) -> Dataset:
    return Dataset(path, names=NAMES, dtypes=dtypes, part_size=2000, **options)


GOOD = [f"{i % 2}\t{i}\t{i * 7919:08x}" for i in range(500)]


def test_both_readers_agree(tmp_path):
    path = written(tmp_path, [*GOOD, "1\t\t", "0\t-5\tabc"])
    fast = opened(path, FAST)
    general = opened(path, {**GENERAL, "id": "hex32", "label": "int8"})
    text = opened(path, GENERAL)
    assert fast.num_partitions > 2
    assert fast.num_rows == general.num_rows == text.num_rows == 502
    expected = text.to_polars().with_columns(pl.col("id").str.to_integer(base=16, dtype=pl.UInt32))
    assert fast.to_polars().equals(expected)
    assert general.to_polars().equals(expected)
    assert fast.schema["id"].properties["text"] == "hex"


@pytest.mark.parametrize(
    ("line", "message"),
    [("1\t2", "fields"), ("1\t2\tab\t9", "fields"), ("1\tx\tab", "column 'count'"), ("300\t2\tab", "column 'label'")],
)
def test_raise_names_file_and_line(tmp_path, dtypes, line, message):
    path = written(tmp_path, [*GOOD[:400], line, *GOOD[400:]])
    with pytest.raises(DataError, match=rf"log\.tsv, line 401: .*{message}"):
        opened(path, dtypes).to_polars()


def test_skip_drops_and_counts(tmp_path, dtypes):
    path = written(tmp_path, [*GOOD[:100], "1\t2", *GOOD[100:300], "1\tx\tab", *GOOD[300:]])
    data = opened(path, dtypes, on_error="skip")
    with pytest.warns(BadLineWarning, match="line"):
        report = data.to_parquet(tmp_path / "out")
    assert report.num_rows == 500
    assert report.bad_lines.count == 2
    assert "log.tsv, line 101" in report.bad_lines.first


def test_null_keeps_the_row(tmp_path, dtypes):
    path = written(tmp_path, [*GOOD[:100], "1\t2", "1\tx\tab", "0\t3\tcd\textra"])
    with pytest.warns(BadLineWarning):
        frame = opened(path, dtypes, on_error="null").to_polars()
    assert frame.height == 103
    assert frame["count"].to_list()[100:] == [2, None, 3]
    assert frame["id"].is_null().to_list()[100:] == [True, False, False]


def test_bad_hex_is_an_error_not_a_number(tmp_path):
    path = written(tmp_path, ["1\t2\tzzzzzzzz"])
    with pytest.raises(DataError, match="line 1: column 'id'"):
        opened(path, FAST).to_polars()


def test_windows_line_ends_and_missing_last_newline(tmp_path):
    path = tmp_path / "log.tsv"
    path.write_bytes("\r\n".join(GOOD).encode())
    assert opened(path, FAST).to_polars().height == 500


def test_bad_settings(tmp_path):
    path = written(tmp_path, GOOD)
    with pytest.raises(ParameterError, match="on_error must be one of"):
        opened(path, FAST, on_error="ignore")
    with pytest.raises(DataError, match=r"3 columns .* names= lists 2"):
        Dataset(path, names=["a", "b"])
    with pytest.raises(DataError, match=r"separator .\|\|."):
        Dataset(path, names=NAMES, separator="||")


def test_header_files_must_agree(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text("x,z\n1,2\n")
    with pytest.raises(DataError.__mro__[1], match=r"'y' is not in .*b\.csv"):
        Dataset(tmp_path)


def test_a_long_line_does_not_hide_a_short_one(tmp_path, dtypes):
    path = written(tmp_path, [*GOOD[:50], "1\t2\tab\t9", *GOOD[50:90], "1\t2", *GOOD[90:]])
    with pytest.raises(DataError, match=r"log\.tsv, line 51: .*fields"):
        opened(path, dtypes).to_polars()


def test_text_beyond_ascii_and_quotes_take_the_general_reader(tmp_path):
    frame = pl.DataFrame(
        {"a": ["naïve", "plain", None, 'with "quotes"', "日本語の長い文字列です"], "b": [1, 2, 3, 4, 5]}
    )
    frame.write_csv(tmp_path / "x.csv")
    assert Dataset(tmp_path / "x.csv").to_polars().equals(frame)
    plain = frame.filter(pl.col("a") == "plain")
    plain.write_csv(tmp_path / "y.csv")
    assert Dataset(tmp_path / "y.csv").to_polars().equals(plain)


@pytest.mark.parametrize(
    ("text", "line"), [('a,b\n1,5" pipe\n2,x\n', 2), ('a,b\n1,x\n2,"open\n3,x\n', 3), ('a,b\n1,x\n2,"q"w\n3,y\n', 3)]
)
@pytest.mark.filterwarnings("ignore:CSV malformed")
def test_a_quote_in_the_wrong_place_names_file_and_line(tmp_path, text, line):
    (tmp_path / "a.csv").write_text(text)
    for dtypes in (None, {"a": "int64", "b": "string"}):
        with pytest.raises(DataError, match=rf"a\.csv, line {line}.*quote"):
            Dataset(tmp_path / "a.csv", dtypes=dtypes).to_polars()


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("piece", [8, 64, 1 << 20])
def test_lines_longer_and_shorter_than_a_piece(piece, end, tmp_path, monkeypatch):
    monkeypatch.setattr(text_kernel, "PIECE", piece)
    rows = [(i, "1" * (i % 90 + 1)) for i in range(200)]
    (tmp_path / "a.tsv").write_text("\n".join(f"{a}\t0.{b}" for a, b in rows) + end, newline="")
    data = Dataset(tmp_path / "a.tsv", names=["a", "b"], dtypes={"a": "int32", "b": "float64"}, part_size="2KB")
    assert len(data.partitions) > 3
    assert data.to_polars().rows() == [(a, float(f"0.{b}")) for a, b in rows]
    with (tmp_path / "a.tsv").open("r+") as file:
        file.truncate(3000)
    with pytest.raises(DataError, match="is shorter than when the data set was opened"):
        data.to_polars()


def test_errors_are_counted_over_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(text_kernel, "PIECE", 64)
    (tmp_path / "a.tsv").write_text("".join(f"{i}\n" for i in range(100)) + "x\n" + "5\n" * 50)
    with pytest.raises(DataError, match="line 101: column 'a'"):
        Dataset(tmp_path / "a.tsv", names=["a"], dtypes={"a": "int32"}).to_polars()
    (tmp_path / "b.csv").write_text("".join(f"{i}\n" for i in range(100)) + '"7"\n')
    values = Dataset(tmp_path / "b.csv", names=["a"], dtypes={"a": "int32"}, header=False).to_polars()["a"].to_list()
    assert values == [*range(100), 7]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b\n1,2\n\n\n", 1),
        ("a,b\n1,2\r\n\r\n\r\n", 1),
        ("a,b\n1,2\n\r\r", 1),
        ("a,b\n1,2\n" + "\n" * 200_000, 1),  # more of them than are looked at in one go
        ("a,b\n\n", 0),
        ("a,b\n\n\n\n", 0),
        ("a,b\n1,2", 1),
        ("a\n1\n\n", 2),  # where a row has one field, an empty line is one
    ],
)
def test_empty_lines_at_the_end_are_no_rows(tmp_path, text, rows):
    (tmp_path / "a.csv").write_text(text, newline="")
    data = Dataset(tmp_path / "a.csv", header=True)
    assert (data.num_rows, data.to_polars().height) == (rows, rows)


def test_the_last_line_is_read_as_it_is(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,x\r\r")
    assert Dataset(tmp_path / "a.csv", header=True).to_polars().rows() == [(1, "x\r")]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("part_size", [1, 40, 333])
def test_files_are_cut_between_records_wherever_quotes_and_blocks_lie(tmp_path, monkeypatch, seed, part_size):
    """Quotes are counted in blocks, several at a time; a newline inside quotes is no place to cut at."""
    monkeypatch.setattr(text_bytes, "_BLOCK", 16)
    monkeypatch.setattr(text_bytes, "_WINDOW", 64)
    rng = np.random.default_rng(seed)
    words = [b"a", b"bb,", b'"c\nc"', b'"say ""hi""\n"', b",", b"\n", b"\n"]
    content = b"x,y\n" + b"".join(words[i] for i in rng.integers(0, len(words), 400))
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    expected, inside = [4], False
    for place, byte in enumerate(content):
        inside ^= byte == ord('"')
        if place >= 4 and byte == 10 and not inside and place + 1 - expected[-1] >= part_size:
            expected.append(place + 1)
    expected = [*(cut for cut in expected if cut < len(content)), len(content)]
    assert text_bytes.record_bounds(str(path), True, '"', part_size) == expected
