"""Nodes of a graph: Penstock's, built with Merlin's selectors and operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.compat.merlin.dag._drawing import Drawing
from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.merlin.schema.schema import Schema
from penstock.core.errors import GraphError, NotFittedError
from penstock.etl import graph as native
from penstock.etl.graph import ancestors
from penstock.etl.operator import Operator as NativeOperator
from penstock.etl.plan import Plan

__all__ = ["Node", "iter_nodes", "postorder_iter_nodes", "preorder_iter_nodes"]


class Node(native.Node):
    """One step of a graph; made by `>>`, `+`, `-` and `[…]`.

    >>> from penstock.compat.nvtabular import ops
    >>> node = ["a", "b"] >> ops.FillMissing() >> ops.Normalize()
    >>> type(node + "label").__name__, node.parents[0].op
    ('Node', FillMissing())
    """

    _place: tuple[Plan, int] | None = None  # where it stands in a fitted workflow

    @classmethod
    def construct_from(cls, nodable: Any) -> Node:
        """A node from whatever may stand in a graph."""
        return as_node(nodable)

    def __rshift__(self, op: Any) -> Node:
        return promoted(super().__rshift__(as_operator(op)))

    def __add__(self, other: Any) -> Node:
        return promoted(super().__add__(as_node(other)))

    def __radd__(self, other: Any) -> Node:
        return as_node(other) + self

    def __sub__(self, names: Any) -> Node:
        return promoted(super().__sub__(_chosen(names)))

    def __getitem__(self, names: Any) -> Node:
        return promoted(super().__getitem__(_chosen(names)))

    @property
    def graph(self) -> Drawing:
        """The steps that lead here, as text."""
        return Drawing(self)

    # Once a workflow with it is fitted.

    @property
    def output_schema(self) -> Schema:
        plan, number = self._fitted()
        return Schema.from_native(plan.schemas[number])

    @property
    def input_schema(self) -> Schema:
        plan, number = self._fitted()
        parents = [plan.schemas[p] for p in plan.parents[number]] or [plan.schemas[number]]
        return sum((Schema.from_native(schema) for schema in parents), Schema())

    @property
    def output_columns(self) -> ColumnSelector:
        return ColumnSelector(self.output_schema.column_names)

    @property
    def input_columns(self) -> ColumnSelector:
        return ColumnSelector(self.input_schema.column_names)

    @property
    def label(self) -> str:
        return self.name or (repr(self.op) if self.op is not None else self.kind)

    def __getstate__(self) -> dict[str, Any]:  # workers need the node, not the plan it once stood in
        return {name: value for name, value in self.__dict__.items() if name != "_place"}

    def _fitted(self) -> tuple[Plan, int]:
        if self._place is None:
            raise NotFittedError(f"{self!r} has no schema yet; fit a workflow with it first")
        return self._place


def promoted(node: native.Node) -> Node:
    """The node under Merlin's name: nodes differ in what may be joined to them, not in what they hold."""
    if not isinstance(node, Node):
        node.__class__ = Node
    return node  # type: ignore[return-value]


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
    if isinstance(value, (list, tuple)) and any(isinstance(v, (native.Node, ColumnSelector)) for v in value):
        nodes = [as_node(ColumnSelector([v]) if isinstance(v, (list, tuple)) else v) for v in value]
        return nodes[0] if len(nodes) == 1 else promoted(native.Node("join", nodes))
    if isinstance(value, (list, tuple)) and value:
        return as_node(ColumnSelector(value))
    raise GraphError(f"expected column names, a ColumnSelector or a node, got {value!r}")


def ColumnGroup(columns: Any) -> Node:
    """A node that selects columns: what releases up to 0.6 began a graph with.

    >>> ColumnGroup(["a", "b"]).kind
    'source'
    """
    return as_node(columns)


def as_operator(op: Any) -> NativeOperator:
    """What may stand right of `>>`: an operator, its class, a user's operator, or a function of a pandas Series."""
    from penstock.compat.merlin.dag.base_operator import BaseOperator
    from penstock.compat.merlin.dag.user_operator import wrapped
    from penstock.compat.nvtabular.ops.lambdaop import LambdaOp

    if isinstance(op, type) and issubclass(op, (NativeOperator, BaseOperator)):
        op = op()
    if isinstance(op, BaseOperator):
        return wrapped(op)
    if isinstance(op, NativeOperator):
        return op
    if callable(op):
        return LambdaOp(op)
    raise GraphError(f"the right side of >> must be an operator or a function, got {op!r}")


def place_nodes(plan: Plan) -> None:
    """Tell the nodes of a fitted plan where they stand in it."""
    for number, node in enumerate(plan.nodes):
        promoted(node)._place = (plan, number)


def _chosen(names: Any) -> native.ColumnSelector:
    if isinstance(names, native.ColumnSelector):
        return names
    selector = names if isinstance(names, ColumnSelector) else ColumnSelector(names)
    return selector.to_native()


def postorder_iter_nodes(nodes: Any) -> Iterator[Node]:
    """Every node that some nodes need, parents first."""
    listed: Sequence[native.Node] = nodes if isinstance(nodes, (list, tuple)) else [nodes]
    return (promoted(node) for node in ancestors(listed))


def iter_nodes(nodes: Any) -> Iterator[Node]:
    """Every node that some nodes need, each once."""
    return iter(reversed(list(postorder_iter_nodes(nodes))))


def preorder_iter_nodes(nodes: Any) -> Iterator[Node]:
    """Every node that some nodes need, children first."""
    return iter_nodes(nodes)
