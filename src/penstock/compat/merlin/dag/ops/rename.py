"""Other names for columns."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.rename import Rename

__all__ = ["Rename"]

__getattr__ = module_getattr(__name__)
