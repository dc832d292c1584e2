"""Every operator on every dtype at its edges: a frame, a few rows and one row give the same bits, or all refuse.

The values are those at which arithmetic goes wrong: nulls, NaN, infinities, the bounds of the dtype, 2**53 ± 1, -0.0.
What is declared is what comes out, and one partition gives what many give.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from penstock import Dataset, Schema, Workflow, ops
from penstock.core.errors import PenstockError
from penstock.data.partition import FramePartition
from penstock.etl.operator import Numbers

WIDE = [0, 1, -1, 2, 7, 255, 2**24 + 1, 2**31, 2**53 - 1, 2**53, 2**53 + 1, 2**62 + 1, -(2**53) - 1]
REALS = [0.0, -0.0, 1.0, -1.0, 0.1, 0.5, 1.5, 2.5, 1e30, -1e30, 2.0**-149, math.nan, math.inf, -math.inf, 16777217.0]


def _integers(dtype: pl.DataType) -> list[Any]:
    limits = np.iinfo(str(dtype).lower())
    return [v for v in (*WIDE, limits.min, limits.max, limits.min + 1, limits.max - 1) if limits.min <= v <= limits.max]


DTYPES: dict[str, tuple[pl.DataType, list[Any]]] = {
    **{str(d).lower(): (d, _integers(d)) for d in (
        pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.UInt8(), pl.UInt16(), pl.UInt32(), pl.UInt64())},
    "float32": (pl.Float32(), [float(np.float32(v)) for v in REALS]),
    "float64": (pl.Float64(), [*REALS, 1e300, -1e300, 5e-324]),
    "bool": (pl.Boolean(), [True, False]),
    "string": (pl.String(), ["", "a", "b", "0", "nan", "é", "a,b"]),
    "binary": (pl.Binary(), [b"", b"a", b"\xff\x00"]),
    "date": (pl.Date(), [datetime.date(1970, 1, 1), datetime.date(1900, 2, 28), datetime.date(2026, 12, 31)]),
    "datetime": (pl.Datetime("us"), [datetime.datetime(1970, 1, 1), datetime.datetime(2026, 1, 1, 1, 2, 3, 4)]),
    "null": (pl.Null(), []),
}  # fmt: skip

OPERATORS: dict[str, Callable[[], Any]] = {
    "AddTags": lambda: ops.AddTags("t"),
    "Bucketize": lambda: ops.Bucketize([-0.5, 0, 0.1, 2**24 + 1, 2**53 + 1]),
    "Bucketize-bounds": lambda: ops.Bucketize([-(2**63), -129, 127.5, 2**63 - 1, 2**64 - 1, 1e300]),
    "Categorify": ops.Categorify,
    "Categorify-buckets": lambda: ops.Categorify(freq_threshold=2, num_buckets=3),
    "Categorify-single": lambda: ops.Categorify(single_table=True, dtype="int64"),
    "Categorify-start": lambda: ops.Categorify(start_index=3),
    "Clip": lambda: ops.Clip(-1.5, 1.5),
    "Clip-odd": lambda: ops.Clip(min_value=0.1),
    "Clip-narrow": lambda: ops.Clip(0.2, 0.8),
    "Clip-wide": lambda: ops.Clip(max_value=2**53 + 1),
    "DataStats": ops.DataStats,
    "FillMedian": ops.FillMedian,
    "FillMedian-flags": lambda: ops.FillMedian(add_binary_cols=True),
    "FillMissing": ops.FillMissing,
    "FillMissing-fraction": lambda: ops.FillMissing(0.1),
    "FillMissing-large": lambda: ops.FillMissing(2**40),
    "FillMissing-nan": lambda: ops.FillMissing(math.nan),
    "FillMissing-text": lambda: ops.FillMissing("none"),
    "FillMissing-flags": lambda: ops.FillMissing(1, add_binary_cols=True),
    "HashBucket": lambda: ops.HashBucket(1000),
    "LogOp": ops.LogOp,
    "Normalize": ops.Normalize,
    "Normalize-float64": lambda: ops.Normalize(out_dtype="float64"),
    "NormalizeMinMax": ops.NormalizeMinMax,
    "ReduceDtypeSize": ops.ReduceDtypeSize,
    "Rename": lambda: ops.Rename(postfix="_r"),
    "Fill-Clip-Log": lambda: [ops.FillMissing(), ops.Clip(min_value=0), ops.LogOp(), ops.Normalize()],
    "Median-Bucketize": lambda: [ops.FillMedian(), ops.Bucketize([0.1, 5])],
}
CROSSES: dict[str, Callable[[], Any]] = {
    "Categorify-combo": lambda: ops.Categorify(encode_type="combo"),
    "Categorify-joint": ops.Categorify,
    "HashedCross": lambda: ops.HashedCross(1000),
    "JoinGroupby": lambda: ops.JoinGroupby(stats=["count"]),
}


def graph(columns: Any, operators: Any) -> Any:
    for op in operators if isinstance(operators, list) else [operators]:
        columns = columns >> op
    return columns


def outcome(run: Callable[[], Any]) -> Any:
    """What comes out, to the bit; any refusal is the same refusal."""
    try:
        return run()
    except PenstockError as error:
        assert str(error)
        return PenstockError


def bits(values: Any) -> str:
    return repr(values)


def cells(flow: Workflow, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = {n: c.to_list() if isinstance(c, Numbers) else list(c) for n, c in flow.transform_rows(rows).items()}
    return [{name: values[i] for name, values in found.items()} for i in range(len(rows))]


def hold_together(flow: Workflow, frame: pl.DataFrame, bounds: list[int]) -> None:
    """The three ways in, and many partitions, agree on every row; the schema is what was declared."""
    rows = frame.to_dicts()
    whole = outcome(lambda: flow.transform(frame))
    if whole is PenstockError:
        assert not rows or any(outcome(lambda r=row: flow.transform_row(r)) is PenstockError for row in rows)
        assert not rows or outcome(lambda: cells(flow, rows)) is PenstockError
        return
    assert {c.name: c.polars_dtype for c in flow.output_schema} == dict(whole.schema)
    if rows:
        assert bits(cells(flow, rows)) == bits(whole.to_dicts())
    for row, expected in zip(rows, whole.to_dicts(), strict=True):
        assert bits(flow.transform_row(row)) == bits(expected)
    parts = [FramePartition(frame[a:b]) for a, b in pairwise([0, *sorted(bounds), frame.height])]
    many = flow.transform(Dataset.from_partitions(parts, Schema.from_polars(frame.schema))).to_polars()
    assert bits(many.to_dicts()) == bits(whole.to_dicts()) and many.schema == whole.schema


@st.composite
def columns(draw: st.DrawFn, names: tuple[str, ...] = ("x",), lists: bool = False) -> tuple[str, Any, Any, list[int]]:
    """A dtype, rows to learn from, rows to transform, and where to cut them."""
    kind = draw(st.sampled_from(list(DTYPES)))
    dtype, edges = DTYPES[kind]
    value = st.none() | st.sampled_from(edges) if edges else st.none()
    if lists:
        value, dtype = st.none() | st.lists(value, max_size=3), pl.List(dtype)
    row = st.lists(value, min_size=len(names), max_size=len(names))
    known, new = draw(st.lists(row, min_size=1, max_size=8)), draw(st.lists(row, max_size=5))
    schema = dict.fromkeys(names, dtype)
    bounds = draw(st.lists(st.integers(0, len(new)), max_size=3))
    learned, given_ = (pl.DataFrame(rows, schema=schema, orient="row") for rows in (known, new))
    return kind, learned, given_, bounds


def check(columns_in: Any, build: Callable[[], Any], data: Any) -> None:
    kind, learned, frame, bounds = data
    flow = outcome(lambda: Workflow(graph(columns_in, build()), engine="local:1").fit(learned))
    event(f"{kind}: {'refused' if flow is PenstockError else 'fitted'}")
    if flow is not PenstockError:
        hold_together(flow, learned, [])
        hold_together(flow, frame, bounds)


def budget(examples: int) -> Any:
    return settings(
        max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=examples < 100
    )


SMALL, LARGE = 12, 150


@pytest.mark.parametrize("name", OPERATORS)
@budget(SMALL)
@given(data=columns())
def test_single_values(name: str, data: Any) -> None:
    check(["x"], OPERATORS[name], data)


@pytest.mark.parametrize("name", OPERATORS)
@budget(SMALL)
@given(data=columns(lists=True))
def test_lists(name: str, data: Any) -> None:
    check(["x"], OPERATORS[name], data)


@pytest.mark.parametrize("name", CROSSES)
@budget(SMALL)
@given(data=columns(names=("a", "b")))
def test_groups(name: str, data: Any) -> None:
    check([["a", "b"]], CROSSES[name], data)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
@budget(LARGE)
@given(data=columns())
def test_single_values_at_length(name: str, data: Any) -> None:
    check(["x"], OPERATORS[name], data)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
@budget(LARGE)
@given(data=columns(lists=True))
def test_lists_at_length(name: str, data: Any) -> None:
    check(["x"], OPERATORS[name], data)


@pytest.mark.slow
@pytest.mark.parametrize("name", CROSSES)
@budget(LARGE)
@given(data=columns(names=("a", "b")))
def test_groups_at_length(name: str, data: Any) -> None:
    check([["a", "b"]], CROSSES[name], data)
