"""A graph drawn as SVG: layers of boxes from the columns to the features, arrows that go round the boxes between."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core.pages.markup import Markup, tag
from penstock.report.words import folded, plural

_TALL, _BETWEEN, _GAP, _MARGIN = 46.0, 18.0, 44.0, 8.0
_CHARACTER, _LONGEST = 7.1, 40


@dataclass
class _Box:
    """A node of the graph, or the place where a long arrow passes a layer (`node` is None)."""

    node: Mapping[str, Any] | None
    layer: int
    wide: float
    tall: float
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0


def draw_graph(graph: Mapping[str, Any], downwards: bool = False) -> Markup:
    """The graph from left to right, or from top to bottom for narrow screens.

    >>> box = {"kind": "source", "title": "a", "detail": "", "columns": ["a"], "arguments": ""}
    >>> graph = {"nodes": [box, {**box, "kind": "output"}], "edges": [{"from": 0, "to": 1, "columns": 1}]}
    >>> draw_graph(graph).count("<rect")
    2
    """
    boxes, routes = _layers(graph)
    _order(boxes)
    wide, tall = _place(boxes, downwards)
    arrows = [_arrow(boxes, route, edge, downwards) for route, edge in zip(routes, graph["edges"], strict=True)]
    drawn = [_draw(box) for box in boxes if box.node is not None]
    sources = sum(len(node["columns"]) for node in graph["nodes"] if node["kind"] == "source")
    steps = [node["title"] for node in graph["nodes"] if node["kind"] == "operator"]
    told = f"{plural(sources, 'column')} pass {plural(len(steps), 'operator')}: {', '.join(steps[:20]) or 'none'}"
    return tag(
        "svg",
        tag("title", "Workflow: from columns to features"),
        tag("desc", told),
        *arrows,
        *drawn,
        viewBox=f"0 0 {wide:.0f} {tall:.0f}",
        width=f"{wide:.0f}",
        height=f"{tall:.0f}",
        style=f"min-width:{0.72 * wide:.0f}px" if not downwards else None,  # smaller could not be read: it scrolls
        role="img",
        class_="graph down" if downwards else "graph across",
    )


def _layers(graph: Mapping[str, Any]) -> tuple[list[_Box], list[list[int]]]:
    """Boxes in layers (each behind all that it needs), and for every edge the boxes it passes."""
    nodes, edges = graph["nodes"], graph["edges"]
    layer = [0] * len(nodes)
    for _ in nodes:  # edges may come in any order; a graph without cycles is settled after as many rounds
        for edge in edges:
            layer[edge["to"]] = max(layer[edge["to"]], layer[edge["from"]] + 1)
    last = max(layer, default=0)
    for i, node in enumerate(nodes):
        if node["kind"] == "output":
            layer[i] = last
    boxes = [_Box(node, layer[i], _width(node), _TALL) for i, node in enumerate(nodes)]
    routes = []
    for edge in edges:
        route = [edge["from"]]
        for between in range(layer[edge["from"]] + 1, layer[edge["to"]]):
            boxes.append(_Box(None, between, 12.0, 6.0))
            route.append(len(boxes) - 1)
        route.append(edge["to"])
        for one, other in itertools.pairwise(route):
            boxes[one].after.append(other)
            boxes[other].before.append(one)
        routes.append(route)
    return boxes, routes


def _width(node: Mapping[str, Any]) -> float:
    longest = max(len(_cut(node["title"])) * 1.1, len(_cut(node["detail"])) * 0.92)
    return max(76.0, longest * _CHARACTER + 24)


def _cut(words: str) -> str:
    return words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"


def _order(boxes: list[_Box]) -> None:
    """Order the boxes of each layer by where their neighbours are, so that few arrows cross; `y` holds the rank."""
    layers: dict[int, list[int]] = {}
    for i, box in enumerate(boxes):
        layers.setdefault(box.layer, []).append(i)
        box.y = float(len(layers[box.layer]))
    numbers = sorted(layers)
    for sweep in range(6):
        for number in numbers if sweep % 2 == 0 else reversed(numbers):
            row = layers[number]

            def middle(i: int, forwards: bool = sweep % 2 == 0) -> float:
                near = (boxes[i].before or boxes[i].after) if forwards else (boxes[i].after or boxes[i].before)
                return sum(boxes[j].y for j in near) / len(near) if near else boxes[i].y

            row.sort(key=middle)
            for rank, i in enumerate(row):
                boxes[i].y = rank - (len(row) - 1) / 2


def _place(boxes: list[_Box], downwards: bool) -> tuple[float, float]:
    """Give every box its place; how large the drawing is. Layers are columns, or rows where it goes downwards."""
    layers: dict[int, list[_Box]] = {}
    for box in boxes:
        layers.setdefault(box.layer, []).append(box)
    for row in layers.values():
        row.sort(key=lambda box: box.y)
    along = {n: max(b.tall if downwards else b.wide for b in row) for n, row in layers.items()}
    across = {
        n: sum(b.wide if downwards else b.tall for b in row) + _BETWEEN * (len(row) - 1) for n, row in layers.items()
    }
    widest, at = max(across.values(), default=0.0), _MARGIN
    for n in sorted(layers):
        place = _MARGIN + (widest - across[n]) / 2
        for box in layers[n]:
            if downwards:
                box.x, box.y = place, at + (along[n] - box.tall) / 2
                place += box.wide + _BETWEEN
            else:
                box.x, box.y = at + (along[n] - box.wide) / 2, place
                place += box.tall + _BETWEEN
        at += along[n] + (_GAP * 0.7 if downwards else _GAP)
    if not downwards:
        _straighten([layers[n] for n in sorted(layers)], boxes)
        top = min(box.y for box in boxes) - _MARGIN
        for box in boxes:
            box.y -= top
        widest = max(box.y + box.tall for box in boxes) - _MARGIN
    length = at - (_GAP * 0.7 if downwards else _GAP) + _MARGIN
    return (widest + 2 * _MARGIN, length) if downwards else (length, widest + 2 * _MARGIN)


def _straighten(layers: list[list[_Box]], boxes: list[_Box]) -> None:
    """Move boxes towards the height of their neighbours, in their order and without touching, so that chains are
    straight."""

    def middle(box: _Box) -> float:
        return box.y + box.tall / 2

    for sweep in range(8):
        forwards = sweep % 2 == 0
        for row in layers if forwards else reversed(layers):
            wanted = []
            for box in row:
                near = (box.before or box.after) if forwards else (box.after or box.before)
                wanted.append(sum(middle(boxes[j]) for j in near) / len(near) if near else middle(box))
            floor, places = float("-inf"), []
            for box, want in zip(row, wanted, strict=True):
                place = max(want - box.tall / 2, floor)
                places.append(place)
                floor = place + box.tall + _BETWEEN
            # Pushing went one way only: shift all back by what it added on average.
            drift = sum(p + b.tall / 2 - w for p, b, w in zip(places, row, wanted, strict=True)) / len(row)
            for box, place in zip(row, places, strict=True):
                box.y = place - drift


def _arrow(boxes: list[_Box], route: list[int], edge: Mapping[str, Any], downwards: bool) -> Markup:
    parts: list[str] = []
    for one, other in itertools.pairwise(route):
        start, end = boxes[one], boxes[other]
        if downwards:
            x0, y0, x1, y1 = start.x + start.wide / 2, start.y + start.tall, end.x + end.wide / 2, end.y
            bend = f"C{x0:.1f} {(y0 + y1) / 2:.1f} {x1:.1f} {(y0 + y1) / 2:.1f}"
        else:
            x0, y0, x1, y1 = start.x + start.wide, start.y + start.tall / 2, end.x, end.y + end.tall / 2
            bend = f"C{(x0 + x1) / 2:.1f} {y0:.1f} {(x0 + x1) / 2:.1f} {y1:.1f}"
        first = f"M{x0:.1f} {y0:.1f}" if not parts else f"L{x0:.1f} {y0:.1f}"
        parts.append(f"{first}{bend} {x1:.1f} {y1:.1f}")
    kind = "arrow dependency" if edge.get("kind") == "dependency" else "arrow"
    return tag("path", tag("title", plural(edge["columns"], "column")), d="".join(parts), class_=kind)


def _draw(box: _Box) -> Markup:
    node = box.node
    assert node is not None
    hint = f"{node['title']}({node['arguments']})" if node["arguments"] else node["title"]
    hint += f"\n{plural(len(node['columns']), 'column')}: {folded(node['columns'], 40)}"
    middle = box.x + box.wide / 2
    lines = [tag("text", _cut(node["title"]), x=f"{middle:.1f}", y=f"{box.y + (20 if node['detail'] else 28):.1f}")]
    if node["detail"]:
        lines.append(tag("text", _cut(node["detail"]), x=f"{middle:.1f}", y=f"{box.y + 36:.1f}", class_="detail"))
    shape = tag("rect", x=f"{box.x:.1f}", y=f"{box.y:.1f}", width=f"{box.wide:.1f}", height=f"{box.tall:.1f}", rx=9)
    return tag("g", tag("title", hint), shape, *lines, class_=f"node {node['kind']}")
