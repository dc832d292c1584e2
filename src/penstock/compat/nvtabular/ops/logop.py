"""LogOp under NVTabular's name."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["LogOp"]


class LogOp(Placed, native.LogOp):
    """`log(1 + x)` as float32.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> LogOp()).transform(pd.DataFrame({"x": [0.0, 0.0]}))["x"].tolist()[0]
    0.0
    """

    saved_as = native.LogOp


__getattr__ = module_getattr(__name__)
