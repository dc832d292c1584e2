"""Nodes of a graph: Penstock's, built with Merlin's selectors and operators."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.compat import settings
from penstock.compat.merlin.dag.declaring import rewritten
from penstock.compat.merlin.dag.selector import ColumnSelector, NamedSelector
from penstock.compat.merlin.dag.wiring import Drawing, Wired, born
from penstock.compat.merlin.schema import Schema
from penstock.compat.missing import CompatTypeError
from penstock.core.errors import GraphError, NotFittedError
from penstock.etl import graph as native
from penstock.etl.graph import ancestors
from penstock.etl.operator import Operator as NativeOperator
from penstock.etl.plan import Plan

__all__ = ["Node", "iter_nodes", "postorder_iter_nodes", "preorder_iter_nodes"]


class Node(Wired):
    """One step of a graph: a selector's columns, or what `>>`, `+`, `-` and `[…]` make of other nodes.

    Where two branches of `+` have a column of one name, the later one's counts. What `-` takes away may be given by
    name, by selector or as a node, whose columns these are.

    >>> from penstock.compat.nvtabular import ops
    >>> node = ["a", "b"] >> ops.FillMissing() >> ops.Normalize()
    >>> type(node + "label").__name__, node.parents[0].op
    ('Node', FillMissing())
    """

    __array_ufunc__ = None  # so that an array of names leaves its operators to the node
    _place: tuple[Plan, int] | None = None  # where it stands in a fitted workflow
    _schemas: tuple[Schema, Schema] | None = None  # input and output, where only these are known
    _origin: Node | None = None  # of a subgraph that was placed behind another node: its last node as it was made

    def __init__(self, selector: Any = None) -> None:
        if isinstance(selector, (list, tuple)):
            selector = ColumnSelector(selector)
        if selector is not None and not isinstance(selector, ColumnSelector):
            raise CompatTypeError(f"a node takes a list of names or a ColumnSelector, got {selector!r}")
        if selector:
            super().__init__("source", selector=selector.to_native())
        else:
            super().__init__("join")
            self.selector = selector

    @classmethod
    def construct_from(cls, nodable: Any) -> Node:
        """A node from whatever may stand in a graph."""
        return as_node(nodable)

    def __rshift__(self, op: Any) -> Node:
        if isinstance(op, native.Node):
            return inside(op, self)
        made = promoted(super().__rshift__(as_operator(op)))
        for further in made.extras:
            promoted(further)
        return born(made)

    def __rrshift__(self, left: Any) -> Node:
        return as_node(left) >> self

    def __add__(self, other: Any) -> Node:
        if isinstance(other, (list, tuple)) and not other:
            return self
        if isinstance(other, (list, tuple)) and _holds_nodes(other):
            return grouped([self], [as_node(list(other))])
        return born(joined([*_branches_of(self), *_branches_of(as_node(other))]))

    def __radd__(self, other: Any) -> Node:
        if isinstance(other, (list, tuple)) and _holds_nodes(other):
            return self + other  # a group, wherever it stands
        return as_node(other) + self

    def __sub__(self, removed: Any) -> Node:
        node = promoted(native.Node("drop", [self]))
        items = removed if isinstance(removed, (list, tuple)) else [removed]
        node._removed = tuple(item if isinstance(item, native.Node) else _chosen([item]) for item in items)
        return born(node)

    def __rsub__(self, left: Any) -> Node:
        return as_node(left) - self

    def __getitem__(self, names: Any) -> Node:
        return born(promoted(super().__getitem__(_chosen(names))))

    @property
    def graph(self) -> Drawing:
        """The steps that lead here, as text."""
        return Drawing(self)

    # Once a schema is known.

    @property
    def output_schema(self) -> Schema:
        if self._schemas is not None:
            return self._schemas[1]
        plan, number = self._fitted()
        return Schema.from_native(plan.schemas[number])

    @property
    def input_schema(self) -> Schema:
        if self._schemas is not None:
            return self._schemas[0]
        plan, number = self._fitted()
        numbers = (*plan.parents[number], *plan.dependencies[number])
        inputs = [plan.schemas[p] for p in numbers] or [plan.schemas[number]]
        return sum((Schema.from_native(schema) for schema in inputs), Schema())

    @property
    def output_columns(self) -> ColumnSelector:
        return ColumnSelector(self.output_schema.column_names)

    @property
    def input_columns(self) -> ColumnSelector:
        known = self.input_schema
        if self.kind == "pick":
            return ColumnSelector(self.output_schema.column_names)
        if self._place is None and self.feeds:
            known = sum((promoted(node).output_schema for node in self.feeds), Schema())
        if self._place is None or self.kind == "source":
            return ColumnSelector(known.column_names)
        plan, number = self._place
        groups = plan.columns[number].groups or tuple((n,) for n in known.column_names)
        return ColumnSelector([group[0] if len(group) == 1 else list(group) for group in groups])

    @property
    def dependency_columns(self) -> ColumnSelector:
        if not self._has_schema:
            chosen = [_raw(node) for node in self.extras]
            groups = [group for selector in chosen if selector is not None for group in selector.groups]
            return ColumnSelector([name for group in groups for name in group])
        known = sum((promoted(node).output_schema for node in self.extras), Schema())
        return ColumnSelector(known.column_names)

    @property
    def column_mapping(self) -> dict[str, list[str]]:
        """`{output: inputs}` of this step."""
        if self.operator is None:
            return {name: [name] for name in self.output_schema.column_names}
        return self.op.column_mapping(self.input_columns)

    @property
    def label(self) -> str:
        if self.operator is None:
            return self.name or {"join": "+", "drop": "-"}.get(self.kind, self.kind)
        return self.name or getattr(self.op, "label", None) or repr(self.op)

    def __getstate__(self) -> dict[str, Any]:  # workers need the node, not the plan it once stood in
        return {name: value for name, value in self.__dict__.items() if name not in ("_place", "_children", "_origin")}

    def _holds_groups(self) -> bool:
        return self._groups is not None or any(promoted(node)._holds_groups() for node in _branches_of(self)
                                               if node is not self)  # fmt: skip

    @property
    def _has_schema(self) -> bool:
        return self._place is not None or self._schemas is not None

    def _fitted(self) -> tuple[Plan, int]:
        if self._place is None:
            raise NotFittedError(f"{self!r} has no schema yet; fit a workflow with it first")
        return self._place


def promoted(node: native.Node) -> Node:
    """The node under Merlin's name: nodes differ in what may be joined to them, not in what they hold."""
    if not isinstance(node, Node):
        node.__class__ = Node
    return node  # type: ignore[return-value]


def joined(branches: Sequence[native.Node]) -> Node:
    """Branches side by side; of columns with one name, the later branch's."""
    node = promoted(native.Node("join", branches))
    node._branches, node._leading = tuple(node.feeds), 1
    return node


def _branches_of(node: Node) -> tuple[native.Node, ...]:
    return (node._branches or tuple(node.feeds)) if node.kind == "join" and node.name is None else (node,)


def as_node(value: Any) -> Node:
    """A node from a node, a selector, a name, or a list of names, groups, selectors and nodes."""
    if isinstance(value, native.Node):
        return promoted(value)
    if isinstance(value, ColumnSelector):
        return promoted(native.Node.source(value.to_native()))
    if isinstance(value, native.ColumnSelector):
        return promoted(native.Node.source(value))
    if isinstance(value, str):
        return as_node(ColumnSelector(value))
    listed = _listed(value)
    if listed is None or not listed:
        raise GraphError(f"expected column names, a ColumnSelector or a node, got {value!r}")
    if not any(_holds_nodes(item) for item in listed):
        return as_node(ColumnSelector(listed))
    if len(listed) == 1 and isinstance(listed[0], Node) and listed[0]._holds_groups():
        raise GraphError("a group of columns cannot hold further groups")
    nodes: list[native.Node] = []
    for item in listed:
        group = isinstance(item, (list, tuple)) and not _holds_nodes(item)
        nodes += _branches_of(as_node(ColumnSelector([item]) if group else item))
    return promoted(nodes[0]) if len(nodes) == 1 else joined(nodes)


def grouped(alone: Sequence[Node], groups: Sequence[Node]) -> Node:
    """Branches side by side, where the columns of some are also a group each: what `+ [a + b]` means."""
    if any(node._groups is not None for node in groups):
        raise GraphError("a group of columns cannot hold further groups")
    node = promoted(native.Node("pick", [joined([*alone, *groups])], selector=NamedSelector(["?"])))
    node._groups = (tuple(alone), tuple(groups))
    return born(node)


def _listed(value: Any) -> list[Any] | None:
    """Names and nodes in a list, or in whatever holds column names: a frame's index, an array, the keys of a dict."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        return None
    found = list(value)
    return found if all(isinstance(item, str) for item in found) else None


def _holds_nodes(item: Any) -> bool:
    if isinstance(item, (list, tuple)):
        return any(_holds_nodes(inner) for inner in item)
    return isinstance(item, (native.Node, ColumnSelector, native.ColumnSelector))


def inside(inner: native.Node, outer: Node) -> Node:
    """A graph that reads its columns from a node instead of from the raw data, under its own name."""
    done: dict[int, native.Node] = {}
    for node in ancestors([inner]):
        feeds = [done[id(p)] for p in node.feeds]
        extras = [done[id(d)] for d in node.extras]
        if node.kind == "source":
            made: native.Node = native.Node("pick", [outer], selector=node.selector)
        else:
            made = native.Node(node.kind, feeds, operator=node.operator, selector=_raw(node), extras=extras)
        made.name = node.name
        changed = promoted(made)
        if isinstance(node, Node):
            changed._removed = node._removed
            changed._leading = node._leading
            changed._branches = None if node._branches is None else tuple(done.get(id(b), b) for b in node._branches)
            if node._groups is not None:
                alone, groups = (tuple(promoted(done.get(id(b), b)) for b in part) for part in node._groups)
                changed._groups = (alone, groups)
        done[id(node)] = changed
    placed = promoted(done[id(inner)])
    placed._origin = promoted(inner)._origin or promoted(inner)
    return placed


def _raw(node: native.Node) -> Any:
    return node.__dict__.get("selector")


def ColumnGroup(columns: Any) -> Node:
    """A node that selects columns: what releases up to 0.6 began a graph with.

    >>> ColumnGroup(["a", "b"]).kind
    'source'
    """
    settings.saw_call("0.5", "nvtabular.ColumnGroup")
    return as_node(columns)


def as_operator(op: Any) -> NativeOperator:
    """What may stand right of `>>`: an operator, its class, a user's operator, or a function of a pandas Series."""
    from penstock.compat.merlin.dag.base_operator import BaseOperator
    from penstock.compat.merlin.dag.user_operator import wrapped
    from penstock.compat.nvtabular.ops.lambdaop import LambdaOp

    if isinstance(op, type) and issubclass(op, (NativeOperator, BaseOperator)):
        op = op()
    if isinstance(op, NativeOperator) and not (isinstance(op, BaseOperator) and rewritten(op)):
        return op
    if isinstance(op, BaseOperator):
        return wrapped(op)
    if callable(op):
        return LambdaOp(op)
    raise GraphError(f"the right side of >> must be an operator or a function, got {op!r}")


def place_nodes(plan: Plan) -> None:
    """Tell the nodes of a fitted plan where they stand in it."""
    for number, node in enumerate(plan.nodes):
        known = promoted(node)
        known._place, known._schemas = (plan, number), None


def _chosen(names: Any) -> native.ColumnSelector:
    if isinstance(names, native.ColumnSelector):
        return names
    if isinstance(names, list) and len(names) == 1 and isinstance(names[0], (ColumnSelector, native.ColumnSelector)):
        return _chosen(names[0])
    selector = names if isinstance(names, ColumnSelector) else ColumnSelector(_listed(names) or names)
    return selector.to_native()


def postorder_iter_nodes(nodes: Any, flatten_subgraphs: bool = False) -> Iterator[Node]:
    """Every node that some nodes need, parents first; the nodes of subgraphs are always among them."""
    return (promoted(node) for node in ancestors(_nodes(nodes)))


def iter_nodes(nodes: Any, flatten_subgraphs: bool = False) -> Iterator[Node]:
    """Every node that some nodes need, each once: row by row from these on, and none before what it feeds."""
    needed = ancestors(_nodes(nodes))
    waits = Counter(id(parent) for node in needed for parent in (*node.feeds, *node.extras))
    ready = deque(node for node in reversed(needed) if not waits[id(node)])
    while ready:
        node = ready.popleft()
        yield promoted(node)
        for parent in (*node.feeds, *node.extras):
            waits[id(parent)] -= 1
            if not waits[id(parent)]:
                ready.append(parent)


preorder_iter_nodes = iter_nodes


def _nodes(nodes: Any) -> Sequence[native.Node]:
    return nodes if isinstance(nodes, (list, tuple)) else [nodes]
