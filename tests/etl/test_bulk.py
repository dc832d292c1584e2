"""A few rows at once give what each gives alone, however their values come."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

import penstock as ps
from penstock import ops
from penstock.core.errors import ColumnNotFoundError, ConversionError, GraphError
from penstock.etl.cells import Numbers


def workflow() -> ps.Workflow:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "a": pl.Series(rng.integers(0, 50, 400), dtype=pl.UInt32),
            "b": pl.Series(rng.integers(-60, 60, 400), dtype=pl.Int16),
            "c": pl.Series(rng.integers(2**40, 2**40 + 30, 400), dtype=pl.Int64),
            "text": [f"t{n}" for n in rng.integers(0, 30, 400)],
            "x": pl.Series(rng.integers(-5, 500, 400), dtype=pl.Int32),
            "y": pl.Series(rng.random(400), dtype=pl.Float32),
            "tags": [rng.integers(0, 9, n).tolist() for n in rng.integers(0, 4, 400)],
        }
    )
    schema = ps.Schema.from_polars(frame.schema)
    data = ps.Dataset(frame, schema=schema.with_column(schema["a"].with_(properties={"text": "hex"})))
    categories = ["a", "b", "c", "text", "tags"] >> ops.Categorify(freq_threshold=2, num_buckets={"a": 5, "c": 3})
    numbers = ["x", "y"] >> ops.FillMissing(3) >> ops.Clip(min_value=0) >> ops.LogOp() >> ops.Normalize()
    return ps.Workflow(categories + numbers).fit(data)


ROWS = [
    {"a": "1f", "b": -3, "c": 2**40 + 1, "text": "t1", "x": 7, "y": 0.25, "tags": [1, 2, 77]},
    {"a": 31, "b": 5.0, "c": None, "text": None, "x": None, "y": None, "tags": None},
    {"a": None, "b": None, "c": 5, "text": "never seen", "x": -4, "y": math.nan, "tags": []},
    {"a": "ffffffff", "b": math.nan, "c": -1, "text": "", "x": 2**31 - 1, "y": 3, "tags": [None, 4]},
    {
        "a": np.uint32(7),
        "b": True,
        "c": np.int64(2**40 + 2),
        "text": "t2",
        "x": np.int32(1),
        "y": -math.inf,
        "tags": [3],
    },
]


def assert_as_alone(flow: ps.Workflow, rows: list[dict]) -> None:
    found = {n: c.to_list() if isinstance(c, Numbers) else c for n, c in flow.transform_rows(rows).items()}
    for i, row in enumerate(rows):
        alone = flow.transform_row(row)
        assert repr({name: values[i] for name, values in found.items()}) == repr(alone)


def test_rows_together_are_as_rows_alone() -> None:
    flow = workflow()
    for start in range(len(ROWS)):
        for stop in range(start + 1, len(ROWS) + 1):
            assert_as_alone(flow, ROWS[start:stop])
    plain = [{**ROWS[0], "a": n, "c": n, "b": n - 50, "x": n, "y": n / 7} for n in range(100)]
    assert_as_alone(flow, plain)
    assert_as_alone(flow, [{**row, "x": None} if i % 3 else row for i, row in enumerate(plain)])


def test_numbers_are_arrays() -> None:
    found = workflow().transform_rows([{**ROWS[0], "a": 31}] * 3)
    assert {name for name, cell in found.items() if isinstance(cell, Numbers)} == {"a", "b", "c", "text", "x", "y"}
    assert found["a"].values.dtype == np.int32 and found["x"].values.dtype == np.float32
    assert workflow().transform_rows([]) == {name: [] for name in ("a", "b", "c", "text", "tags", "x", "y")}


def test_what_is_wrong_is_named() -> None:
    flow = workflow()
    good = ROWS[0]
    with pytest.raises(ColumnNotFoundError, match="column 'x' is not in the row"):
        flow.transform_rows([good, {name: value for name, value in good.items() if name != "x"}])
    with pytest.raises(ColumnNotFoundError, match="column 'text' is not in the row"):
        flow.transform_rows([good, {name: value for name, value in good.items() if name != "text"}])
    with pytest.raises(ConversionError, match=r"column 'x', row 1 .*1\.5 is no int32"):
        flow.transform_rows([good, {**good, "x": 1.5}])
    with pytest.raises(ConversionError, match=r"column 'b', row 1 .*40000 is no int16"):
        flow.transform_rows([good, {**good, "b": 40_000}])
    with pytest.raises(GraphError, match="keeps rows"):
        ps.Workflow(["x"] >> ops.Dropna()).fit(pl.DataFrame({"x": [1]})).transform_rows([{"x": 1}])
