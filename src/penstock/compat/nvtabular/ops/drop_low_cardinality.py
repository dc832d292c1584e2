"""DropLowCardinality under NVTabular's name."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["DropLowCardinality"]


class DropLowCardinality(Placed, native.DropLowCardinality):
    """Leaves out columns of few categories.

    >>> DropLowCardinality(min_cardinality=10).min_cardinality
    10
    """

    saved_as = native.DropLowCardinality


__getattr__ = module_getattr(__name__)
