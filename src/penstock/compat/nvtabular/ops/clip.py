"""Clip under NVTabular's name."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["Clip"]


class Clip(Placed, native.Clip):
    """Bounds for numbers: `Clip(min_value, max_value)`.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> Clip(max_value=1.0)).transform(pd.DataFrame({"x": [1.5, 0.0]}))["x"].tolist()[0]
    1.0
    """

    saved_as = native.Clip


__getattr__ = module_getattr(__name__)
