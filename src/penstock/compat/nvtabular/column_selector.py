"""`nvtabular.column_selector`, its place up to 0.7."""

from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.missing import module_getattr

__all__ = ["ColumnSelector"]

__getattr__ = module_getattr(__name__)
