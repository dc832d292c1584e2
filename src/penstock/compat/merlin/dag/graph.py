"""A graph: what leads to its last node."""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.dag.node import Node, as_node, place_nodes, postorder_iter_nodes
from penstock.compat.merlin.schema.schema import Schema, as_native
from penstock.compat.missing import CompatError
from penstock.core.errors import ParameterError, suggest
from penstock.etl.plan import Plan

__all__ = ["Graph"]


class Graph:
    """The nodes of a workflow; `construct_schema` binds them to an input schema.

    >>> from penstock.compat.merlin.schema import ColumnSchema
    >>> from penstock.compat.nvtabular import ops
    >>> graph = Graph(["x"] >> ops.LogOp())
    >>> graph.construct_schema(Schema([ColumnSchema("x", dtype="int64")])).output_schema["x"].dtype.name
    'float32'
    """

    def __init__(self, output_node: Any) -> None:
        self.output_node: Node = as_node(output_node)
        self._plan: Plan | None = None

    def construct_schema(self, root_schema: Schema, preserve_dtypes: bool = False) -> Graph:
        """Work out every node's schema."""
        self._plan = Plan(self.output_node, as_native(root_schema))  # type: ignore[arg-type]
        place_nodes(self._plan)
        return self

    @property
    def input_schema(self) -> Schema | None:
        return None if self._plan is None else Schema.from_native(self._plan.input_schema)

    @property
    def output_schema(self) -> Schema | None:
        return None if self._plan is None else self.output_node.output_schema

    @property
    def column_names(self) -> list[str]:
        return self.output_node.output_schema.column_names

    @property
    def subgraphs(self) -> dict[str, Node]:
        return {node.name: node for node in postorder_iter_nodes(self.output_node) if node.name}

    def subgraph(self, name: str) -> Graph:
        """The graph that ends at a named node."""
        if name not in self.subgraphs:
            raise ParameterError(f"no node is named {name!r}{suggest(name, self.subgraphs, 'names')}")
        return Graph(self.subgraphs[name])


def Subgraph(name: str, output_node: Any, loop_until: Any = None) -> Node:
    """The node under a name, by which `workflow.get_subworkflow(name)` finds it.

    >>> from penstock.compat.nvtabular import ops
    >>> Subgraph("users", ["user"] >> ops.Categorify()).name
    'users'
    """
    if loop_until is not None:
        raise CompatError("Subgraph(loop_until=…) is not here: a workflow is a graph without loops; loop around it")
    return as_node(output_node).named(name)  # type: ignore[return-value]
