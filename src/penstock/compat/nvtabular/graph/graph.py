"""`nvtabular.graph.graph`."""

from penstock.compat.merlin.dag.graph import Graph
from penstock.compat.missing import module_getattr

__all__ = ["Graph"]

__getattr__ = module_getattr(__name__)
