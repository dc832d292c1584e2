"""A subgraph that is run again and again on its own outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.compat.merlin.dag.base_operator import BaseOperator
from penstock.compat.merlin.dag.declaring import as_selector
from penstock.compat.merlin.dag.node import Node, as_node, postorder_iter_nodes
from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.merlin.schema.schema import Schema
from penstock.core.errors import ParameterError


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
