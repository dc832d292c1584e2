"""`nvtabular.io.dataframe_iter`."""

from penstock.compat.merlin.io.dataframe_iter import DataFrameIter
from penstock.compat.missing import module_getattr

__all__ = ["DataFrameIter"]

__getattr__ = module_getattr(__name__)
