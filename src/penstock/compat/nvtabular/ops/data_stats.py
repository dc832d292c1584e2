"""DataStats under NVTabular's name."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["DataStats"]


class DataStats(Placed, native.DataStats):
    """Statistics of columns, in the schema."""

    saved_as = native.DataStats


__getattr__ = module_getattr(__name__)
