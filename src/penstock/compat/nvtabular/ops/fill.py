"""FillMedian, FillMissing under NVTabular's name."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["FillMedian", "FillMissing"]


class FillMedian(Placed, native.FillMedian):
    """Missing values become the median.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> FillMedian()).fit_transform(pd.DataFrame({"x": [1.0, 3.0, None]}))["x"].tolist()
    [1.0, 3.0, 2.0]
    """

    saved_as = native.FillMedian


class FillMissing(Placed, native.FillMissing):
    """Missing values become `fill_val`; flags `<column>_filled` are int8.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> FillMissing(7.0)).transform(pd.DataFrame({"x": [None, 0.0]}))["x"].tolist()[0]
    7.0
    """

    saved_as = native.FillMissing


__getattr__ = module_getattr(__name__)
