"""NumPy's and pandas' times among rows: read in their own unit, to the nanosecond, as a frame has them."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from penstock import Workflow, ops
from penstock.core.conversion import convert
from penstock.core.errors import ConversionError
from penstock.core.times import series_of, values_of
from penstock.etl.cells import Numbers

MOMENTS = np.array(["2026-01-01T00:00:00.000000123", "2026-01-01T00:00:00.000000456", "1969-12-31T23:59:59"], "M8[ns]")
FRAME = pl.DataFrame({"t": pl.Series(MOMENTS)})
FLOWS = {
    "Categorify": lambda: ["t"] >> ops.Categorify(),
    "HashBucket": lambda: ["t"] >> ops.HashBucket(1000),
    "Expr": lambda: (
        ["t"] >> ops.Expr({"ns": pl.col("t").dt.nanosecond(), "t": pl.col("t") + pl.duration(nanoseconds=1)})
    ),
    "Rename": lambda: ["t"] >> ops.Rename(postfix="_r"),
    "FillMissing": lambda: ["t"] >> ops.FillMissing(datetime.datetime(2000, 1, 1)),
    "Fill-Categorify": lambda: ["t"] >> ops.FillMissing(datetime.datetime(2000, 1, 1)) >> ops.Categorify(),
}


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("kind", [np.datetime64, pd.Timestamp])
def test_moments_keep_their_nanoseconds(name, kind) -> None:
    flow = Workflow(FLOWS[name]()).fit(FRAME)
    rows = [{"t": kind(moment)} for moment in MOMENTS] + [{"t": None}, {"t": np.datetime64("NaT")}, {"t": pd.NaT}]
    whole = flow.transform(pl.concat([FRAME, pl.DataFrame({"t": pl.Series([None] * 3, dtype=pl.Datetime("ns"))})]))
    expected = {column.name: values_of(column) for column in whole}
    few = flow.transform_rows(rows)
    for column, values in expected.items():
        assert [flow.transform_row(row)[column] for row in rows] == values
        assert (few[column].to_list() if isinstance(few[column], Numbers) else list(few[column])) == values


@pytest.mark.parametrize("unit", ["D", "h", "m", "s", "ms", "us", "ns"])
def test_any_unit_of_numpy(unit) -> None:
    moment = np.datetime64("2026-01-02").astype(f"M8[{unit}]")
    for wanted in ("ms", "us", "ns"):
        assert convert(moment, f"datetime[{wanted}]", column="t") == datetime.datetime(2026, 1, 2)
    assert convert(np.datetime64("2026-01-02", "D"), "date", column="t") == datetime.date(2026, 1, 2)


@pytest.mark.parametrize("value", [np.datetime64(1, "ps"), np.datetime64(300_000, "Y")])
def test_what_nanoseconds_do_not_hold_is_refused(value) -> None:
    with pytest.raises(ConversionError, match="column 't'"):
        convert(value, "datetime[ns]", column="t")


def test_microseconds_refuse_nanoseconds() -> None:
    flow = Workflow(["t"] >> ops.Categorify()).fit(FRAME.with_columns(pl.col("t").dt.cast_time_unit("us")))
    with pytest.raises(ConversionError, match="column 't'"):
        flow.transform_row({"t": MOMENTS[0]})


def test_lists_of_moments() -> None:
    values = [[MOMENTS[0], None], None, [datetime.datetime(2000, 1, 1)], []]
    assert values_of(series_of(values, pl.List(pl.Datetime("ns")))) == values


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_spans_are_counted_in_the_unit_that_was_fitted_on(unit) -> None:
    span = datetime.timedelta(seconds=1, milliseconds=5)
    flow = Workflow(["gap"] >> ops.AddTags("t")).fit(pl.DataFrame({"gap": pl.Series([span], dtype=pl.Duration(unit))}))
    count = 1005 * {"ms": 1, "us": 1000, "ns": 1_000_000}[unit]
    spans = [span, np.timedelta64(1005, "ms"), pd.Timedelta(span), np.timedelta64(1_005_000_000, "ns"), count]
    assert [flow.transform_row({"gap": value}) for value in spans] == [{"gap": count}] * len(spans)
    assert flow.transform_rows([{"gap": value} for value in spans])["gap"].to_list() == [count] * len(spans)
    for other in ("ms", "us", "ns"):
        frame = pl.DataFrame({"gap": pl.Series([span, None], dtype=pl.Duration(other))})
        assert flow.transform(frame)["gap"].to_list() == [count, None]
    fine = np.timedelta64(1, "ns")
    if unit == "ns":
        assert flow.transform_row({"gap": fine}) == {"gap": 1}
    else:
        with pytest.raises(ConversionError, match="column 'gap'"):
            flow.transform_row({"gap": fine})
        with pytest.raises(ConversionError, match="column 'gap', row 1"):
            flow.transform(pl.DataFrame({"gap": pl.Series([0, 1], dtype=pl.Duration("ns"))}))
