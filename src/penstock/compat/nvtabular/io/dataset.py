"""`nvtabular.io.dataset`."""

from penstock.compat.merlin.io.dataset import Dataset
from penstock.compat.missing import module_getattr

__all__ = ["Dataset"]

__getattr__ = module_getattr(__name__)
