"""Loaders against pyarrow and plain Python: every delivered number is the stored one, or the loader refuses.

Files are written by pyarrow with any dtype, encoding, compression and row groups; what may be delivered is worked out
value by value with Python's own numbers.
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

from penstock.core.errors import DataError
from penstock.data import Dataset
from penstock.loader import Loader

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
EDGES = [0, 1, -1, 127, 128, -128, 255, 256, 2**15, 2**16, 2**24, 2**24 + 1, 2**31 - 1, 2**31, 2**32 - 1, 2**53 + 1]
EDGES += [-(2**31), -(2**63), 2**63 - 1, 2**63, 2**64 - 1]
REALS = [0.0, -0.0, 1.0, -3.0, 0.5, 1.9, 255.0, 2.0**31, 2.0**63, 1e30, 1e300, 5e-324, math.nan, math.inf, -math.inf]
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
    rows = draw(st.lists(st.lists(values, max_size=4) if is_list else values, min_size=1, max_size=25))
    return {
        "stored": stored,
        "is_list": is_list,
        "rows": rows,
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
    wanted = case["delivered"] or case["stored"]
    flat = [v for row in case["rows"] for v in row] if case["is_list"] else case["rows"]
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table({"x": column, "x.y": pa.array(case["rows"][::-1], column.type), "n": range(len(column))})
        pq.write_table(table, f"{folder}/a.parquet", row_group_size=case["group"], **case["write"])
        dtypes = {"x": wanted} if case["delivered"] else None
        loader = Loader(Dataset(f"{folder}/a.parquet", part_size=1), case["batch_size"], categorical=["n"],
                        continuous=["x"], dtypes=dtypes, **case["load"])  # fmt: skip
        try:
            batches = [features for features, _ in loader.epochs(2)]
        except DataError:
            assert not all(may_be(v, wanted) for v in flat), "refused what the dtype holds"
            return
    assert all(may_be(v, wanted) for v in flat), "delivered what the dtype does not hold"
    numbers = np.concatenate([batch["n"] for batch in batches]).tolist()
    assert sorted(numbers) == sorted([*range(len(column))] * 2)
    expected = [case["rows"][n] for n in numbers]
    if case["is_list"]:
        expected = [v for row in expected for v in row]
        found = np.concatenate([batch["x"].values for batch in batches])
    else:
        found = np.concatenate([batch["x"] for batch in batches])
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
