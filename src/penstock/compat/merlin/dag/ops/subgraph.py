"""A part of a graph with a name."""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.dag.node import Node, as_node
from penstock.compat.missing import CompatError, module_getattr

__all__ = ["Subgraph"]


def Subgraph(name: str, output_node: Any, loop_until: Any = None) -> Node:
    """The node under a name, by which `workflow.get_subworkflow(name)` finds it.

    >>> from penstock.compat.nvtabular import ops
    >>> Subgraph("users", ["user"] >> ops.Categorify()).name
    'users'
    """
    if loop_until is not None:
        raise CompatError("Subgraph(loop_until=…) is not here: a workflow is a graph without loops; loop around it")
    return as_node(output_node).named(name)  # type: ignore[return-value]


__getattr__ = module_getattr(__name__)
