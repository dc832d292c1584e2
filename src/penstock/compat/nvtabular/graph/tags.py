"""`nvtabular.graph.tags`."""

from penstock.compat.merlin.schema.tags import Tags
from penstock.compat.missing import module_getattr

__all__ = ["Tags"]

__getattr__ = module_getattr(__name__)
