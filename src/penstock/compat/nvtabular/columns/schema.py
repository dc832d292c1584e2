"""`nvtabular.columns.schema`."""

from penstock.compat.merlin.schema.schema import ColumnSchema, Schema
from penstock.compat.missing import module_getattr

__all__ = ["ColumnSchema", "Schema"]

__getattr__ = module_getattr(__name__)
