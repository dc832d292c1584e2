"""`merlin.dag.operator`: the user's operator under its later name."""

from penstock.compat.merlin.dag.base_operator import BaseOperator, Supports
from penstock.compat.missing import module_getattr

Operator = BaseOperator

__all__ = ["Operator", "Supports"]

__getattr__ = module_getattr(__name__)
