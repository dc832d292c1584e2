"""ReduceDtypeSize under NVTabular's name."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["ReduceDtypeSize"]


class ReduceDtypeSize(Placed, native.ReduceDtypeSize):
    """The narrowest dtypes that hold the data.

    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> ReduceDtypeSize()).fit({"x": [1, 2]}).output_dtypes
    {'x': dtype('int8')}
    """

    saved_as = native.ReduceDtypeSize


__getattr__ = module_getattr(__name__)
