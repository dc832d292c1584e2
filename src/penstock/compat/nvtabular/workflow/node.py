"""Nodes of a workflow's graph."""

from penstock.compat.merlin.dag.node import Node, iter_nodes
from penstock.compat.missing import module_getattr

WorkflowNode = Node

__all__ = ["WorkflowNode", "iter_nodes"]

__getattr__ = module_getattr(__name__)
