"""Changed text files: read as the oracle reads them, or refused, in bounded time. By hand: text_cases.py."""

import os
import time
from pathlib import Path

import pytest
from guarded import sweep

from penstock.core.errors import DataError
from penstock.data import Dataset

SCRIPT = Path(__file__).with_name("text_cases.py")
# Each of these differed from the oracle once: text beyond ASCII went another way, where numbers meant other things.
FOUND = (718, 747, 800, 832, 1227, 1306, 1407, 1455, 210895, 211064, 719965, 725263)


def test_changed_files_are_read_right_or_refused():
    found = sweep(SCRIPT, [*range(300), *FOUND])
    assert found.findings == []
    assert found.tries == 300 + len(FOUND)
    assert min(found.read, found.refused) > 40  # else nothing was tried


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100_000, 120_000, 5_000))
def test_many_changed_files(first):
    print(f"seeds {first} to {first + 5_000}")
    found = sweep(SCRIPT, range(first, first + 5_000))
    print(f"{found.tries} tries: {found.read} read, {found.refused} refused")
    assert found.findings == []


def test_long_and_tiny_numbers_take_no_time(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("1e-10000000\n1e10000000\n" + "1" * 5000 + "\n0." + "0" * 5000 + "1\n16777217\n")
    began = time.process_time()
    values = Dataset(str(path), names=["x"], dtypes={"x": "float32"}).to_polars()["x"].to_list()
    assert values == [0.0, float("inf"), float("inf"), 0.0, 16777216.0]
    assert time.process_time() - began < 5


def test_a_line_that_is_no_utf8_is_named(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b"a\t1\nb\xff\t2\nc\t3\n")
    options = {"names": ["s", "x"], "dtypes": {"s": "string", "x": "int64"}}
    with pytest.raises(DataError, match=r"a\.tsv, line 2: bytes that are no UTF-8"):
        Dataset(str(path), **options).to_polars()
    with pytest.warns(UserWarning, match=r"line 2: bytes that are no UTF-8"):
        rows = Dataset(str(path), **options, on_error="null").to_polars().rows()
    assert rows == [("a", 1), (None, 2), ("c", 3)]
    with pytest.warns(UserWarning, match=r"line 2"):
        assert Dataset(str(path), **options, on_error="skip").to_polars().rows() == [("a", 1), ("c", 3)]
    path.write_bytes(b"na\xffme\n1\n")
    with pytest.raises(DataError, match=r"a\.tsv, line 1: the names"):
        Dataset(str(path))


def test_strings_outlive_their_file(tmp_path):
    path = tmp_path / "a.tsv"
    text = "".join(f"a string longer than twelve bytes, number {i}\n" for i in range(50_000))
    path.write_text(text)
    frame = Dataset(str(path), names=["s"], dtypes={"s": "string"}).to_polars()
    with path.open("r+b") as file:  # rewritten in place, then truncated, as logrotate's copytruncate does
        file.write(b"X" * len(text))
    os.truncate(path, 0)
    assert frame["s"].to_list() == text.splitlines()


def test_signs_blanks_and_prefixes_are_not_hexadecimal(tmp_path):
    for text, name in ((" 0x1_a ", "a.tsv"), ('" 0x1_a "', "a.csv"), ('"0x1a"', "b.csv"), ('"+1a"', "c.csv")):
        path = tmp_path / name
        path.write_text(f"{text}\n")
        with pytest.raises(DataError, match="hex"):
            Dataset(str(path), names=["h"], dtypes={"h": "hex32"}).to_polars()


@pytest.mark.parametrize("quote", ["", '"'], ids=["without quotes", "with quotes"])
def test_lines_are_counted_in_the_file_whatever_was_skipped_before(quote, tmp_path):
    """The number of a line is that of the file: behind records that were dropped, and behind newlines in quotes."""
    path = tmp_path / "a.csv"
    first = b'"a\na",1\n' if quote else b"a,1\na,1\n"
    path.write_bytes(first + b"b\xff,2\nc,3,3\nd,4\ne,x\nf,6\n")
    options = {"names": ["s", "n"], "dtypes": {"s": "string", "n": "int64"}, "separator": ",", "header": False}
    with pytest.warns(UserWarning) as said:
        rows = Dataset(str(path), **options, quote=quote, on_error="skip").to_polars().rows()
    assert [row[1] for row in rows][-2:] == [4, 6]
    text = " ".join(str(warning.message) for warning in said)
    assert "line 3: bytes that are no UTF-8" in text
    assert "line 4: 3 fields, 2 expected" in text or "line 4: too many fields" in text
    if quote:  # what the general reader finds last; the kernel finds both at once and names the first
        assert "line 6: column 'n': 'x' is not a valid int64" in text
