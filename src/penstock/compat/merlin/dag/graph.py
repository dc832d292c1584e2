"""A graph: what leads to its last node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.compat.merlin.dag.base_operator import BaseOperator
from penstock.compat.merlin.dag.binding import bind, declare
from penstock.compat.merlin.dag.declaring import Declares, MissingColumnsError, as_selector
from penstock.compat.merlin.dag.node import (
    Node,
    as_node,
    place_nodes,
    postorder_iter_nodes,
    preorder_iter_nodes,
    promoted,
)
from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.merlin.dag.wiring import Drawing
from penstock.compat.merlin.schema import Schema, as_native
from penstock.core.errors import ColumnNotFoundError, NotFittedError, ParameterError, suggest
from penstock.etl import graph as native
from penstock.etl.graph import without_inputs
from penstock.etl.plan import Plan


def validating(output: native.Node) -> list[Node]:
    """The nodes before an output whose operators, written by a user, say which schemas they take."""
    nodes = postorder_iter_nodes(output)
    own = Declares.validate_schemas
    return [node for node in nodes if getattr(type(node.op), "validate_schemas", own) is not own]


class Graph:
    """The nodes of a workflow; `construct_schema` binds them to an input schema.

    >>> from penstock.compat.merlin.schema import ColumnSchema
    >>> from penstock.compat.nvtabular import ops
    >>> graph = Graph(["x"] >> ops.LogOp())
    >>> graph.construct_schema(Schema([ColumnSchema("x", dtype="int64")])).output_schema["x"].dtype.name
    'float32'
    """

    def __init__(self, output_node: Any, subgraphs: Mapping[str, Any] | None = None) -> None:
        self.output_node: Node = as_node(output_node)
        self._plan: Plan | None = None
        self._root: Schema | None = None
        for name, node in (subgraphs or {}).items():
            if not any(node is known for known in postorder_iter_nodes(self.output_node)):
                raise ParameterError(f"the node of the subgraph {name!r} is not part of the graph")
            node.named(name)

    def construct_schema(self, root_schema: Schema, preserve_dtypes: bool = False) -> Graph:
        """Work out every node's schema; where dtypes are not known, what operators declare without them."""
        self._root, self._plan = root_schema, None
        try:
            self._settle(root_schema)
        except ColumnNotFoundError as error:
            raise MissingColumnsError(error.name, error.known, error.where) from error
        for node in validating(self.output_node):
            node.validate_schemas(root_schema, preserve_dtypes)
        return self

    def _settle(self, root_schema: Schema) -> None:
        if isinstance(root_schema, Schema) and any(c.dtype.name == "unknown" for c in root_schema):
            declare(self.output_node, root_schema)
            return
        known = as_native(root_schema)
        assert known is not None
        bind(self.output_node, known)
        self._plan = Plan(self.output_node, known)
        place_nodes(self._plan)

    @property
    def input_schema(self) -> Schema | None:
        """The raw columns that are read, in the order in which the graph names them."""
        if self._plan is None and self._root is None:
            return None
        named = list(dict.fromkeys(name for node in self.leaf_nodes for name in node.output_schema.column_names))
        if self._plan is None:
            assert self._root is not None
            return self._root[named]
        used = Schema.from_native(self._plan.input_schema)
        rest = [name for name in used.column_names if name not in named]
        return used[[*(name for name in named if name in used), *rest]]

    @property
    def output_schema(self) -> Schema | None:
        return None if self._root is None and self._plan is None else self.output_node.output_schema

    @property
    def leaf_nodes(self) -> list[Node]:
        """The nodes that select raw columns."""
        return [node for node in postorder_iter_nodes(self.output_node) if not node.feeds]

    @property
    def input_dtypes(self) -> dict[str, Any]:
        return {c.name: c.dtype for c in self.input_schema or ()}

    @property
    def output_dtypes(self) -> dict[str, Any]:
        return {c.name: c.dtype for c in self.output_schema or ()}

    @property
    def column_mapping(self) -> dict[str, list[str]]:
        """`{output: raw columns}` of the whole graph."""
        found = {name: [name] for name in self.output_node.output_schema.column_names}
        for node in preorder_iter_nodes(self.output_node):
            step = node.column_mapping
            found = {
                output: list(dict.fromkeys(f for name in inputs for f in step.get(name, [name])))
                for output, inputs in found.items()
            }
        return found

    @classmethod
    def get_nodes_by_op_type(cls, nodes: Any, op_type: Any) -> set[Node]:
        """The nodes whose operator is of a class, among some and all that they need."""
        return {n for n in postorder_iter_nodes(nodes) if isinstance(n.op, op_type)}

    def remove_inputs(self, to_remove: Any) -> Graph:
        """Take raw columns, and all that depends on them, out of the graph."""
        names = [to_remove] if isinstance(to_remove, str) else list(to_remove)
        root = self._root if self._root is not None else self.input_schema
        if root is None:
            raise NotFittedError("the graph has no schema yet: construct_schema comes before remove_inputs")
        for name in names:
            if name not in root:
                raise ColumnNotFoundError(name, root.column_names, "the graph's inputs")
        # Which columns depend on which does not hang on dtypes, so those that are not known may be any.
        typed = Schema([c.with_dtype("int64") if c.dtype.name == "unknown" else c for c in root]).to_native()
        bind(self.output_node, typed)
        left = without_inputs(self.output_node, typed, names)
        if left is None:
            raise ParameterError(f"nothing is left of the graph without {', '.join(names)}")
        self.output_node = promoted(left)
        return self.construct_schema(root.excluding_by_name(names))

    def __eq__(self, other: object) -> bool:
        """Whether both end at one node; `subgraph_node.graph` is its graph too, before and after it was placed."""
        mine = self.output_node
        theirs: Any = other.output_node if isinstance(other, (Graph, Drawing)) else None
        return theirs is not None and (mine is theirs or (mine._origin or mine) is (theirs._origin or theirs))

    def __hash__(self) -> int:
        return hash(id(self.output_node._origin or self.output_node))

    def clear_stats(self) -> None:
        """Forget what the operators learned."""
        for node in postorder_iter_nodes(self.output_node):
            if node.fitted_op is not None:
                node.fitted_op.clear()

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
        part = Graph(self.subgraphs[name])
        part._root = self._root if self._root is not None else self.input_schema
        return part


def Subgraph(name: str, output_node: Any, loop_until: Any = None) -> Node:
    """The node under a name, by which `workflow.get_subworkflow(name)` finds it.

    Right of `>>` its graph reads the columns of the node on the left: `["user"] >> Subgraph("users", graph)`. With
    `loop_until` the graph is run again on what it gave, until that function of the rows is true.

    >>> from penstock.compat.nvtabular import ops
    >>> Subgraph("users", ["user"] >> ops.Categorify()).name
    'users'
    """
    node = as_node(output_node) if loop_until is None else looped(output_node, loop_until)
    return node.named(name)  # type: ignore[return-value]


# A subgraph that is run again and again on its own outputs.


class Loop(BaseOperator):
    """Runs a graph on rows until a function of these says that it is enough, a partition at a time.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import ops
    >>> loop = Loop(["x"] >> ops.LambdaOp(lambda column: column * 2), lambda rows: rows["x"].min() > 10)
    >>> loop.transform(["x"], pd.DataFrame({"x": [3, 4]}))["x"].tolist()
    [12, 16]
    """

    is_subgraph = True

    def __init__(self, output_node: Any, loop_until: Callable[[Any], Any]) -> None:
        self.output_node, self.loop_until = as_node(output_node), loop_until
        if any(node.fitted_op is not None for node in postorder_iter_nodes(self.output_node)):
            raise ParameterError("a subgraph with loop_until holds operators that learn nothing; fit those before it")

    def transform(self, col_selector: Any, df: Any) -> Any:
        from penstock.compat.merlin.dag.executors import LocalExecutor

        while True:
            made = LocalExecutor().transform(df, self.output_node)
            df = df.assign(**{name: made[name].to_numpy() for name in made.columns})
            if self.loop_until(df):
                return made

    def compute_output_schema(self, input_schema: Schema, col_selector: Any, prev_output_schema: Any = None) -> Schema:
        from penstock.compat.merlin.dag.graph import Graph

        chosen = as_selector(col_selector)
        known = input_schema.select(chosen) if chosen else input_schema
        declared = Graph(self.output_node).construct_schema(known).output_schema
        assert declared is not None
        return declared


def looped(output_node: Any, loop_until: Callable[[Any], Any]) -> Node:
    """The node of a loop, over the raw columns that its graph reads."""
    loop = Loop(output_node, loop_until)
    sources = [node.selector for node in postorder_iter_nodes(loop.output_node) if node.kind == "source"]
    if any(chosen.everything or chosen.tags or chosen.roles for chosen in sources):
        return as_node(ColumnSelector("*")) >> loop
    return as_node(list(dict.fromkeys(name for chosen in sources for name in chosen.names))) >> loop
