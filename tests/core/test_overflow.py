"""Arithmetic of expressions on integers against Python's: the right number, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Dataset, Workflow, ops
from penstock.core.errors import DataError

DTYPES = {str(d).lower(): d for d in (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt32, pl.UInt64)}
EXPRESSIONS: dict[str, Callable[[int, int], Any]] = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a * 100": lambda a, b: a * 100,
    "-a": lambda a, b: -a,
    "a * 2 > 100": lambda a, b: a * 2 > 100,
    "a - b > 0": lambda a, b: a - b > 0,
    "(a + b) / 2": lambda a, b: (a + b) / 2,
    "CASE WHEN a + b > 0 THEN 1 ELSE 0 END": lambda a, b: int(a + b > 0),
}


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, str, list[tuple[int, int]]]:
    name = draw(st.sampled_from(sorted(DTYPES)))
    limits = np.iinfo(name)
    edges = [v for v in (limits.min, limits.max, limits.max // 2 + 1, 0, 1, 7, -7) if limits.min <= v <= limits.max]
    value = st.sampled_from([int(v) for v in edges]) | st.integers(int(limits.min), int(limits.max))
    return name, draw(st.sampled_from(sorted(EXPRESSIONS))), draw(st.lists(st.tuples(value, value), min_size=1))


def check(case: tuple[str, str, list[tuple[int, int]]]) -> None:
    name, text, rows = case
    frame = pl.DataFrame(rows, schema={"a": DTYPES[name], "b": DTYPES[name]}, orient="row")
    try:
        found = Workflow(["a", "b"] >> ops.Expr({"y": text})).transform(frame)["y"].to_list()
    except DataError as error:
        assert "column 'y'" in str(error) and "CAST" in str(error)
        limits = np.iinfo(name)
        ends = [f(a, b) for a, b in rows for f in (EXPRESSIONS["a + b"], EXPRESSIONS["a - b"], EXPRESSIONS["a * b"])]
        ends += [a * 100 for a, _ in rows] + [-a for a, _ in rows]
        assert any(not limits.min <= end <= limits.max for end in ends), "nothing is beyond the dtype"
        return
    expected = [EXPRESSIONS[text](a, b) for a, b in rows]
    assert found == (pytest.approx(expected, rel=1e-12) if "/" in text else expected)


def budget(examples: int) -> Any:
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


@budget(60)
@given(cases())
def test_a_few(case: Any) -> None:
    check(case)


@pytest.mark.slow
@budget(5000)
@given(cases())
def test_many(case: Any) -> None:
    check(case)


def test_filters_compare_numbers_and_not_what_is_left_of_them() -> None:
    frame = pl.DataFrame({"price": [10, 100]}, schema={"price": pl.Int8})
    too_dear = pl.col("price") * 2 > 50
    for run in (
        lambda: Workflow(["price"] >> ops.Filter("price * 2 > 50")).transform(frame),
        lambda: Dataset(frame).filter(too_dear).to_polars(),
    ):
        with pytest.raises(DataError, match=r"row 1: .* leaves the dtype of its integers \(price: Int8\)"):
            run()
    wide = Dataset(frame).filter(pl.col("price").cast(pl.Int64) * 2 > 50)
    assert wide.to_polars()["price"].to_list() == [100]


def test_rows_are_refused_as_frames_are() -> None:
    flow = Workflow(["x"] >> ops.Expr({"y": "x * 1000"})).fit(pl.DataFrame({"x": [1]}, schema={"x": pl.Int16}))
    assert flow.transform_row({"x": 32}) == {"y": 32_000}
    for run in (lambda: flow.transform_row({"x": 33}), lambda: flow.transform_rows([{"x": 1}, {"x": 33}])):
        with pytest.raises(DataError, match="CAST"):
            run()


def test_several_columns_of_one_expression() -> None:
    frame = pl.DataFrame({"a": [1, 100], "b": [1.5, 2.5]}, schema={"a": pl.Int8, "b": pl.Float64})
    with pytest.raises(DataError, match="column 'a', row 1"):
        Workflow(["a", "b"] >> ops.Expr(pl.col("a", "b") * 2)).transform(frame)
