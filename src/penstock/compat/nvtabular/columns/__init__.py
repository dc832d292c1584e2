"""`nvtabular.columns`, the schema's place in 0.7 and 0.8."""

from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.merlin.schema.schema import ColumnSchema, Schema
from penstock.compat.missing import module_getattr

__all__ = ["ColumnSchema", "ColumnSelector", "Schema"]

__getattr__ = module_getattr(__name__)
