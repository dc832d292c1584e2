"""A graph of operators as text, where Merlin drew a picture with Graphviz."""

from __future__ import annotations

from penstock.etl.graph import ColumnSelector, Node, ancestors


class Drawing:
    """Prints as one line for each arrow; `source` is the same in Graphviz's language, for those who have it.

    >>> from penstock.compat.nvtabular import ops
    >>> drawing = Drawing(["a", "b"] >> ops.FillMissing() >> ops.Normalize())
    >>> drawing
    a, b -> FillMissing
    FillMissing -> Normalize
    >>> drawing.source.splitlines()[1]
    '  0 [label="a, b"]'
    """

    def __init__(self, node: Node) -> None:
        self.output_node = node
        nodes = list(ancestors([node]))
        number = {id(node): i for i, node in enumerate(nodes)}
        self._labels = [_label(node) for node in nodes]
        self._edges = [(number[id(parent)], i) for i, node in enumerate(nodes) for parent in node.feeds]

    @property
    def source(self) -> str:
        boxes = [f'  {i} [label="{_quoted(label)}"]' for i, label in enumerate(self._labels)]
        arrows = [f"  {start} -> {end}" for start, end in self._edges]
        return "\n".join(["digraph {", *boxes, *arrows, "}"]) + "\n"

    def __repr__(self) -> str:
        if not self._edges:
            return self._labels[-1]
        return "\n".join(f"{self._labels[start]} -> {self._labels[end]}" for start, end in self._edges)


def _label(node: Node) -> str:
    if node.operator is not None:
        return type(node.operator).__name__
    columns = "" if node.selector is None else _columns(node.selector)
    signs = {"source": columns, "join": "+", "drop": f"- {columns}", "pick": f"[{columns}]"}
    return node.name or signs.get(node.kind, node.kind)


def _columns(selector: ColumnSelector, most: int = 6) -> str:
    groups = [group[0] if len(group) == 1 else f"({', '.join(group)})" for group in selector.groups]
    listed = [*groups, *(f"tagged {tag}" for tag in selector.tags), *map(str, selector.roles)]
    listed += ["all columns"] if selector.everything else []
    return ", ".join([*listed[:most], "…"] if len(listed) > most else listed)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
