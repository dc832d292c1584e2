"""`nvtabular.workflow_node`, its place up to 0.7."""

from penstock.compat.merlin.dag.node import Node, iter_nodes
from penstock.compat.missing import module_getattr

WorkflowNode = Node

__all__ = ["WorkflowNode", "iter_nodes"]

__getattr__ = module_getattr(__name__)
