"""Operators that look at several rows or at another table, against plain Python: exact fractions, dictionaries, slices.

Keys are those that go wrong: NaN and null are one missing key, -0.0 is 0.0, integers beyond 2**53 are what they are.
"""

from __future__ import annotations

import math
import struct
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

KEYS: dict[str, tuple[pl.DataType, list[Any]]] = {
    "int8": (pl.Int8(), [0, 1, -1]),
    "int64": (pl.Int64(), [0, 1, 2**53, 2**53 + 1, -(2**63)]),
    "uint64": (pl.UInt64(), [0, 1, 2**53 + 1, 2**64 - 1]),
    "float32": (pl.Float32(), [0.0, -0.0, 1.0, math.nan, math.inf]),
    "float64": (pl.Float64(), [0.0, -0.0, 1.0, 1.5, 2.0**53, math.nan, -math.inf]),
    "bool": (pl.Boolean(), [True, False]),
    "string": (pl.String(), ["", "a", "nan"]),
}
NUMBERS: dict[str, pl.DataType] = {
    "int8": pl.Int8(), "int32": pl.Int32(), "int64": pl.Int64(), "uint64": pl.UInt64(), "bool": pl.Boolean(),
    "float32": pl.Float32(), "float64": pl.Float64(),
}  # fmt: skip


def numbers(kind: str) -> st.SearchStrategy[Any]:
    if kind == "bool":
        return st.booleans()
    if kind.startswith("float"):
        edges = st.sampled_from([0.0, -0.0, 1.0, 0.1, 1e18, math.nan, math.inf, -math.inf])
        drawn = st.floats(-(2.0**40), 2.0**40, width=int(kind.removeprefix("float"))) | edges
        drawn = drawn.map(lambda value: value if value != value or abs(value) > 2.0**-60 else value * 0.0)
        return drawn.map(single) if kind == "float32" else drawn
    limits = np.iinfo(kind)
    edges = [v for v in (limits.min, limits.max, 0, 1, 2**53 + 1, 2**53 + 3, -(2**53) - 1) if v <= limits.max]
    return st.sampled_from([int(v) for v in edges if v >= limits.min]) | st.integers(0, 5)


def single(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def known(key: Any) -> Any:
    """A key as it is told from others; None where it is missing."""
    return None if key is None or key != key else key + 0.0 if isinstance(key, float) else key


def there(values: list[Any]) -> list[Any]:
    return [v for v in values if v is not None and v == v]


@st.composite
def tables(draw: st.DrawFn) -> tuple[pl.DataFrame, list[int], str]:
    key, number = draw(st.sampled_from(list(KEYS))), draw(st.sampled_from(list(NUMBERS)))
    row = st.tuples(st.none() | st.sampled_from(KEYS[key][1]), st.none() | numbers(number))
    rows = draw(st.lists(row, max_size=14))
    frame = pl.DataFrame(rows, schema={"key": KEYS[key][0], "x": NUMBERS[number]}, orient="row")
    return frame.with_row_index("row"), draw(st.lists(st.integers(0, len(rows)), max_size=3)), number


def cut(frame: pl.DataFrame, bounds: list[int]) -> Dataset:
    parts = [FramePartition(frame[a:b]) for a, b in pairwise([0, *sorted(bounds), frame.height])]
    return Dataset.from_partitions(parts, Schema.from_polars(frame.schema))


def groups(frame: pl.DataFrame) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for key, value in frame.select("key", "x").iter_rows():
        found.setdefault(known(key), []).append(value)
    return found


# Groupby.


def exact_sum(values: list[Any]) -> Fraction | float:
    infinite = {v for v in values if math.isinf(v)}
    if infinite:
        return infinite.pop() if len(infinite) == 1 else math.nan
    return sum((Fraction(v) for v in values), Fraction(0))


def as_float(value: Fraction | float | None, kind: str) -> float | None:
    """An exact result as the column holds it; what is not defined is missing."""
    if value is None or value != value:
        return None
    near = float(value)
    return single(near) if kind == "float32" else near


def variance(values: list[Any]) -> Fraction | None:
    if len(values) < 2 or any(math.isinf(v) for v in values):
        return None
    mean = exact_sum(values) / len(values)
    return sum((Fraction(v) - mean) ** 2 for v in values) / (len(values) - 1)


def median(values: list[Any]) -> Fraction | float | None:
    if not values:
        return None
    ordered = sorted(values)
    middle = [ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]]
    return exact_sum(middle) / 2 if not any(map(math.isinf, middle)) else exact_sum(middle)


def spread(values: list[Any]) -> float | None:
    exact = variance(values)
    return None if exact is None else math.sqrt(exact)


def aggregations(values: list[Any], kind: str) -> dict[str, Any]:
    present = there(values)
    total = exact_sum(present)
    whole = not kind.startswith("float")
    return {
        "list": values, "first": values[0], "last": values[-1], "count": len(present), "nunique": len(set(present)),
        "sum": int(total) if whole else as_float(total, kind),
        "mean": as_float(total / len(present), kind) if present else None,
        "var": as_float(variance(present), kind), "std": as_float(spread(present), kind),
        "min": min(present, default=None), "max": max(present, default=None),
        "median": as_float(median(present), kind),
    }  # fmt: skip


def check_groupby(case: Any) -> None:
    frame, bounds, kind = case
    flow = Workflow(["key", "x", "row"] >> ops.Groupby("key", "row", {"x": list(aggregations([0], kind))}))
    expected = {key: aggregations(values, kind) for key, values in groups(frame).items()}
    try:
        found = flow.transform(cut(frame, bounds)).to_polars()
    except PenstockError:
        assert any(not -(2**63) <= a["sum"] < 2**63 for a in expected.values() if isinstance(a["sum"], int))
        return
    assert sorted(map(repr, expected)) == sorted(map(repr, found["key"]))
    for row in found.to_dicts():
        for name, value in expected[row["key"]].items():
            same(row[f"x_{name}"], value, name)


def same(found: Any, expected: Any, name: str) -> None:
    if name in ("min", "max", "median") and expected == 0:
        assert found == 0  # which of the zeros is not said
    elif name in ("var", "std") and expected is not None:  # a square root and a quotient of long sums: the last bit
        assert found is not None and math.isclose(
            found, expected, rel_tol=2**-22 if single(found) == found else 2**-51, abs_tol=2**-67
        )  # squares below 2**-140 are taken for zero
    else:
        assert repr(found) == repr(expected), name


# DifferenceLag, JoinGroupby, TargetEncoding, JoinExternal, ListSlice.


def check_lag(case: Any) -> None:
    frame, bounds, kind = case
    for shift in (1, -2):
        flow = Workflow(["x"] >> ops.DifferenceLag("key", shift), engine="local:1")
        found = flow.transform(cut(frame, bounds)).to_polars().to_series().to_list()
        series: dict[Any, list[int]] = {}
        for row, key in enumerate(frame["key"].to_list()):
            series.setdefault(known(key), []).append(row)
        values, expected = frame["x"].to_list(), [None] * frame.height
        for rows in series.values():
            for place, row in enumerate(rows):
                if 0 <= place - shift < len(rows):
                    expected[row] = difference(values[row], values[rows[place - shift]], kind)
        assert repr(found) == repr(expected)


def difference(value: Any, earlier: Any, kind: str) -> float | None:
    if value is None or earlier is None:
        return None
    if not (math.isfinite(value) and math.isfinite(earlier)):
        return value - earlier
    exact = Fraction(value) - Fraction(earlier)
    if exact == 0 and kind.startswith("float"):
        return value - earlier  # the sign of zero
    return single(float(exact)) if kind == "float32" else float(exact)


def check_statistics(case: Any) -> None:
    frame, bounds, _ = case
    flow = Workflow(["key"] >> ops.JoinGroupby("x", ["count", "sum", "mean", "std", "min", "max"]), engine="local:1")
    found = flow.fit_transform(cut(frame, bounds)).to_polars()
    by_key = {key: (len(values), aggregations(values, "float64")) for key, values in groups(frame).items()}
    for key, row in zip(frame["key"].to_list(), found.to_dicts(), strict=True):
        rows, expected = by_key[known(key)]
        assert row["key_count"] == rows
        for name in ("sum", "mean", "std", "min", "max"):
            value = expected[name]
            same(row[f"key_x_{name}"], None if value is None else float(value), name)


def check_encoding(case: Any) -> None:
    frame, bounds, _ = case
    weight = 3
    flow = Workflow(["key"] >> ops.TargetEncoding("x", p_smooth=weight, kfold=1, out_dtype="float64"), engine="local:1")
    every = there(frame["x"].to_list())
    if any(map(math.isinf, every)):
        with pytest.raises(PenstockError, match="row"):
            flow.fit(cut(frame, bounds))
        return
    found = flow.fit_transform(cut(frame, bounds)).to_polars().to_series().to_list()
    mean = Fraction(exact_sum(every)) / len(every) if every else Fraction(0)
    by_key = {key: there(values) for key, values in groups(frame).items()}
    for key, value in zip(frame["key"].to_list(), found, strict=True):
        total, count = exact_sum(by_key[known(key)]), len(by_key[known(key)])
        # The mean and the sum are rounded before they meet, each to its own last bit.
        slack = 2**-51 * max(abs(total), abs(mean) * weight, 1) / (count + weight)
        assert abs(Fraction(value) - (total + mean * weight) / (count + weight)) <= slack


def check_held_out(case: Any) -> None:
    """A training row's encoding says nothing about its own target, and everything about its fold's other rows."""
    frame, bounds, kind = case
    if not frame.height or any(map(math.isinf, there(frame["x"].to_list()))):
        return
    encoded = []
    for other in (0, 1):
        changed = frame.with_columns(
            pl.when(pl.col("row") == 0).then(pl.lit(other).cast(NUMBERS[kind])).otherwise("x").alias("x")
        )
        flow = Workflow(["key"] >> ops.TargetEncoding("x", target_mean=0.5, p_smooth=1, out_dtype="float64"))
        encoded.append(flow.fit_transform(cut(changed, bounds)).to_polars().to_series().to_list())
    assert repr(encoded[0][0]) == repr(encoded[1][0])


def check_join(case: Any, other: tuple[str, list[Any]], how: str) -> None:
    frame, bounds, _ = case
    kind, keys = other
    table = pl.DataFrame(
        {"id": pl.Series(keys, dtype=KEYS[kind][0]), "place": range(len(keys))}, schema_overrides={"place": pl.Int64}
    )
    flow = Workflow(["key", "row"] >> ops.JoinExternal(table, "key", how, "id"), engine="local:1")
    text = (frame.schema["key"] == pl.String) != (kind == "string")
    try:
        found = flow.transform(cut(frame, bounds)).to_polars().select("row", "place").rows()
    except PenstockError:
        assert text
        return
    assert not text
    expected = []
    for row, key in enumerate(frame["key"].to_list()):
        places = [
            i for i, k in enumerate(keys) if known(key) is not None and known(k) is not None and known(key) == known(k)
        ]
        expected += [(row, place) for place in places] or ([(row, None)] if how == "left" else [])
    assert found == expected


def check_slices(lists: list[Any], start: int, end: int | None, pad: bool) -> None:
    try:
        flow = Workflow(["x"] >> ops.ListSlice(start, end, pad=pad, pad_value=7))
    except PenstockError:
        assert pad
        return
    found = flow.transform(pl.DataFrame({"x": pl.Series(lists, dtype=pl.List(pl.Int16))}))["x"].to_list()
    piece = slice(None, start) if end is None and start > 0 else slice(start, end)
    width = max(len(range(length)[piece]) for length in range(20))
    expected = [None if v is None else v[piece] for v in lists]
    assert found == ([(v or []) + [7] * (width - len(v or [])) for v in expected] if pad else expected)


LISTS = st.lists(st.none() | st.integers(0, 9), max_size=5)
PLACE = st.integers(-4, 4)
OTHER = st.sampled_from(list(KEYS)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(st.none() | st.sampled_from(KEYS[kind][1]), max_size=6))
)
CHECKS: dict[str, tuple[tuple[Any, ...], Callable[..., None]]] = {
    "Groupby": ((tables(),), check_groupby),
    "DifferenceLag": ((tables(),), check_lag),
    "JoinGroupby": ((tables(),), check_statistics),
    "TargetEncoding": ((tables(),), check_encoding),
    "TargetEncoding-folds": ((tables(),), check_held_out),
    "JoinExternal": ((tables(), OTHER, st.sampled_from(["left", "inner"])), check_join),
    "ListSlice": (
        (st.lists(st.none() | LISTS), PLACE, st.none() | PLACE, st.booleans()),
        check_slices,
    ),
}  # fmt: skip


def run(name: str, examples: int) -> None:
    strategies, check = CHECKS[name]
    budget = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    budget(given(st.tuples(*strategies))(lambda case: check(*case)))()


@pytest.mark.parametrize("name", CHECKS)
def test_plain_python_agrees(name: str) -> None:
    run(name, 25)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_plain_python_agrees_at_length(name: str) -> None:
    run(name, 1000)
