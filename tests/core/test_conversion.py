"""A value changes its dtype exactly or not at all: against plain Python numbers, for arrays, columns and scalars."""

from __future__ import annotations

import datetime
import math
import pickle
import struct
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.conversion import convert, is_missing, parse_hexadecimal
from penstock.core.dtypes import FLOATS, INTEGERS
from penstock.core.errors import ConversionError, DataError

EDGES = sorted({s * (2**n + d) for n in (0, 7, 8, 15, 16, 24, 31, 32, 53, 63, 64) for d in (-1, 0, 1) for s in (1, -1)})


def held(value: int | float, dtype: str) -> int | float | None:
    """The value in `dtype` by exact Python arithmetic; None where it is another."""
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        return (
            int(value) if math.isfinite(value) and value == int(value) and limits.min <= value <= limits.max else None
        )
    if isinstance(value, float) and not math.isfinite(value):
        return value
    try:
        near = struct.unpack("<f", struct.pack("<f", value))[0] if dtype == "float32" else float(value)
    except OverflowError:
        return None
    return near if math.isfinite(near) and Fraction(near) == Fraction(value) else None


@pytest.mark.parametrize("target", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("source", [*INTEGERS, *FLOATS])
def test_every_pair_of_dtypes_at_its_edges(source: str, target: str) -> None:
    values = [v for v in EDGES if held(v, source) is not None]
    if source in FLOATS:
        values = [float(v) for v in values] + [0.5, -0.0, 1e30, 2.0**-140, math.inf]
        values += [1e300] * (source == "float64")
    for value in values:
        array = np.array([1, value], source)
        series = pl.Series("x", [None, 1, value], dtype=pl.Series(array).dtype)
        lists = pl.Series("x", [[1], None, [], [1, value]], dtype=pl.List(series.dtype))
        expected = held(array[1].item(), target)
        if expected is None:
            for given_, row in ((array, 1), (series, 2), (lists, 3), (array[1].item(), None)):
                with pytest.raises(ConversionError, match="column 'x'") as caught:
                    convert(given_, target, column="x")
                assert caught.value.row == row and caught.value.value == array[1].item()
            continue
        done = convert(array, target, column="x")
        assert done.dtype == np.dtype(target) and repr(done[1].item()) == repr(expected)
        assert repr(convert(series, target, column="x").to_list()[1:]) == repr([done[0].item(), expected])
        assert repr(convert(lists, target, column="x").to_list()) == repr([[done[0].item()], None, [], done.tolist()])
        assert repr(convert(array[1].item(), target, column="x")) == repr(expected)


@settings(max_examples=200, deadline=None)
@given(st.integers(-(2**70), 2**70) | st.floats(), st.sampled_from([*INTEGERS, *FLOATS]))
def test_a_scalar_is_held_or_refused(value: int | float, dtype: str) -> None:
    if value != value:
        assert repr(convert(value, dtype, column="x")) == ("nan" if dtype in FLOATS else "None")
        return
    expected = held(value, dtype)
    if expected is None:
        with pytest.raises(ConversionError):
            convert(value, dtype, column="x")
    else:
        assert repr(convert(value, dtype, column="x")) == repr(expected)


def test_what_is_lost_has_a_name() -> None:
    halves = np.array([1.5, 2.5, -0.5])
    assert convert(halves, "int8", column="x", policy="round").tolist() == [2, 2, 0]
    assert convert(halves, "int8", column="x", policy="truncate").tolist() == [1, 2, 0]
    wide = np.array([300, -129, 5])
    assert convert(wide, "int8", column="x", policy="saturate").tolist() == [127, -128, 5]
    assert convert(wide, "int8", column="x", policy="wrap").tolist() == [44, 127, 5]
    assert convert(wide, "uint8", column="x", policy="wrap").tolist() == [44, 127, 5]
    assert convert(wide.astype(np.float64), "int8", column="x", policy="wrap").tolist() == [44, 127, 5]
    assert convert(2**64 + 7, "int16", column="x", policy="wrap") == 7
    assert convert(-(2**80), "int16", column="x", policy="saturate") == -(2**15)
    assert convert(0.1, "float32", column="x", policy="round") == float(np.float32(0.1))
    assert convert(2**53 + 1, "float64", column="x", policy="round") == 2.0**53
    assert convert(1e300, "float32", column="x", policy="saturate") == float(np.finfo(np.float32).max)
    for policy in ("exact", "round", "truncate"):
        with pytest.raises(ConversionError, match="beyond its range"):
            convert(wide, "int8", column="x", policy=policy)
        with pytest.raises(ConversionError, match="beyond its range"):
            convert(np.array([0.0, 1e300]), "float32", column="x", policy=policy)
    for policy in ("wrap", "saturate"):
        with pytest.raises(ConversionError, match="has a fraction"):
            convert(halves, "int8", column="x", policy=policy)


def test_missing_stays_missing() -> None:
    assert convert(pl.Series([1.0, math.nan, None]), "int8", column="x").to_list() == [1, None, None]
    assert convert(pl.Series([math.nan]), "string", column="x").to_list() == [None]
    assert convert(pl.Series([None, None]), "datetime[us]", column="x").dtype == pl.Datetime("us")
    with pytest.raises(ConversionError, match=r"column 'x', row 1: nan is no int32 .it is missing"):
        convert(np.array([1.0, math.nan]), "int32", column="x")
    pandas = pytest.importorskip("pandas")
    for value in (None, math.nan, pandas.NaT, pandas.NA, np.float32("nan"), np.datetime64("NaT"), Decimal("NaN")):
        assert is_missing(value) and convert(value, "int64", column="x") is None
    assert not any(map(is_missing, (0, "", b"", [], [None], False, np.array([math.nan]))))


def test_text_times_and_decimals() -> None:
    assert convert(pl.Series(["12", None]), "int16", column="x").to_list() == [12, None]
    assert convert(pl.Series([5, 2**63]), "string", column="x").to_list() == ["5", str(2**63)]
    assert convert("1.5", "float32", column="x") == 1.5
    moment = datetime.datetime(2026, 1, 2)
    assert convert(pl.Series([moment]), "date", column="x").to_list() == [moment.date()]
    assert convert(moment.date(), "datetime[ns]", column="x") == moment
    assert convert(Decimal("1.5"), "float32", column="x") == 1.5
    assert convert(pl.Series([Decimal("2.00")]), "int8", column="x").to_list() == [2]
    refused = [
        (pl.Series(["1.9"]), "int64"), (pl.Series(["x"]), "float32"), (1.0, "string"), (True, "string"),
        (pl.Series([moment]), "int64"), (5, "datetime[us]"), (moment.replace(hour=3), "date"), ([1, "a"], "int8"),
        (Decimal("0.1"), "float64"), (object(), "string"), ("2026-01-02", "date"),
        (2, "bool"), (b"\xff", "string"), (1, "null"),
    ]  # fmt: skip
    for value, dtype in refused:
        with pytest.raises(ConversionError, match="column 'x'"):
            convert(value, dtype, column="x")


def test_two_dimensions_name_the_row() -> None:
    with pytest.raises(ConversionError, match=r"column 'x', row 2 of a\.parquet: 1\.5 is no int8") as caught:
        convert(np.array([[1, 2], [3, 4], [5, 1.5]]), "int8", column="x", where="a.parquet")
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, DataError) and str(again) == str(caught.value)


def test_hexadecimal_text_has_64_bits() -> None:
    text = pl.Series(["0", "FF", None, "8000000000000000", "ffffffffffffffff"])
    assert parse_hexadecimal(text, "uint64", column="x").to_list() == [0, 255, None, 2**63, 2**64 - 1]
    for bad in ("", "0x1f", "-1", "g", "1" * 17):
        with pytest.raises(ConversionError, match=r"column 'x', row 1.*hexadecimal"):
            parse_hexadecimal(pl.Series([None, bad]), "uint64", column="x")
    with pytest.raises(ConversionError, match="beyond its range"):
        parse_hexadecimal(pl.Series(["1ffffffff"]), "uint32", column="x")
