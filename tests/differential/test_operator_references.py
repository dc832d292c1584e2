"""Operators against plain Python: exact fractions for numbers, a Counter for codes; fitted on any partitioning."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Dataset, Schema, Workflow, ops
from penstock.core.errors import PenstockError
from penstock.data.partition import FramePartition

BOUNDS = [-0.5, 0, 0.1, 2**24 + 1, 2**53 + 1]
INTEGERS = {"int8": pl.Int8(), "int32": pl.Int32(), "int64": pl.Int64(), "uint64": pl.UInt64()}
FLOATS = {"float32": pl.Float32(), "float64": pl.Float64()}


def single(value: float) -> float:
    """The nearest float32."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def is_there(value: Any) -> bool:
    return value is not None and value == value


def _bucket(learned: list[Any], value: Any, kind: str) -> Any:
    if value is None:
        return None
    return len(BOUNDS) if value != value else sum(bound <= value for bound in BOUNDS)


def _clipped(learned: list[Any], value: Any, kind: str) -> Any:
    if not is_there(value):
        return value
    low, high = (-1.5, 1.5) if kind in FLOATS else (-1, 1)
    return min(max(value, low), high)


def _filled(learned: list[Any], value: Any, kind: str) -> Any:
    return value if is_there(value) else (3.0 if kind in FLOATS else 3)


def _logarithm(learned: list[Any], value: Any, kind: str) -> Any:
    if value is None or value != value:
        return value
    return single(math.log1p(value)) if value > -1 else (-math.inf if value == -1 else math.nan)


def _normalized(learned: list[Any], value: Any, kind: str) -> Any:
    known = [Fraction(v) for v in learned if is_there(v) and math.isfinite(v)]
    mean = sum(known, Fraction(0)) / len(known) if known else Fraction(0)
    spread = 0.0
    if len(known) > 1:
        variance = sum(((v - mean) ** 2 for v in known), Fraction(0)) / (len(known) - 1)
        spread = math.sqrt(variance.numerator / variance.denominator)
    if value is None:
        return None
    return single((float(value) - mean.numerator / mean.denominator) / (spread or 1.0))


def _coded(learned: list[Any], value: Any, kind: str) -> Any:
    counts = Counter(v for v in learned if is_there(v))
    order = sorted(counts, key=lambda v: (-counts[v], v))
    if not is_there(value):
        return 1
    return 3 + order.index(value) if value in counts else 2


def _tenth(learned: list[Any], value: Any, kind: str) -> Any:
    return None if value is None else float(value) * 0.1


def _above(learned: list[Any], value: Any, kind: str) -> Any:
    return None if value is None else value > 1 or value != value  # polars takes NaN for the largest number


def _sign(learned: list[Any], value: Any, kind: str) -> Any:
    return 1 if _above(learned, value, kind) else -1


def _between(learned: list[Any], value: Any, kind: str) -> Any:
    return None if value is None else -1 <= value <= 1


def _or_five(learned: list[Any], value: Any, kind: str) -> Any:
    return value if value is not None else (5.0 if kind in FLOATS else 5)


def _doubled(learned: list[Any], value: Any, kind: str) -> Any:
    return None if value is None else float(value) * 2


REFERENCES: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "Bucketize": (lambda: ops.Bucketize(BOUNDS), _bucket),
    "Clip": (lambda: ops.Clip(-1.5, 1.5), _clipped),
    "FillMissing": (lambda: ops.FillMissing(3), _filled),
    "LogOp": (ops.LogOp, _logarithm),
    "Normalize": (ops.Normalize, _normalized),
    "Categorify": (ops.Categorify, _coded),
    "Expr-tenth": (lambda: ops.Expr({"x": pl.col("x").cast(pl.Float64) * 0.1}), _tenth),
    "Expr-above": (lambda: ops.Expr({"x": "x > 1"}), _above),
    "Expr-choice": (lambda: ops.Expr({"x": pl.when(pl.col("x") > 1).then(1).otherwise(-1)}), _sign),
    "Expr-between": (lambda: ops.Expr({"x": "x >= -1 AND x <= 1"}), _between),
    "Expr-fill": (lambda: ops.Expr({"x": "coalesce(x, 5)"}), _or_five),
    "Expr-missing": (lambda: ops.Expr({"x": "x IS NULL"}), lambda learned, value, kind: value is None),
    "LambdaOp": (lambda: ops.LambdaOp(lambda column: column.cast(pl.Float64) * 2, dtype="float64"), _doubled),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[str, pl.Series, pl.Series, list[int]]:
    kind = draw(st.sampled_from([*INTEGERS, *FLOATS]))
    if kind in FLOATS:
        width = int(kind.removeprefix("float"))
        value: Any = st.floats(width=width) | st.sampled_from([0.0, -0.0, 1.0, 2.0, math.nan, math.inf])
        value = value.filter(lambda v: not math.isfinite(v) or abs(v) < 2.0**100)
    else:
        limits = np.iinfo(kind)
        value = st.integers(int(limits.min), int(limits.max)) | st.integers(0, 5)
    values = st.lists(st.none() | value, min_size=1, max_size=12)
    learned, new = draw(values), draw(values)
    dtype = (INTEGERS | FLOATS)[kind]
    bounds = sorted(draw(st.lists(st.integers(0, len(learned)), max_size=3)))
    return kind, pl.Series("x", learned, dtype=dtype), pl.Series("x", new, dtype=dtype), bounds


def check(name: str, data: Any) -> None:
    kind, learned, new, bounds = data
    build, reference = REFERENCES[name]
    frame = learned.to_frame()
    parts = [FramePartition(frame[a:b]) for a, b in pairwise([0, *bounds, frame.height])]
    flow = Workflow(["x"] >> build(), engine="local:1")
    flow.fit(Dataset.from_partitions(parts, Schema.from_polars(frame.schema)))
    for column in (learned, new):
        expected = [reference(learned.to_list(), value, kind) for value in column.to_list()]
        assert repr(flow.transform(column.to_frame())["x"].to_list()) == repr(expected)


def budget(examples: int) -> Any:
    small = examples < 100
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=small)


@pytest.mark.parametrize("name", REFERENCES)
@budget(25)
@given(data=columns())
def test_plain_python_agrees(name: str, data: Any) -> None:
    check(name, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", REFERENCES)
@budget(500)
@given(data=columns())
def test_plain_python_agrees_at_length(name: str, data: Any) -> None:
    check(name, data)


@budget(25)
@given(data=columns())
def test_a_failed_update_changes_nothing(data: Any) -> None:
    """The vocabulary outgrows int8 when what is beside it has been updated already."""
    _, learned, new, _ = data
    frame = learned.to_frame().with_columns(c=pl.lit("a"))
    node = (["x"] >> ops.FillMissing(1) >> ops.Normalize()) + (["c"] >> ops.Categorify(dtype="int8"))
    flow = Workflow(node, engine="local:1").fit(frame)
    before = repr(flow.transform(frame).to_dicts())
    more = pl.concat([new] * 200).head(200).to_frame().with_columns(c=pl.Series([f"c{i}" for i in range(200)]))
    with pytest.raises(PenstockError, match="more than int8"):
        flow.update(more)
    assert repr(flow.transform(frame).to_dicts()) == before
