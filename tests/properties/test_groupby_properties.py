"""Groupby, JoinGroupby and DifferenceLag over any partitioning equal plain polars on the whole."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from penstock import Workflow, ops
from penstock.core.schema import Schema
from penstock.data.dataset import Dataset
from penstock.data.partition import FramePartition

SCHEMA = {"user": pl.Int64, "city": pl.String, "time": pl.Int32, "x": pl.Float64, "n": pl.Int32}
ROW = st.tuples(
    st.none() | st.integers(-2, 3),
    st.none() | st.sampled_from(["", "a", "b"]),
    st.integers(0, 5),
    st.none() | st.floats(-1e12, 1e12, allow_nan=False),
    st.none() | st.integers(-(2**31), 2**31 - 1),
)


@st.composite
def datasets(draw: st.DrawFn) -> tuple[pl.DataFrame, Dataset]:
    rows = draw(st.lists(ROW, min_size=1, max_size=40))
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    bounds = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    parts = [FramePartition(frame[a:b]) for a, b in pairwise([0, *bounds, len(rows)])]
    return frame, Dataset.from_partitions(parts, Schema.from_polars(frame.schema))


@settings(max_examples=60, deadline=None)
@given(datasets(), st.sampled_from([["user"], ["user", "city"]]), st.booleans())
def test_groupby_equals_polars_on_all(data: tuple[pl.DataFrame, Dataset], keys: list[str], ascending: bool) -> None:
    frame, dataset = data
    aggs = {"x": ["min", "max", "median", "nunique", "count", "list"], "n": ["sum", "first"], "city": ["last"]}
    node = list(SCHEMA) >> ops.Groupby(keys, "time", aggs, ascending=ascending)
    out = Workflow(node, engine="local:1").transform(dataset).to_polars().sort(keys)
    x, n = pl.col("x"), pl.col("n")
    expected = (
        frame.sort("time", descending=not ascending, maintain_order=True)
        .group_by(keys, maintain_order=True)
        .agg(
            x.min().alias("x_min"), x.max().alias("x_max"), x.median().alias("x_median"),
            x.drop_nulls().n_unique().cast(pl.Int32).alias("x_nunique"), x.count().cast(pl.Int32).alias("x_count"),
            x.alias("x_list"), n.cast(pl.Int64).sum().alias("n_sum"), n.first().alias("n_first"),
            pl.col("city").last().alias("city_last"),
        )
        .sort(keys)
    )  # fmt: skip
    # polars rounds the middle of two numbers twice; the median here is the nearest float to it.
    largest = max((abs(v) for v in frame["x"].drop_nulls() if math.isfinite(v)), default=0.0)
    slack = {"rel_tol": 1e-14, "abs_tol": largest * 1e-15 + 1e-300}
    assert_frame_equal(out.select("x_median"), expected.select("x_median"), **slack)
    assert_frame_equal(out.drop("x_median"), expected.drop("x_median"), check_exact=True)


@settings(max_examples=60, deadline=None)
@given(datasets())
def test_moments_are_correctly_rounded(data: tuple[pl.DataFrame, Dataset]) -> None:
    frame, dataset = data
    grouped = ["user", "x"] >> ops.Groupby("user", aggs={"x": ["sum", "mean", "var"]})
    out = Workflow(grouped, engine="local:1").transform(dataset).to_polars()
    joined = Workflow(["user"] >> ops.JoinGroupby("x", ["count", "sum", "var"]), engine="local:1").fit(dataset)
    looked_up = joined.transform(frame.select("user", "x"))
    for row in out.rows(named=True):
        mine = frame.filter(pl.col("user").eq_missing(row["user"]))
        values = [Fraction(v) for v in mine["x"].drop_nulls().to_list()]
        total = sum(values, Fraction(0))
        assert _near(row["x_sum"], total, max(map(abs, values), default=Fraction(0)))
        assert row["x_mean"] is None if not values else _near(row["x_mean"], total / len(values), abs(total))
        if len(values) < 2:
            assert row["x_var"] is None
        else:
            squares = sum((v * v for v in values), Fraction(0))
            variance = (squares - total * total / len(values)) / (len(values) - 1)
            assert _near(row["x_var"], variance, variance + squares / 2**60)
        found = looked_up.filter(frame["user"].eq_missing(row["user"])).row(0, named=True)
        assert found == {"user_count": mine.height, "user_x_sum": row["x_sum"], "user_x_var": row["x_var"]}


def _near(got: float, exact: Fraction, scale: Fraction) -> bool:
    return math.isclose(got, float(exact), rel_tol=1e-13, abs_tol=float(scale) * 1e-14 + 1e-30)


@settings(max_examples=60, deadline=None)
@given(datasets(), st.integers(-3, 3))
def test_lags_look_across_partitions(data: tuple[pl.DataFrame, Dataset], shift: int) -> None:
    frame, dataset = data
    node = ["n", "x"] >> ops.DifferenceLag(["user", "city"], shift)
    out = Workflow(node, engine="local:1").transform(dataset).to_polars()
    history: dict[tuple, list[int]] = {}
    for i, key in enumerate(frame.select("user", "city").rows()):
        history.setdefault(key, []).append(i)
    for name in ("n", "x"):
        values = frame[name].to_list()
        expected: list[float | None] = [None] * frame.height
        for rows in history.values():
            for place, row in enumerate(rows):
                if 0 <= place - shift < len(rows):
                    other = values[rows[place - shift]]
                    expected[row] = None if None in (values[row], other) else float(values[row] - other)
        assert out[f"{name}_difference_lag_{shift}"].to_list() == expected
