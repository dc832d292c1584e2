"""Raw values of any Python type into any column: a frame, a few rows and one row read the same, or all refuse.

A service sends what JSON and pandas make of values: text for hexadecimal ids, floats for integers, NaN for nothing.
"""

from __future__ import annotations

import datetime
import math
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Schema, Workflow, ops
from penstock.core.errors import PenstockError
from penstock.core.schema import ColumnSchema
from penstock.etl.cells import Numbers

HEX = {"text": "hex"}
COLUMNS = {
    **{d: ColumnSchema("x", d) for d in ("int8", "int32", "int64", "uint32", "uint64", "float32", "float64")},
    **{d: ColumnSchema("x", d) for d in ("string", "bool", "binary", "date", "datetime[us]")},
    "hex32": ColumnSchema("x", "uint32", properties=HEX),
    "hex64": ColumnSchema("x", "uint64", properties=HEX),
    "list[hex32]": ColumnSchema("x", "uint32", is_list=True, properties=HEX),
    "list[int32]": ColumnSchema("x", "int32", is_list=True),
    "list[string]": ColumnSchema("x", "string", is_list=True),
}
VALUES: dict[str, tuple[Any, list[Any]]] = {
    "text": (pl.String, ["ff", "FF", "68fd1e64", "0", "", " ff", "0xff", "g", "-1", "1.5", "f" * 8, "f" * 16, "f" * 17,
                         "7" + "f" * 15, "8" + "0" * 15, "1_0", "+a", "nan", "true", "2026-01-01", "é"]),
    "ints": (pl.Int64, [0, 1, -1, 127, 128, 2**24 + 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, -(2**63), 2**63 - 1]),
    "large ints": (pl.UInt64, [0, 2**63, 2**64 - 1]),
    "floats": (pl.Float64, [0.0, -0.0, 1.0, 1.5, -1.0, 255.0, 2.0**31, 2.0**63, 1e30, 1e300, 5e-324, math.nan,
                            math.inf, -math.inf]),
    "bools": (pl.Boolean, [True, False]),
    "bytes": (pl.Binary, [b"", b"ff", b"\xff"]),
    "dates": (pl.Date, [datetime.date(1970, 1, 1), datetime.date(1969, 12, 31)]),
    "times": (pl.Datetime("us"), [datetime.datetime(1970, 1, 1), datetime.datetime(2026, 1, 1, 1, 2, 3, 4)]),
}  # fmt: skip


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, pl.Series, list[Any]]:
    column = draw(st.sampled_from(sorted(COLUMNS)))
    dtype, edges = VALUES[draw(st.sampled_from(sorted(VALUES)))]
    value: Any = st.none() | st.sampled_from(edges)
    if COLUMNS[column].is_list:
        value, dtype = st.none() | st.lists(value, max_size=3), pl.List(dtype)
    values = draw(st.lists(value, min_size=1, max_size=5))
    return column, pl.Series("x", values, dtype=dtype), values


def outcome(run: Any) -> Any:
    try:
        return repr(run())
    except PenstockError as error:
        assert "'x'" in str(error), "which column?"
        return PenstockError


def check(case: tuple[str, pl.Series, list[Any]]) -> None:
    name, series, values = case
    column = COLUMNS[name]
    flow = Workflow(["x"] >> ops.AddTags("t"), engine="local:1").fit_schema(Schema([column]))

    def few() -> list[Any]:
        cells = flow.transform_rows([{"x": value} for value in values])["x"]
        return cells.to_list() if isinstance(cells, Numbers) else list(cells)

    whole = outcome(lambda: flow.transform(series.to_frame())["x"].to_list())
    rows = outcome(lambda: [flow.transform_row({"x": value})["x"] for value in values])
    assert rows == whole
    assert outcome(few) == whole


def budget(examples: int) -> Any:
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


@budget(150)
@given(cases())
def test_a_few(case: Any) -> None:
    check(case)


@pytest.mark.slow
@budget(10_000)
@given(cases())
def test_many(case: Any) -> None:
    check(case)
