"""Graphs are drawn in layers: arrows go one way, boxes do not touch, whatever the graph."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Dataset, Workflow, ops
from penstock.jobs.workflow_graph import workflow_graph
from penstock.report.drawing import _layers, _order, _place, draw_graph


@st.composite
def graphs(draw: st.DrawFn) -> dict:
    size = draw(st.integers(1, 14))
    nodes = [
        {"kind": "source" if i == 0 else "operator", "title": "x" * draw(st.integers(1, 60)), "detail": "",
         "columns": [f"c{i}"], "arguments": ""}
        for i in range(size)
    ]  # fmt: skip
    nodes[-1]["kind"] = "output"
    pairs = [(i, j) for i in range(size) for j in range(i + 1, size)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=25)) if pairs else []
    return {"nodes": nodes, "edges": [{"from": i, "to": j, "columns": 1, "kind": "data"} for i, j in chosen]}


@settings(max_examples=40, deadline=None)
@given(graphs(), st.booleans())
def test_boxes_lie_apart_and_arrows_go_one_way(graph: dict, downwards: bool) -> None:
    boxes, routes = _layers(graph)
    _order(boxes)
    wide, tall = _place(boxes, downwards)
    for box in boxes:
        assert box.x >= 0 and box.y >= -1e-6 and box.x + box.wide <= wide + 1e-6 and box.y + box.tall <= tall + 1e-6
    for i, one in enumerate(boxes):
        for other in boxes[i + 1 :]:
            beside = one.x + one.wide <= other.x + 1e-6 or other.x + other.wide <= one.x + 1e-6
            above = one.y + one.tall <= other.y + 1e-6 or other.y + other.tall <= one.y + 1e-6
            assert beside or above
    for route in routes:
        layers = [boxes[i].layer for i in route]
        assert layers == list(range(layers[0], layers[-1] + 1))
    drawn = draw_graph(graph, downwards)
    assert drawn.count("<rect") == len(graph["nodes"]) and "nan" not in drawn


def test_a_workflow_with_joins_choices_and_dependencies() -> None:
    both = (["user", "item"] >> ops.Categorify()) + (["price"] >> ops.FillMissing(0.0))
    encoded = ["user"] >> ops.TargetEncoding("click")
    output = (both - ["item"]) + encoded + ["click"]
    workflow = Workflow(output)
    workflow.fit(
        Dataset({"user": [1, 2, 1, 2], "item": [1, 1, 2, 2], "price": [1.0, None, 2.0, 3.0], "click": [0, 1] * 2})
    )
    graph = workflow_graph(workflow)
    kinds = [node["kind"] for node in graph["nodes"]]
    assert kinds.count("output") == 1 and kinds[-1] == "output"
    assert {"source", "operator", "join", "choice"} <= set(kinds)
    assert any(edge["kind"] == "dependency" for edge in graph["edges"])
    assert "drop item" in draw_graph(graph) and "dependency" in draw_graph(graph)


def test_long_lists_are_folded_but_told_in_full() -> None:
    names = [f"C{i}" for i in range(1, 27)]
    workflow = Workflow(names >> ops.Categorify())
    workflow.fit(Dataset({name: [1, 2, 2] for name in names}))
    graph = workflow_graph(workflow)
    assert graph["nodes"][0]["title"] == "C1 … C26" and graph["nodes"][0]["columns"] == names
    assert graph["nodes"][1]["detail"] == f"{26 * 5} codes"
    drawn = draw_graph(graph)
    assert "C1, C2, C3" in drawn  # in the title that a pointer shows
    assert re.search(r'viewBox="0 0 \d+ \d+"', drawn)


@pytest.mark.parametrize("downwards", [False, True])
def test_one_box(downwards: bool) -> None:
    box = {"kind": "output", "title": "<b>", "detail": "&", "columns": [], "arguments": ""}
    drawn = draw_graph({"nodes": [box], "edges": []}, downwards)
    assert "&lt;b&gt;" in drawn and "<b>" not in drawn
