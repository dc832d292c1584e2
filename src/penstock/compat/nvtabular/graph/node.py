"""`nvtabular.graph.node`."""

from penstock.compat.merlin.dag.node import Node, iter_nodes
from penstock.compat.missing import module_getattr

__all__ = ["Node", "iter_nodes"]

__getattr__ = module_getattr(__name__)
