"""`merlin.schema.io`: Penstock writes its schema as `_schema.json` beside the data."""

from penstock.compat.missing import module_getattr

__all__: list[str] = []

__getattr__ = module_getattr(__name__)
