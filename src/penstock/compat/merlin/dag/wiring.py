"""What Merlin's nodes show of themselves and let a program change: operator, selector, parents and children."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.compat.merlin.dag.selector import ColumnSelector, EmptySelector, FoundNames, NamedSelector
from penstock.compat.merlin.schema import Schema
from penstock.compat.missing import CompatError
from penstock.core.errors import PenstockError
from penstock.etl import graph as native

if TYPE_CHECKING:
    from penstock.compat.merlin.dag.node import Node


class Wired(native.Node):
    """Mixin of nodes: `op`, `selector`, `parents`, `children`, and the methods that put nodes together one by one.

    >>> from penstock.compat.merlin.dag import Node
    >>> from penstock.compat.merlin.dag.ops.concat_columns import ConcatColumns
    >>> both = Node()
    >>> both.op = ConcatColumns()
    >>> both.add_parent([Node(["a"]), Node(["b"])])
    >>> len(both.parents), both.parents[0].children == [both], type(both.parents[0].op).__name__
    (2, True, 'SelectionOp')
    """

    _branches: tuple[native.Node, ...] | None = None  # of a join, before columns that a later one has are left out
    _leading: int = 0  # how many of the branches are parents in Merlin's eyes; the others are dependencies
    _removed: tuple[Any, ...] | None = None  # what a subtraction takes away: selectors and nodes
    _groups: tuple[tuple[Node, ...], tuple[Node, ...]] | None = None  # branches alone, and those that are groups

    # Penstock's nodes have an operator where one is applied; Merlin's have one for every step.

    @property
    def op(self) -> Any:
        """The operator of this step, as the program made it; `+`, `-`, `[…]` and a selection have one too."""
        from penstock.compat.merlin.dag import base_operator as steps

        if self.operator is not None:
            return getattr(self.operator, "op", self.operator)
        if self.kind == "join":
            return steps.ConcatColumns("+") if self.feeds else None
        chosen = ColumnSelector(getattr(self.selector, "grouped_names", []))
        if self.kind == "drop":
            return steps.SubtractionOp(chosen)
        return steps.SubsetColumns(str(chosen.names)) if self.kind == "pick" else steps.SelectionOp(chosen)

    @op.setter
    def op(self, op: Any) -> None:
        from penstock.compat.merlin.dag.base_operator import Step
        from penstock.compat.merlin.dag.node import as_operator

        self.operator = None if op is None or isinstance(op, Step) else as_operator(op)
        if self.operator is not None:
            self.kind = "apply"
        self.domain = self._row_domain()

    @property
    def _selector(self) -> Any:
        """What was selected here by the program."""
        own = self.__dict__.get("selector")
        if type(own) is native.ColumnSelector:  # Penstock made it: it tells its names as well
            own.__class__ = NamedSelector
        return own

    @property
    def selector(self) -> Any:
        """What was selected here; of an operator and of `+`, its input columns, once a schema is known."""
        own = self._selector
        known: Any = self
        if self.kind not in ("apply", "join") or not (self.feeds or self.extras):
            return own
        if known._has_schema:
            return FoundNames(lambda: known.input_columns.names)
        return own if self.kind == "apply" else FoundNames(lambda: names_before(self))

    @selector.setter
    def selector(self, chosen: Any) -> None:
        if isinstance(chosen, (list, tuple)):
            chosen = ColumnSelector(chosen)
        if isinstance(chosen, ColumnSelector):
            if chosen and self.kind == "join" and not self.feeds:
                self.kind = "source"
            chosen = chosen.to_native() if chosen else EmptySelector()
        self.__dict__["selector"] = chosen

    @property
    def parents(self) -> list[Node]:
        """The nodes whose columns this one works on; of `a + b` and `a - b` it is `a` alone."""
        if self._groups is not None:
            return list(self._groups[0][:1])
        feeds = self._branches or tuple(self.feeds)
        return list(feeds[: self._leading] if self._branches else feeds)  # type: ignore[arg-type]

    @property
    def dependencies(self) -> list[Node]:
        """The nodes whose columns this one needs besides: what an operator names, and right sides of `+` and `-`."""
        if self._groups is not None:
            return [*self._groups[0][1:], *self._groups[1]]
        if self._removed is not None:
            return [item for item in self._removed if isinstance(item, native.Node)]  # type: ignore[misc]
        return list((self._branches or ())[self._leading :] or self.extras)  # type: ignore[arg-type]

    @property
    def parents_with_dependencies(self) -> list[Node]:
        return self.parents + self.dependencies

    grouped_parents_with_dependencies = parents_with_dependencies

    @property
    def children(self) -> list[Node]:
        """The nodes that were made of this one."""
        return self.__dict__.setdefault("_children", [])

    def add_parent(self, parent: Any) -> None:
        """Let the columns of a node, a selector or names (or of several in a list) come into this node."""
        from penstock.compat.merlin.dag.node import as_node

        added = [as_node(node) for node in _nodes(parent)]
        at = self._leading if self.kind == "join" else len(self.feeds)
        self.feeds[at:at] = added
        self._leading += len(added)
        if self.kind == "source":
            self.kind = "pick"
        self._rewired()

    def add_dependency(self, dep: Any) -> None:
        """Let this node's operator read further columns besides its inputs."""
        from penstock.compat.merlin.dag.node import as_node

        added = [as_node(node) for node in _nodes(dep)]
        if self.kind == "join":  # which has no operator of its own: its columns are all that comes in
            self.feeds += added
        else:
            self.extras = (*self.extras, *added)
        self._rewired()

    def add_child(self, child: Any) -> None:
        """Let this node's columns go into another."""
        for node in _nodes(child):
            node.add_parent(self)

    def remove_child(self, child: Any) -> None:
        """Let this node's columns no longer go into another."""
        for node in _nodes(child):
            node._leading -= min(node._leading, sum(parent is self for parent in node.parents))
            node.feeds = [feed for feed in node.feeds if feed is not self]
            node._rewired()
            self.children[:] = [known for known in self.children if known is not node]

    def _rewired(self) -> None:
        if self.kind == "join":
            self._branches = tuple(self.feeds)
        self.domain = self._row_domain()
        born(self)

    # Schemas and what Merlin did with a single node.

    def compute_schemas(self, root_schema: Schema, preserve_dtypes: bool = False) -> None:
        """Work out the schemas of this node and of those before it."""
        from penstock.compat.merlin.dag.graph import Graph

        Graph(self).construct_schema(root_schema, preserve_dtypes)

    def validate_schemas(self, root_schema: Schema, strict_dtypes: bool = False) -> None:
        """Let the operator refuse the schemas that `compute_schemas` gave."""
        known: Any = self
        parents, further = (
            sum((node.output_schema for node in nodes), Schema()) for nodes in (known.parents, known.dependencies)
        )
        check = getattr(self.op, "validate_schemas", None)
        if check is not None:
            check(parents, further, known.input_schema, known.output_schema, strict_dtypes=strict_dtypes)

    def exportable(self, backend: str | None = None) -> bool:
        """Whether the operator can be exported by itself; none of Penstock's is."""
        return callable(getattr(self.op, "export", None))

    def export(self, output_path: Any, node_id: int | None = None, version: int = 1) -> Any:
        """Let an operator that can export itself do so."""
        if not self.exportable():
            raise CompatError(f"{self!r} is not exported by itself: save the workflow, and serve it (penstock serve)")
        known: Any = self
        return self.op.export(output_path, known.input_schema, known.output_schema, node_id=node_id, version=version)

    @property
    def export_name(self) -> str:
        return str(getattr(self.op, "export_name", type(self.op).__name__.lower()))


def names_before(node: Any) -> list[str]:
    """The columns that a node will give, as far as names say it before a schema is known.

    >>> from penstock.compat.nvtabular import ops
    >>> names_before((["a", "b"] >> ops.Rename(postfix="_x")) + "c")
    ['a_x', 'b_x', 'c']
    """
    if node.kind in ("source", "pick"):
        return list(getattr(node._selector, "names", []))
    inputs = list(dict.fromkeys(name for parent in (node._branches or node.feeds) for name in names_before(parent)))
    if node.kind == "apply":
        try:
            return list(node.op.output_column_names(ColumnSelector(inputs)).names)
        except (PenstockError, TypeError):
            return inputs
    return inputs


def born(node: Any) -> Any:
    """The node, known to its parents as their child."""
    for parent in (*(node._branches or node.feeds), *node.extras):
        if isinstance(parent, Wired) and not any(child is node for child in parent.children):
            parent.children.append(node)
    return node


def _nodes(given: Any) -> Iterable[Any]:
    """One or several; a list of names is one."""
    several = isinstance(given, (list, tuple)) and any(isinstance(item, native.Node) for item in given)
    return given if several else [given]


# A graph of operators as text, where Merlin drew a picture with Graphviz.


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

    def __init__(self, node: native.Node) -> None:
        self.output_node = node
        nodes = list(native.ancestors([node]))
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


def _label(node: native.Node) -> str:
    if node.operator is not None:
        return type(node.operator).__name__
    columns = "" if node.selector is None else _columns(node.selector)
    signs = {"source": columns, "join": "+", "drop": f"- {columns}", "pick": f"[{columns}]"}
    return node.name or signs.get(node.kind, node.kind)


def _columns(selector: native.ColumnSelector, most: int = 6) -> str:
    groups = [group[0] if len(group) == 1 else f"({', '.join(group)})" for group in selector.groups]
    listed = [*groups, *(f"tagged {tag}" for tag in selector.tags), *map(str, selector.roles)]
    listed += ["all columns"] if selector.everything else []
    return ", ".join([*listed[:most], "…"] if len(listed) > most else listed)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
