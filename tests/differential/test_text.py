"""Delimited text against plain Python: both readers give the number that is written, to the last bit, or refuse it.

A file without quotes is read by the kernel, one with quotes by the general reader; they must agree on every field.
What is written as text is read back as it was, without being told how.
"""

from __future__ import annotations

import csv
import io
import re
import tempfile
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Dataset
from penstock.core.errors import DataError
from penstock.data.formats import FORMATS

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64"]
EDGES = [127, 128, 255, 256, 2**15, 2**16, 2**31, 2**32, 2**53 + 1, 2**63, 2**64]
WHOLE = st.sampled_from([*EDGES, *(e - 1 for e in EDGES), *(-e for e in EDGES), 0, 10**19, 10**25]).map(str)
REAL = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-(10**6), 10**6, places=9).map(str),
    st.tuples(st.integers(0, 10**30), st.integers(-340, 310)).map(lambda pair: f"{pair[0]}e{pair[1]}"),
    st.sampled_from(["0.1", ".5", "5.", "-0.0", "1E5", "+1.5", "1e400", "-1e400", "1e-400", "16777217", "1e39",
                     "0.1000000000000000055511151231257827", "9007199254740993", "1.00000017881393432617187499",
                     "1.00000017881393432617187500", "1.00000017881393432617187501", "2.2250738585072011e-308"]),
)  # fmt: skip
ODD = st.sampled_from(
    ["", " ", "\t 5", " 5", "5 ", " 1.5\t", "- 5", "-", "+", "+5", "-0", "007", "--1", "1_000", "0x10", "1e3", "1.0",
     "1.5", "nan", "NaN", "inf", "-inf", "Infinity", "null", "NULL", "NA", "None", "true", "１", "1\x00",
     "1.2.3", "1e", "e5", "."]
)  # fmt: skip
FIELDS = st.lists(WHOLE | REAL | ODD, min_size=1, max_size=4)
_WHOLE = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def nearest(text: str, dtype: str) -> float:
    """The float of a dtype that is nearest to what is written, ties to even."""
    near = float(text)
    if dtype == "float64" or not np.isfinite(near):
        return near
    with np.errstate(over="ignore"):
        guess = np.float32(near)
    if not np.isfinite(guess):
        return float(guess)
    exact = Fraction(text)
    around = [float(np.nextafter(guess, np.float32(way))) for way in (-np.inf, np.inf)] + [float(guess)]
    return min(
        (v for v in around if np.isfinite(v)),
        key=lambda v: (abs(Fraction(v) - exact), int(np.float32(v).view(np.int32)) & 1),
    )


def expected(field: str, dtype: str) -> Any:
    """What a field means, without the blanks around it; `ValueError` where it is no number."""
    field = field.strip(" \t")
    if not field:
        return None
    if dtype in INTEGERS:
        if not _WHOLE.fullmatch(field) or not np.iinfo(dtype).min <= int(field) <= np.iinfo(dtype).max:
            raise ValueError
        return int(field)
    if not _REAL.fullmatch(field):
        raise ValueError
    return nearest(field, dtype)


def read(path: Path, lines: str, dtype: str, size: int) -> list[Any] | None:
    path.write_text(lines, encoding="utf-8", newline="")
    try:
        data = Dataset(path, names=["x", "s"], dtypes={"x": dtype, "s": "string"}, header=False, part_size=size)
        return data.to_polars()["x"].to_list()
    except DataError:
        return None


def check(fields: list[str], dtype: str, end: str, size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain = read(Path(folder, "plain.csv"), "".join(f"{f},a{end}" for f in fields), dtype, size)
        quoted = read(Path(folder, "quoted.csv"), "".join(f'{f},"a"{end}' for f in fields), dtype, size)
    assert repr(plain) == repr(quoted)
    meanings = []
    for field in fields:
        try:
            meanings.append(expected(field, dtype))
        except ValueError:
            meanings.append(field)
    known = [not isinstance(m, str) for m in meanings]
    if plain is None:
        assert not all(known), "refused a number"
        return
    for value, meaning, is_known in zip(plain, meanings, known, strict=True):
        assert not is_known or repr(value) == repr(meaning)
        assert is_known or dtype not in INTEGERS, "an integer that none is written for"


def check_fields(rows: list[list[str]], separator: str, size: int) -> None:
    """Whatever text a field holds, it is read as it was."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.csv")
        path.write_text(text.getvalue(), encoding="utf-8", newline="")
        names = {"a": "string", "b": "string"}
        data = Dataset(path, names=list(names), dtypes=names, header=False, separator=separator, part_size=size)
        assert [list(row) for row in data.to_polars().iter_rows()] == rows


def check_written(kind: str, names: list[str], rows: list[tuple[Any, ...]], cuts: list[int], size: int) -> None:
    """Frames written one after another are read back as they were: names, missing and empty text, every bit."""
    dtypes = {"row": "int64", names[0]: "string", names[1]: "string", names[2]: "float64", names[3]: "float32"}
    schema = dict(zip(dtypes, (pl.Int64, pl.String, pl.String, pl.Float64, pl.Float32), strict=True))
    frame = pl.DataFrame([(i, *row) for i, row in enumerate(rows)], schema=schema, orient="row")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"out.{kind}")
        with FORMATS[kind].writer(path) as writer:
            for start, end in pairwise([0, *sorted(cuts), frame.height]):
                writer.write(frame[start:end])
        found = Dataset(path, dtypes=dtypes, part_size=size).to_polars()
    assert found.columns == frame.columns
    assert repr(found.rows()) == repr(frame.rows())


ENDS, SIZES = st.sampled_from(["\n", "\r\n"]), st.sampled_from([1, 13, 1 << 20])
TEXTS = st.text(st.sampled_from('ab",;\t\n\r é日\u2028'), max_size=5)
ROWS = st.lists(st.tuples(TEXTS, TEXTS).map(list), min_size=1, max_size=5)
NAMES = st.lists(st.text(st.sampled_from('ab",;\t\n é'), min_size=1, max_size=4), min_size=4, max_size=4, unique=True)
WRITTEN = st.lists(
    st.tuples(
        *[st.none() | TEXTS] * 2,
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False),
    ),
    min_size=1,
    max_size=6,
)
CUTS = st.lists(st.integers(0, 6), max_size=3)
CHECKS = {
    "written": ((st.sampled_from(["csv", "tsv"]), NAMES, WRITTEN, CUTS, SIZES), check_written),
    "numbers": ((FIELDS, st.sampled_from([*INTEGERS, *FLOATS]), ENDS, SIZES), check),
    "texts": ((ROWS, st.sampled_from(",;\t"), SIZES), check_fields),
}  # fmt: skip


def run(name: str, examples: int) -> None:
    strategies, one = CHECKS[name]
    budget = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    budget(given(st.tuples(*strategies))(lambda case: one(*case)))()


@pytest.mark.parametrize("name", CHECKS)
def test_a_few(name: str) -> None:
    run(name, 40)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_many(name: str) -> None:
    run(name, 4000)
