"""Loaders against pyarrow and plain Python: every delivered number is the stored one, or the loader refuses.

Files are written by pyarrow with any dtype, encoding, compression, row groups and nulls; what may be delivered is
worked out value by value with Python's own numbers.
"""

from __future__ import annotations

import math
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.errors import DataError, ParameterError
from penstock.data import Dataset
from penstock.loader import Loader, Pad

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
EDGES = [0, 1, -1, 127, 128, -128, 255, 256, 2**15, 2**16, 2**24, 2**24 + 1, 2**31 - 1, 2**31, 2**32 - 1, 2**53 + 1]
EDGES += [-(2**31), -(2**63), 2**63 - 1, 2**63, 2**64 - 1]
REALS = [0.0, -0.0, 1.0, -3.0, 0.5, 1.9, 255.0, 2.0**31, 2.0**63, 1e30, 1e300, 5e-324, math.nan, math.inf, -math.inf]
PAD_LENGTHS = st.none() | st.integers(1, 5)
PAD_VALUES = st.sampled_from([0, 7, -1, 300, 0.5])
OPTIONS = {"max_examples": 40, "deadline": None, "suppress_health_check": list(HealthCheck)}


def values_of(dtype: str) -> st.SearchStrategy[Any]:
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        return st.sampled_from([v for v in EDGES if limits.min <= v <= limits.max]) | st.integers(
            limits.min, limits.max
        )
    return st.sampled_from([float(np.dtype(dtype).type(v)) for v in REALS if dtype == "float64" or abs(v) != 1e300])


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    stored = draw(st.sampled_from([*INTEGERS, "float32", "float64"]))
    is_list = draw(st.booleans())
    values = values_of(stored)
    if has_nulls := draw(st.booleans()):
        values = st.none() | values
    if is_list:
        values = st.lists(values, max_size=4) | st.none() if has_nulls else st.lists(values, max_size=4)
    rows = draw(st.lists(values, min_size=1, max_size=25))
    return {
        "stored": stored,
        "is_list": is_list,
        "rows": rows,
        "fill": draw(st.sampled_from([None, 0, 7, 300, -1, 0.5])),
        "pad": draw(st.none() | st.builds(Pad, PAD_LENGTHS, st.sampled_from(["left", "right"]), PAD_VALUES)),
        "delivered": draw(st.sampled_from([None, *INTEGERS, "float32", "float64"])),
        "group": draw(st.integers(1, 9)),
        "write": {
            "compression": draw(st.sampled_from(["none", "snappy", "zstd", "gzip"])),
            "use_dictionary": draw(st.booleans()),
            "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        },
        "load": {
            "shuffle": draw(st.booleans()),
            "seed": draw(st.integers(0, 5)),
            "cache": draw(st.sampled_from([None, "memory"])),
            "num_threads": draw(st.sampled_from([1, 2])),
            "chunk_rows": draw(st.integers(1, 30)),
        },
        "batch_size": draw(st.integers(1, 30)),
    }


def filled(rows: list[Any], stored: str, fill: float | None, is_list: bool) -> list[Any] | None:
    """The rows without nulls: a missing list is empty, a missing value the fill. None where a null has no fill."""
    if all(row is not None and (not isinstance(row, list) or None not in row) for row in rows):
        return rows
    if fill is None or not may_be(fill, stored):
        return None
    value = float(fill) if stored.startswith("float") else int(fill)
    rows = [([] if is_list else value) if row is None else row for row in rows]
    return [[value if v is None else v for v in row] if isinstance(row, list) else row for row in rows]


def laid_out(rows: list[list[Any]], pad: Pad) -> list[list[Any]]:
    """Lists cut to the pad's length and filled up."""
    width = max(map(len, rows), default=0) if pad.max_len is None else pad.max_len
    cut = [row[:width] for row in rows]
    gaps = [[pad.value] * (width - len(row)) for row in cut]
    return [gap + row if pad.side == "left" else row + gap for row, gap in zip(cut, gaps, strict=True)]


def may_be(value: float, dtype: str) -> bool:
    """Whether a delivered dtype holds a stored value; floats are rounded to float32, which was asked for."""
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        return math.isfinite(value) and value == int(value) and limits.min <= int(value) <= limits.max
    if isinstance(value, int):
        return int(np.dtype(dtype).type(value)) == value
    return not math.isfinite(value) or dtype == "float64" or abs(value) <= float(np.finfo(np.float32).max)


def spelled(value: Any, dtype: str) -> str:
    return repr(np.array([value]).astype(dtype)[0])


def check(case: dict[str, Any]) -> None:
    kind = pa.from_numpy_dtype(np.dtype(case["stored"]))
    column = pa.array(case["rows"], pa.list_(kind) if case["is_list"] else kind)
    wanted, pad = case["delivered"] or case["stored"], case["pad"] if case["is_list"] else None
    rows = filled(case["rows"], case["stored"], case["fill"], case["is_list"])
    flat = [] if rows is None else [v for row in rows for v in row] if case["is_list"] else rows
    fits = rows is not None and all(may_be(v, wanted) for v in flat) and (pad is None or may_be(pad.value, wanted))
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table({"x": column, "x.y": pa.array(case["rows"][::-1], column.type), "n": range(len(column))})
        pq.write_table(table, f"{folder}/a.parquet", row_group_size=case["group"], **case["write"])
        options = {"dtypes": {"x": wanted} if case["delivered"] else None, "fill": case["fill"], **case["load"]}
        try:
            loader = Loader(Dataset(f"{folder}/a.parquet", part_size=1), case["batch_size"], categorical=["n"],
                            continuous=["x"], lists="ragged" if pad is None else pad, **options)  # fmt: skip
            batches = [features for features, _ in loader.epochs(2)]
        except (DataError, ParameterError) as error:
            assert not fits, "refused what the dtype holds"
            assert "'x'" in str(error)
            return
    assert fits and rows is not None, "delivered what the dtype does not hold"
    assert sorted(n for batch in batches for n in batch["n"].tolist()) == sorted([*range(len(column))] * 2)
    for batch in batches:
        expected: Any = [rows[n] for n in batch["n"].tolist()]
        found = batch["x"]
        if case["is_list"] and pad is None:
            assert found.lengths.tolist() == [len(row) for row in expected]
            found, expected = found.values, [v for row in expected for v in row]
        elif pad is not None:
            expected = laid_out(expected, pad)
            assert found.shape == (len(expected), len(expected[0]))
            found, expected = found.ravel(), [v for row in expected for v in row]
        assert found.dtype == wanted
        assert [repr(v) for v in found] == [spelled(v, wanted) for v in expected]


@settings(**OPTIONS)
@given(cases())
def test_a_few(case):
    check(case)


@pytest.mark.slow
@settings(**{**OPTIONS, "max_examples": 4000})
@given(cases())
def test_many(case):
    check(case)
