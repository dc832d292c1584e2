"""The class that users derive operators from that learn."""

from penstock.compat.merlin.dag.stat_operator import StatOperator
from penstock.compat.missing import module_getattr

__all__ = ["StatOperator"]

__getattr__ = module_getattr(__name__)
