"""Random graphs of +, -, [] and >> give the columns that evaluating them by hand gives."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from penstock import ColumnSelector, Workflow, ops
from penstock.etl.graph import Node, as_node

FRAME = pl.DataFrame({name: [i, i + 10, i + 20] for i, name in enumerate("abcdef")})
Columns = dict[str, list[int]]  # what a graph must deliver


@st.composite
def graphs(draw: st.DrawFn, depth: int = 4) -> tuple[Node, Columns]:
    """A graph and what it must give."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        names = draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True))
        return as_node(names), {n: FRAME[n].to_list() for n in names}
    kind = draw(st.sampled_from(["join", "drop", "pick", "shift", "rename"]))
    node, columns = draw(graphs(depth=depth - 1))
    names = list(columns)
    if kind == "join":
        other, more = draw(graphs(depth=depth - 1))
        fresh = [n for n in more if n not in columns]
        if not fresh:
            return node, columns
        return node + other[fresh], columns | {n: more[n] for n in fresh}
    if kind == "drop":
        gone = draw(st.lists(st.sampled_from(names), min_size=1, max_size=len(names), unique=True))
        if len(gone) == len(names):
            return node, columns
        return node - gone, {n: v for n, v in columns.items() if n not in gone}
    if kind == "pick":
        kept = draw(st.lists(st.sampled_from(names), min_size=1, max_size=len(names), unique=True))
        return node[kept], {n: columns[n] for n in kept}
    if kind == "shift":
        by = draw(st.integers(-3, 3))
        shifted = node >> ops.Expr([pl.col(n) + by for n in names])
        return shifted, {n: [v + by for v in values] for n, values in columns.items()}
    return node >> ops.Rename(postfix="_"), {f"{n}_": v for n, v in columns.items()}


@settings(max_examples=120, deadline=None)
@given(graphs())
def test_graphs_give_the_columns_they_spell(graph: tuple[Node, Columns]) -> None:
    node, columns = graph
    workflow = Workflow(node).fit(FRAME)
    assert workflow.output_schema.names == list(columns)
    assert_frame_equal(workflow.transform(FRAME), pl.DataFrame(columns))
    assert workflow.transform_row(FRAME.row(1, named=True)) == {n: v[1] for n, v in columns.items()}


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_graphs_survive_as_recipes(graph: tuple[Node, Columns]) -> None:
    node, columns = graph
    again = Workflow.from_recipe(Workflow(node).to_recipe())
    assert_frame_equal(again.fit(FRAME).transform(FRAME), pl.DataFrame(columns))
    assert again.to_recipe() == Workflow.from_recipe(again.to_recipe()).to_recipe()


@given(st.lists(st.sampled_from("abcdef"), max_size=3, unique=True), st.sampled_from(["all", "tag", "role"]))
def test_selectors_take_names_first_then_what_matches(names: list[str], how: str) -> None:
    schema = Workflow(["a"]).fit_schema(_schema()).input_schema
    assert schema.names == ["a"]
    options: dict[str, Any] = {"all": {"everything": True}, "tag": {"tags": "odd"}, "role": {"roles": "label"}}[how]
    matched = {"all": list("abcdef"), "tag": list("bdf"), "role": ["f"]}[how]
    found = ColumnSelector(names, **options).resolve(_schema()).names
    assert list(found) == [*names, *(n for n in matched if n not in names)]


def _schema() -> Any:
    from penstock.core.schema import ColumnSchema, Schema

    return Schema(
        ColumnSchema(n, "int64", role="label" if n == "f" else "other", tags=["odd"] if i % 2 else [])
        for i, n in enumerate("abcdef")
    )
