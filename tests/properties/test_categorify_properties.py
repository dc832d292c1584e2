"""Categorify against a plain Counter."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Workflow, ops
from penstock.core.schema import Schema
from penstock.data.dataset import Dataset
from penstock.data.partition import FramePartition

WORDS = st.lists(
    st.none() | st.sampled_from(["", "a", "b", "bb", "é", "\x00", "z" * 20]) | st.text(max_size=2), max_size=40
)
NUMBERS = st.lists(st.none() | st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1), max_size=40)
VALUES = st.one_of(WORDS.map(lambda v: (v, pl.String)), NUMBERS.map(lambda v: (v, pl.Int64)))
CUTS = st.lists(st.integers(0, 40), max_size=4)


def dataset(values: list, dtype: Any, cuts: list[int]) -> Dataset:
    frame = pl.DataFrame({"x": pl.Series(values, dtype=dtype)})
    bounds = [0, *sorted(min(c, len(values)) for c in cuts), len(values)]
    parts = [FramePartition(frame[a:b]) for a, b in pairwise(bounds)]
    return Dataset.from_partitions(parts, Schema.from_polars(frame.schema))


def order(counts: Counter) -> list:
    """By falling count, ties by value (text by its UTF-8 bytes)."""
    return sorted(counts, key=lambda v: (-counts[v], v.encode() if isinstance(v, str) else v))


def fitted(op: Any, values: list, dtype: Any, cuts: list[int]) -> Workflow:
    return Workflow(["x"] >> op, engine="local:1").fit(dataset(values, dtype, cuts))


def encode(workflow: Workflow, values: list, dtype: Any) -> list[int]:
    return workflow.transform(pl.DataFrame({"x": pl.Series(values, dtype=dtype)}))["x"].to_list()


@settings(max_examples=80, deadline=None)
@given(VALUES, CUTS, st.integers(0, 4))
def test_codes_go_by_count_then_value(data: tuple[list, Any], cuts: list[int], threshold: int) -> None:
    values, dtype = data
    counts = Counter(v for v in values if v is not None)
    known = [v for v in order(counts) if counts[v] >= threshold]
    workflow = fitted(ops.Categorify(freq_threshold=threshold), values, dtype, cuts)
    codes = {v: i + 3 for i, v in enumerate(known)}
    expected = [1 if v is None else codes.get(v, 2) for v in values]
    assert encode(workflow, values, dtype) == expected
    assert workflow.output_schema["x"].cardinality == len(known) + 3
    assert [workflow.transform_row({"x": v})["x"] for v in values] == expected
    back = workflow.inverse_transform(pl.DataFrame({"x": pl.Series(expected, dtype=pl.Int32)}))["x"].to_list()
    assert back == [v if v in codes else None for v in values]


@settings(max_examples=60, deadline=None)
@given(VALUES, CUTS, st.integers(1, 4), st.integers(0, 5))
def test_max_size_counts_reserved_codes(data: tuple[list, Any], cuts: list[int], buckets: int, room: int) -> None:
    values, dtype = data
    size = buckets + 2 + room
    workflow = fitted(ops.Categorify(max_size=size, num_buckets=buckets), values, dtype, cuts)
    known = order(Counter(v for v in values if v is not None))[:room]
    codes = {v: i + 2 + buckets for i, v in enumerate(known)}
    for value, code in zip(values, encode(workflow, values, dtype), strict=True):
        if value is None:
            assert code == 1
        elif value in codes:
            assert code == codes[value]
        else:
            assert 2 <= code < 2 + buckets
            assert workflow.transform_row({"x": value})["x"] == code
    assert workflow.output_schema["x"].cardinality <= size


@settings(max_examples=60, deadline=None)
@given(VALUES, st.data(), CUTS, st.integers(0, 3))
def test_updates_keep_codes_and_count_everything(
    data: tuple[list, Any], more: st.DataObject, cuts: list[int], threshold: int
) -> None:
    first, dtype = data
    second = more.draw(WORDS if dtype == pl.String else NUMBERS)
    op = ops.Categorify(freq_threshold=threshold)
    workflow = fitted(op, first, dtype, cuts)
    before = _vocabulary(workflow)
    workflow.update(dataset(second, dtype, cuts[::-1]))
    after = _vocabulary(workflow)
    assert after[: len(before)] == before
    counts = Counter(v for v in first + second if v is not None)
    fresh = Counter({v: n for v, n in counts.items() if v not in before and n >= threshold})
    assert after[len(before) :] == order(fresh)
    assert set(after) == {v for v, n in counts.items() if n >= threshold}
    stored = workflow.output.operator.vocabularies_["x"]  # type: ignore[union-attr]
    assert dict(zip(stored.values.to_list(), stored.counts.tolist(), strict=True)) == {v: counts[v] for v in after}


def _vocabulary(workflow: Workflow) -> list:
    return workflow.output.operator.vocabularies_["x"].values.to_list()  # type: ignore[union-attr]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | st.lists(st.none() | st.integers(0, 5), max_size=4), max_size=25), CUTS)
def test_lists_are_encoded_by_element(values: list, cuts: list[int]) -> None:
    workflow = fitted(ops.Categorify(), values, pl.List(pl.Int64), cuts)
    known = order(Counter(v for row in values if row for v in row if v is not None))
    codes = {v: i + 3 for i, v in enumerate(known)}
    expected = [[1 if v is None else codes[v] for v in row or []] for row in values]
    assert encode(workflow, values, pl.List(pl.Int64)) == expected


@settings(max_examples=40, deadline=None)
@given(VALUES, CUTS, st.integers(1, 4))
def test_spilled_counts_give_the_same_codes(data: tuple[list, Any], cuts: list[int], pieces: int) -> None:
    values, dtype = data
    plain = fitted(ops.Categorify(), values, dtype, cuts)
    spilled = fitted(ops.Categorify(cardinality_memory_limit=1, split_out=pieces), values, dtype, cuts)
    assert _vocabulary(spilled) == _vocabulary(plain)
    assert encode(spilled, values, dtype) == encode(plain, values, dtype)


@settings(max_examples=40, deadline=None)
@given(VALUES, CUTS, st.integers(0, 2))
def test_the_older_layout_shares_null_and_unknown(data: tuple[list, Any], cuts: list[int], start: int) -> None:
    values, dtype = data
    workflow = fitted(ops.Categorify(start_index=start), values, dtype, cuts)
    codes = {v: start + 1 + i for i, v in enumerate(order(Counter(v for v in values if v is not None)))}
    assert encode(workflow, values, dtype) == [start if v is None else codes[v] for v in values]
