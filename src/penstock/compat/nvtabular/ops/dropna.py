"""Dropna under NVTabular's name."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["Dropna"]


class Dropna(Placed, native.Dropna):
    """Leaves out rows with missing values.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> Dropna()).transform(pd.DataFrame({"x": [1.0, None]}))["x"].tolist()
    [1.0]
    """

    saved_as = native.Dropna


__getattr__ = module_getattr(__name__)
