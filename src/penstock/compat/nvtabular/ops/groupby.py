"""Groupby under NVTabular's name."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["Groupby"]


class Groupby(Placed, native.Groupby):
    """One row for each key of the whole data set, not of each partition."""

    saved_as = native.Groupby


__getattr__ = module_getattr(__name__)
