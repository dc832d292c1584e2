"""Every operator on every dtype at its edges: a frame, a few rows and one row give the same bits, or all refuse.

The values are those at which arithmetic goes wrong: nulls, NaN, infinities, the bounds of the dtype, 2**53 ± 1, -0.0.
What is declared is what comes out, and one partition gives what many give.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
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
from penstock.etl.cells import Numbers

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
    "time": (pl.Time(), [datetime.time(0), datetime.time(23, 59, 59, 999999)]),
    "datetime[ms]": (pl.Datetime("ms"), [datetime.datetime(1970, 1, 1), datetime.datetime(1969, 1, 1, 1, 2, 3, 4000)]),
    "datetime[us]": (pl.Datetime("us"), [datetime.datetime(1970, 1, 1), datetime.datetime(2026, 1, 1, 1, 2, 3, 4)]),
    "datetime[ns]": (pl.Datetime("ns"), [datetime.datetime(1970, 1, 1), datetime.datetime(2026, 1, 1, 1, 2, 3, 4)]),
    **{f"duration[{unit}]": (pl.Duration(unit), [datetime.timedelta(0), datetime.timedelta(-3, milliseconds=7)])
       for unit in ("ms", "us", "ns")},
    "decimal": (pl.Decimal(38, 3), [Decimal("0.000"), Decimal("-1.500"), Decimal("9007199254740993.000")]),
    "decimal[0]": (pl.Decimal(38, 0), [Decimal(0), Decimal(-1), Decimal(2**53 + 1), Decimal(2**63 - 1)]),
    "categorical": (pl.Categorical(), ["", "a", "b"]),
    "enum": (pl.Enum(["", "a", "b"]), ["", "a", "b"]),
    "null": (pl.Null(), []),
}  # fmt: skip

Cases = dict[str, Callable[[], Any]]

VALUES: Cases = {
    "AddMetadata": lambda: ["x"] >> ops.AddMetadata("t", {"unit": "EUR"}),
    "AddProperties": lambda: ["x"] >> ops.AddProperties({"unit": "EUR"}),
    "AddTags": lambda: ["x"] >> ops.AddTags("t"),
    "Binarize": lambda: ["x"] >> ops.Binarize(0.1),
    "Binarize-wide": lambda: ["x"] >> ops.Binarize(2**53 + 1),
    "Binarize-ones": lambda: ["x"] >> ops.Binarize(ones=[0, 0.1, "a", 2**53 + 1]),
    "Bucketize": lambda: ["x"] >> ops.Bucketize([-0.5, 0, 0.1, 2**24 + 1, 2**53 + 1]),
    "Bucketize-bounds": lambda: ["x"] >> ops.Bucketize([-(2**63), -129, 127.5, 2**63 - 1, 2**64 - 1, 1e300]),
    "Categorify": lambda: ["x"] >> ops.Categorify(),
    "Categorify-buckets": lambda: ["x"] >> ops.Categorify(freq_threshold=2, num_buckets=3),
    "Categorify-single": lambda: ["x"] >> ops.Categorify(single_table=True, dtype="int64"),
    "Categorify-start": lambda: ["x"] >> ops.Categorify(start_index=3),
    "Clip": lambda: ["x"] >> ops.Clip(-1.5, 1.5),
    "Clip-odd": lambda: ["x"] >> ops.Clip(min_value=0.1),
    "Clip-narrow": lambda: ["x"] >> ops.Clip(0.2, 0.8),
    "Clip-wide": lambda: ["x"] >> ops.Clip(max_value=2**53 + 1),
    "DataStats": lambda: ["x"] >> ops.DataStats(),
    "DateParts": lambda: ["x"] >> ops.DateParts(["year", "weekday", "hour", "is_weekend"]),
    "DropLowCardinality": lambda: ["x"] >> ops.Categorify() >> ops.DropLowCardinality(5),
    "Expr": lambda: ["x"] >> ops.Expr({"is_null": pl.col("x").is_null(), "x": pl.col("x"), "one": pl.lit(1)}),
    "Expr-number": lambda: (
        ["x"] >> ops.Expr({"y": pl.col("x").cast(pl.Float64) / 3, "z": -pl.col("x").cast(pl.Int128)})
    ),
    "FillMedian": lambda: ["x"] >> ops.FillMedian(),
    "FillMedian-flags": lambda: ["x"] >> ops.FillMedian(add_binary_cols=True),
    "FillMissing": lambda: ["x"] >> ops.FillMissing(),
    "FillMissing-fraction": lambda: ["x"] >> ops.FillMissing(0.1),
    "FillMissing-large": lambda: ["x"] >> ops.FillMissing(2**40),
    "FillMissing-nan": lambda: ["x"] >> ops.FillMissing(math.nan),
    "FillMissing-text": lambda: ["x"] >> ops.FillMissing("none"),
    "FillMissing-flags": lambda: ["x"] >> ops.FillMissing(1, add_binary_cols=True),
    "HashBucket": lambda: ["x"] >> ops.HashBucket(1000),
    "HashId": lambda: ["x"] >> ops.HashId(),
    "LambdaOp": lambda: ["x"] >> ops.LambdaOp(lambda column: column),
    "LambdaOp-frame": lambda: ["x"] >> ops.LambdaOp(lambda column, frame: column.is_null() | frame["x"].is_null()),
    "LambdaOp-int": lambda: ["x"] >> ops.LambdaOp(lambda column: column, dtype="int16"),
    "LambdaOp-float": lambda: ["x"] >> ops.LambdaOp(lambda column: column, dtype="float32"),
    "ListSlice": lambda: ["x"] >> ops.ListSlice(2),
    "ListSlice-end": lambda: ["x"] >> ops.ListSlice(-2, -1),
    "ListSlice-pad": lambda: ["x"] >> ops.ListSlice(-2, pad=True),
    "ListSlice-fill": lambda: ["x"] >> ops.ListSlice(1, 3, pad=True, pad_value=0.1),
    "ListSlice-wide": lambda: ["x"] >> ops.ListSlice(3, pad=True, pad_value=2**53 + 1),
    "ListSlice-nan": lambda: ["x"] >> ops.ListSlice(1, pad=True, pad_value=math.nan),
    "LogOp": lambda: ["x"] >> ops.LogOp(),
    "Normalize": lambda: ["x"] >> ops.Normalize(),
    "Normalize-float64": lambda: ["x"] >> ops.Normalize(out_dtype="float64"),
    "NormalizeMinMax": lambda: ["x"] >> ops.NormalizeMinMax(),
    "ReduceDtypeSize": lambda: ["x"] >> ops.ReduceDtypeSize(),
    "ReduceDtypeSize-wide": lambda: ["x"] >> ops.ReduceDtypeSize("float64"),
    "Rename": lambda: ["x"] >> ops.Rename(postfix="_r"),
    "Split": lambda: ["x"] >> ops.Split(","),
    "TagAsItemFeatures": lambda: ["x"] >> ops.TagAsItemFeatures(),
    "TagAsItemID": lambda: ["x"] >> ops.TagAsItemID(),
    "TagAsUserFeatures": lambda: ["x"] >> ops.TagAsUserFeatures(),
    "TagAsUserID": lambda: ["x"] >> ops.TagAsUserID(),
    "ValueCount": lambda: ["x"] >> ops.ValueCount(),
    "Fill-Clip-Log": lambda: ["x"] >> ops.FillMissing() >> ops.Clip(min_value=0) >> ops.LogOp() >> ops.Normalize(),
    "Median-Bucketize": lambda: ["x"] >> ops.FillMedian() >> ops.Bucketize([0.1, 5]),
}
PAIRS: Cases = {
    "Categorify-combo": lambda: [["a", "b"]] >> ops.Categorify(encode_type="combo"),
    "Categorify-joint": lambda: [["a", "b"]] >> ops.Categorify(),
    "ColumnSimilarity": lambda: [["a", "b"]] >> ops.ColumnSimilarity(np.eye(8)[:, :5] + 0.25),
    "HashedCross": lambda: [["a", "b"]] >> ops.HashedCross(1000),
    "JoinExternal": lambda: ["a", "b"] >> ops.JoinExternal(TABLE, "a", on_ext="id"),
    "JoinExternal-float": lambda: ["a", "b"] >> ops.JoinExternal(TABLE.cast({"id": pl.Float64}), "a", on_ext="id"),
    "JoinGroupby": lambda: [["a", "b"]] >> ops.JoinGroupby(stats=["count"]),
    "JoinGroupby-stats": lambda: ["a"] >> ops.JoinGroupby("b", ["sum", "mean", "std", "var", "min", "max"]),
    "TargetEncoding": lambda: ["a"] >> ops.TargetEncoding("b", p_smooth=1),
    "TargetEncoding-pair": lambda: [["a", "b"]] >> ops.TargetEncoding("b", p_smooth=0, out_dtype="float64"),
}
MOVES: Cases = {  # which rows come out, or what, depends on other rows
    "DifferenceLag": lambda: ["b"] >> ops.DifferenceLag("a"),
    "DifferenceLag-shifts": lambda: ["a", "b"] >> ops.DifferenceLag(["a"], [2, -1]),
    "Dropna": lambda: ["a", "b"] >> ops.Dropna(),
    "Filter": lambda: ["a", "b"] >> ops.Filter(pl.col("a").is_not_null()),
    "Filter-function": lambda: ["a", "b"] >> ops.Filter(lambda frame: frame["b"].is_null()),
    "Groupby": lambda: ["a", "b"] >> ops.Groupby("a", aggs={"b": ["list", "first", "last", "count"]}),
    "Groupby-ordered": lambda: ["a", "b"] >> ops.Groupby("a", "b", {"b": ["nunique", "min", "max"]}, ascending=False),
    "Groupby-sums": lambda: ["a", "b"] >> ops.Groupby("a", aggs={"b": ["sum", "mean", "std", "var", "median"]}),
    "JoinExternal-inner": lambda: ["a", "b"] >> ops.JoinExternal(TABLE, "a", "inner", "id"),
    "JoinExternal-twice": lambda: ["a", "b"] >> ops.JoinExternal(pl.concat([TABLE, TABLE]), "a", on_ext="id"),
}
TABLE = pl.DataFrame({"id": [0, 1, -1, 7, 2**53 + 1, None], "found": ["a", "b", "c", "d", "e", "f"]})


def outcome(run: Callable[[], Any]) -> Any:
    """What comes out, to the bit; any refusal is the same refusal."""
    try:
        return run()
    except PenstockError as error:
        assert str(error)
        return PenstockError


def bits(values: Any) -> str:
    return repr(values)


def cut(frame: pl.DataFrame, bounds: list[int]) -> Dataset:
    parts = [FramePartition(frame[a:b]) for a, b in pairwise([0, *sorted(bounds), frame.height])]
    return Dataset.from_partitions(parts, Schema.from_polars(frame.schema))


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
    if not whole.width:  # a frame without columns has no rows either
        return
    assert bits(cells(flow, rows)) == bits(whole.to_dicts())
    for row, expected in zip(rows, whole.to_dicts(), strict=True):
        assert bits(flow.transform_row(row)) == bits(expected)
    many = flow.transform(cut(frame, bounds)).to_polars()
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


def fitted(kind: str, build: Callable[[], Any], learned: pl.DataFrame) -> Any:
    flow = outcome(lambda: Workflow(build(), engine="local:1").fit(learned))
    event(f"{kind}: {'refused' if flow is PenstockError else 'fitted'}")
    return flow


def check(build: Callable[[], Any], data: Any) -> None:
    kind, learned, frame, bounds = data
    flow = fitted(kind, build, learned)
    if flow is not PenstockError:
        hold_together(flow, learned, [])
        hold_together(flow, frame, bounds)


def check_moves(name: str, data: Any) -> None:
    """One partition and many give the same rows, in any order where rows are new; the schema is what was declared."""
    kind, learned, frame, bounds = data
    flow = fitted(kind, MOVES[name], learned)
    if flow is PenstockError:
        return
    for given_, cuts in ((learned, []), (frame, bounds)):
        whole = outcome(lambda f=given_: flow.transform(f))
        many = outcome(lambda f=given_, c=cuts: flow.transform(cut(f, c)).to_polars())
        if whole is PenstockError:
            assert many is PenstockError
            continue
        assert {c.name: c.polars_dtype for c in flow.output_schema} == dict(whole.schema) == dict(many.schema)
        rows, others = (list(map(bits, found.to_dicts())) for found in (whole, many))
        assert sorted(rows) == sorted(others)
        if not name.startswith("Groupby"):
            assert rows == others


def budget(examples: int) -> Any:
    return settings(
        max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=examples < 100
    )


SMALL, LARGE = 8, 150


def test_every_operator_has_a_case() -> None:
    named = {name.split("-")[0] for name in (*VALUES, *PAIRS, *MOVES)}
    classes = {n for n in ops.__all__ if isinstance(getattr(ops, n), type)} - {"Operator", "FittedOperator"}
    assert classes <= named


@pytest.mark.parametrize("name", VALUES)
@budget(SMALL)
@given(data=columns())
def test_single_values(name: str, data: Any) -> None:
    check(VALUES[name], data)


@pytest.mark.parametrize("name", VALUES)
@budget(SMALL)
@given(data=columns(lists=True))
def test_lists(name: str, data: Any) -> None:
    check(VALUES[name], data)


@pytest.mark.parametrize("name", PAIRS)
@budget(SMALL)
@given(data=columns(names=("a", "b")))
def test_pairs(name: str, data: Any) -> None:
    check(PAIRS[name], data)


@pytest.mark.parametrize("name", MOVES)
@budget(SMALL)
@given(data=columns(names=("a", "b")))
def test_moves(name: str, data: Any) -> None:
    check_moves(name, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
@budget(LARGE)
@given(data=columns())
def test_single_values_at_length(name: str, data: Any) -> None:
    check(VALUES[name], data)


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
@budget(LARGE)
@given(data=columns(lists=True))
def test_lists_at_length(name: str, data: Any) -> None:
    check(VALUES[name], data)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
@budget(LARGE)
@given(data=columns(names=("a", "b")))
def test_pairs_at_length(name: str, data: Any) -> None:
    check(PAIRS[name], data)


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVES)
@budget(LARGE)
@given(data=columns(names=("a", "b")))
def test_moves_at_length(name: str, data: Any) -> None:
    check_moves(name, data)
