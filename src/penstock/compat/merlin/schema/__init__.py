"""`merlin.schema`: columns with tags, dtypes and properties."""

from penstock.compat.merlin.schema.schema import ColumnSchema, Domain, Schema
from penstock.compat.merlin.schema.tags import Tags, TagSet, TagsType
from penstock.compat.missing import module_getattr

__all__ = ["ColumnSchema", "Domain", "Schema", "TagSet", "Tags", "TagsType"]

__getattr__ = module_getattr(__name__)
