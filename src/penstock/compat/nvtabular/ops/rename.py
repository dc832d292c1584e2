"""Rename under NVTabular's name."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["Rename"]


class Rename(Placed, native.Rename):
    """Other names for columns.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> Rename(postfix="_raw")).transform(pd.DataFrame({"x": [1]})).columns.tolist()
    ['x_raw']
    """

    saved_as = native.Rename


__getattr__ = module_getattr(__name__)
