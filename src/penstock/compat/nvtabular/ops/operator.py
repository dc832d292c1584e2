"""The class that users derive their operators from."""

from penstock.compat.merlin.dag.base_operator import BaseOperator, Supports
from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.missing import module_getattr

Operator = BaseOperator

__all__ = ["ColumnSelector", "Operator", "Supports"]

__getattr__ = module_getattr(__name__)
