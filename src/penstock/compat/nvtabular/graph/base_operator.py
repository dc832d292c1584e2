"""`nvtabular.graph.base_operator`."""

from penstock.compat.merlin.dag.base_operator import BaseOperator
from penstock.compat.missing import module_getattr

__all__ = ["BaseOperator"]

__getattr__ = module_getattr(__name__)
