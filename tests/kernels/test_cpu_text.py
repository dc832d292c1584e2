"""The text reader against a line-by-line Python parser."""

import mmap
import os
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import ParameterError
from penstock.kernels import cpu_text, reference
from penstock.kernels import cpu_text_fields as fields
from penstock.kernels.cpu_text import count_lines, next_line_start, parse
from penstock.kernels.cpu_text_columns import ERROR_TEXTS, KINDS

NUMBERS = [kind for kind in KINDS if kind not in ("skip", "string")]
ODD_FIELDS = [
    b"", b"0", b"-0", b"+7", b"-", b"+", b"--1", b"1-", b" 1", b"1 ", b"12345678", b"123456789", b"-12345678", b"127",
    b"128", b"-128", b"-129", b"255", b"256", b"65535", b"65536", b"-32768", b"2147483647", b"2147483648",
    b"-2147483648", b"-2147483649", b"4294967295", b"4294967296", b"9223372036854775807", b"9223372036854775808",
    b"-9223372036854775808", b"18446744073709551615", b"18446744073709551616", b"99999999999999999999999",
    b"000000000012", b"68fd1e64", b"FFFFFFFF", b"ffffffff", b"0", b"abc", b"g0000000", b"68fd1e6g", b"68fd1e6:",
    b"68fd1e6/", b"68fd1e6`", b"68fd1e6@", b"68fd1e6\x10", b"68fd1e6\xb0", b"123456789abcdef0", b"123456789abcdef01",
    b"123456789abcdefg", b"1.5", b"-2.25", b".5", b"5.", b".", b"1e5", b"1E-7", b"1e", b"1e+", b"e5", b"1.2.3",
    b"nan", b"-Inf", b"infinity", b"infinite", b"1e400", b"1e-400", b"4.9e-324", b"0.1",
    b"123456789012345678901234567890", b"1.7976931348623157e308", b"0.12345678901234567", b"16777217",
    b"16777217.0000001", b"1.00000005960464477539", b"3.4028235677973366e38", b"3.4028236e38", b"1e-45", b"7e-46",
    b"1.1754943e-38", b"1_000", b"0x10", "٣".encode(), b"\x00",
]  # fmt: skip


def rows_of(parsed):
    """Rows with None for nulls, floats by their bits so that NaN and -0.0 compare."""
    columns = [
        [value if ok else None for value, ok in zip(column.values.tolist(), column.valid().tolist(), strict=True)]
        for column in parsed.columns.values()
    ]
    assert [column.null_count for column in parsed.columns.values()] == [column.count(None) for column in columns]
    return [tuple(map(repr, row)) for row in zip(*columns, strict=True)]


def assert_agrees(text, kinds, on_error="skip", delimiter=b"\t"):
    parsed = parse(text, kinds, delimiter=delimiter, on_error=on_error)
    rows, bad_lines = reference.parse_text(text, kinds, delimiter, on_error)
    assert rows_of(parsed) == [tuple(map(repr, row)) for row in rows]
    assert parsed.num_rows == len(rows)
    assert parsed.num_bad_lines == len(bad_lines)
    assert sorted({error.line for error in parsed.errors}) == bad_lines[:1000]
    return parsed


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("on_error", ["skip", "null"])
def test_every_odd_field_of_every_kind(kind, on_error):
    assert_agrees(b"".join(text + b"\t1\n" for text in ODD_FIELDS), [kind, "int8"], on_error)
    assert_agrees(b"".join(b"1\t" + text + b"\r\n" for text in ODD_FIELDS), ["int8", kind], on_error)
    for text in ODD_FIELDS:
        assert_agrees(text, [kind], on_error)


@pytest.mark.parametrize("num_rows", [0, 1, 63, 64, 65, 127, 128, 129, 1000])
@pytest.mark.parametrize("newline_at_end", [True, False])
def test_click_logs_of_any_length(num_rows, newline_at_end):
    rng = random.Random(num_rows)
    kinds = ["int8", *["int32"] * 4, "float32", *["hex32"] * 6, "hex64", "int64"]

    def one(kind):
        if rng.random() < 0.3:
            return ""
        choices = {"hex32": f"{rng.getrandbits(32):08x}", "hex64": f"{rng.getrandbits(64):x}", "int8": "1"}
        return choices.get(kind, str(round(rng.lognormvariate(3, 2)) - 1))

    text = "".join("\t".join(map(one, kinds)) + "\n" for _ in range(num_rows)).encode()
    parsed = assert_agrees(text if newline_at_end else text.removesuffix(b"\n"), kinds)
    assert parsed.num_lines == num_rows


@pytest.mark.parametrize("on_error", ["skip", "null"])
def test_ragged_lines_among_good_ones(on_error):
    rng = random.Random(9)
    lines = [
        b"\t".join([b"%x" % rng.getrandbits(32)] * (3 if rng.random() < 0.8 else rng.randrange(1, 400)))
        for _ in range(700)
    ]
    lines[5] = b""
    parsed = assert_agrees(b"\n".join(lines) + b"\n", ["hex32"] * 3, on_error)
    codes = {error.code for error in parsed.errors}
    assert codes == {fields.TOO_FEW_FIELDS, fields.TOO_MANY_FIELDS}


@given(
    st.lists(st.lists(st.sampled_from(ODD_FIELDS[:60]) | st.binary(max_size=12), min_size=1, max_size=5), max_size=30),
    st.sampled_from(["skip", "null"]),
)
@settings(max_examples=100, deadline=None)
def test_any_bytes(lines, on_error):
    text = b"\n".join(b",".join(field.replace(b"\n", b"") for field in line) for line in lines)
    assert_agrees(text, ["int16", "hex32", "uint64"], on_error, b",")


def test_a_line_with_far_too_many_fields():
    text = b"1\t2\n" + b"7\t" * 5000 + b"\n3\t4\n"
    assert rows_of(assert_agrees(text, ["int8"] * 2)) == [("1", "2"), ("3", "4")]
    assert rows_of(assert_agrees(text, ["int8"] * 2, "null"))[1] == ("7", "7")


def test_errors_name_line_offset_column_and_reason():
    text = b"1\tab\n2\n3\tzz\n300\t1\n4\t123456789\n5\t6\t7\n"
    parsed = parse(text, ["int8", "hex32"], on_error="raise")
    found = [(error.line, error.column, text[error.offset :][:3], error.text) for error in parsed.errors]
    assert found == [
        (1, 1, b"2\n3", "too few fields"),
        (2, 1, b"zz\n", "not hexadecimal"),
        (3, 0, b"300", "an integer that the column's type cannot hold"),
        (4, 1, b"123", "more hexadecimal digits than the column's type can hold"),
        (5, 2, b"5\t6", "too many fields"),
    ]
    assert parsed.num_bad_lines == 5
    assert set(ERROR_TEXTS) == {
        getattr(fields, name) for name in dir(fields) if name.startswith(("BAD", "TOO", "OUT_OF", "HEX_"))
    }


def test_offsets_count_from_the_start_of_the_range_beyond_the_first_block():
    text = b"".join(b"%d\t1\n" % row for row in range(5000)) + b"x\t1\n"
    (error,) = parse(text, ["int32", "int8"]).errors
    assert (error.line, text[error.offset :]) == (5000, b"x\t1\n")


def test_errors_are_listed_up_to_a_limit_and_all_counted():
    parsed = parse(b"x\n" * 5000, ["int8"], on_error="skip", max_errors=10)
    assert (len(parsed.errors), parsed.num_bad_lines, parsed.num_rows) == (10, 5000, 0)


def test_only_kept_columns_are_returned():
    text = b"1\tjunk\tff\n2\t\t\n"
    parsed = parse(text, ["int8", "skip", "hex32"])
    assert list(parsed.columns) == [0, 2] and rows_of(parsed) == [("1", "255"), ("2", "None")]
    assert rows_of(parse(text, ["int8", "int8", "hex32"], keep=[2])) == [("255",), ("None",)]
    assert parse(text, ["skip"] * 3).num_lines == 2


def test_dropped_rows_do_not_depend_on_the_columns_asked_for():
    text = b"1\tjunk\t1.5\n2\t3\tx\n4\t5\t0.12345678901234567\n"
    kinds = ["int8", "int8", "float64"]
    for keep in ([0], [1], [0, 2], None):
        parsed = parse(text, kinds, keep, on_error="skip")
        assert (parsed.num_rows, parsed.num_bad_lines) == (1, 2)
    assert parse(text, kinds, [0], on_error="raise").errors == []
    assert rows_of(parse(text, kinds, [0], on_error="null")) == [("1",), ("2",), ("4",)]


def test_many_hard_floats_pause_and_resume_the_kernel():
    numbers = np.random.default_rng(0).random(40_000)
    text = "".join(f"{number!r}\t{number!r}\n" for number in numbers.tolist()).encode()
    parsed = parse(text, ["float64", "float32"])
    assert (parsed.columns[0].values == numbers).all()
    assert (parsed.columns[1].values == numbers.astype(np.float32)).all()


def test_buffers_of_every_sort_and_arrow_without_copies(tmp_path):
    path = tmp_path / "part.tsv"
    path.write_bytes(b"1\tff\n\t\n" * 100)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        expected = rows_of(parse(path.read_bytes(), ["int16", "hex32"]))
        assert rows_of(parse(mapped, ["int16", "hex32"])) == expected
    parsed = parse(np.frombuffer(path.read_bytes(), np.uint8), ["int16", "hex32"])
    assert rows_of(parsed) == expected
    column = parsed.columns[1]
    assert column.values.ctypes.data % 64 == 0 and column.bitmap.ctypes.data % 64 == 0
    assert column.to_arrow().buffers()[1].address == column.values.ctypes.data
    frame = parsed.to_polars(["a", "b"])
    assert frame.schema == {"a": pl.Int16, "b": pl.UInt32}
    assert frame.rows()[:2] == [(1, 255), (None, None)] and frame.null_count().row(0) == (100, 100)


def test_threads_parse_ranges_side_by_side():
    text = b"".join(b"%d\t%08x\n" % (row, row * 7919) for row in range(20_000))
    cuts = [next_line_start(text, len(text) * part // 5) for part in range(6)]
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda cut: parse(text[cut[0] : cut[1]], ["int32", "hex32"]), pairwise(cuts)))
    values = np.concatenate([part.columns[0].values for part in parts])
    assert (values == np.arange(20_000)).all()


def test_lines_are_counted_and_found():
    assert [count_lines(text) for text in (b"", b"\n", b"a", b"a\n", b"\n\n", b"x\n" * 1000 + b"y")] == [
        0,
        1,
        1,
        1,
        2,
        1001,
    ]
    text = b"ab\n" + b"c" * 100_000 + b"\n"
    assert [next_line_start(text, position) for position in (0, 2, 3, 4, 10**6)] == [0, 3, 3, len(text), len(text)]


def test_wrong_arguments_name_the_setting():
    with pytest.raises(ParameterError, match="unknown column kind 'hex16'; did you mean"):
        parse(b"", ["hex16"])
    with pytest.raises(ParameterError, match="on_error must be one of"):
        parse(b"", ["int8"], on_error="ignore")
    with pytest.raises(ParameterError, match="delimiter must be one byte"):
        parse(b"", ["int8"], delimiter=b"\n")
    with pytest.raises(ParameterError, match="keep names column 3"):
        parse(b"", ["int8"], keep=[3])
    with pytest.raises(ParameterError, match="at least one column"):
        parse(b"", [])


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
@pytest.mark.parametrize("on_error", ["raise", "skip", "null"])
def test_strings_of_every_length(end, on_error):
    """Views hold up to 12 bytes themselves and point into the text beyond that, also in the copied tail."""
    rows = [(i, "x" * (i % 40) if i % 5 else "", f"id{i}" * (i % 4)) for i in range(300)]
    newline = end or "\n"
    text = newline.join(f"{a}\t{b}\t{c}" for a, b, c in rows) + end
    parsed = parse(text.encode(), ["int32", "string", "string"], on_error=on_error)
    frame = parsed.to_polars(["a", "b", "c"])
    del parsed, text
    assert frame.rows() == [(a, b or None, c or None) for a, b, c in rows]


def test_strings_of_short_lines_are_null():
    parsed = parse(b"1\tabc\n2\n3\tde\n", ["int32", "string"], on_error="null")
    assert parsed.to_polars(["a", "b"]).rows() == [(1, "abc"), (2, None), (3, "de")]
    assert parsed.num_bad_lines == 1
    skipped = parse(b"1\tabc\n2\n3\tde\n", ["int32", "string"], on_error="skip")
    assert skipped.to_polars(["a", "b"]).rows() == [(1, "abc"), (3, "de")]


@pytest.mark.parametrize("on_error", ["raise", "skip", "null"])
@pytest.mark.parametrize("piece", [1, 7, 300, 10**6])
def test_piece_by_piece_is_as_at_once(tmp_path: Path, piece: int, on_error: str) -> None:
    rng = np.random.default_rng(3)
    kinds = ["int32", "float32", "hex64", "float64"]
    lines = [f"{rng.integers(1000)}\t{rng.normal():.17e}\t{rng.integers(2**32):x}\t1.{'1' * 30}" for _ in range(500)]
    lines[7], lines[300], lines[420] = "x\t1\t2", "1\t2\t3\t4\t5", "1\t\tzz\t"
    text = "\n".join(lines).encode()
    (tmp_path / "text").write_bytes(b"before\n" + text)
    whole = cpu_text.parse(text, kinds, on_error=on_error)
    with (tmp_path / "text").open("rb") as file:
        for num_rows in (0, 100, 2000):  # too few: room is made while it goes on
            found = cpu_text.parse_handle(
                file.fileno(), 7, 7 + len(text), kinds, on_error=on_error, num_rows=num_rows, piece=piece
            )
            assert found is not None
            assert (found.num_rows, found.num_lines, found.num_bad_lines) == (whole.num_rows, 500, whole.num_bad_lines)
            assert found.errors == whole.errors
            for index, column in whole.columns.items():
                assert found.columns[index].null_count == column.null_count
                assert np.array_equal(found.columns[index].valid(), column.valid())
                assert found.columns[index].values.tobytes() == column.values.tobytes()
        empty = cpu_text.parse_handle(file.fileno(), 7, 7, kinds)
        assert empty is not None and empty.num_rows == 0


def test_files_that_cannot_be_parsed_to_their_end(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b'1,2\n3,"4"\n')
    with file.open("rb") as opened:
        assert cpu_text.parse_handle(opened.fileno(), 0, 10, ["int8"] * 2, delimiter=b",", quote=ord('"')) is None
        first = cpu_text.parse_handle(opened.fileno(), 0, 4, ["int8"] * 2, delimiter=b",", quote=ord('"'))
        assert first is not None and first.to_polars(["a", "b"]).rows() == [(1, 2)]
        with pytest.raises(EOFError):
            cpu_text.parse_handle(opened.fileno(), 0, 11, ["int8"] * 2, delimiter=b",")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(IsADirectoryError):
            cpu_text.parse_handle(folder, 0, 4, ["int8"])
    finally:
        os.close(folder)
