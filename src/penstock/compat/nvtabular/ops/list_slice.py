"""ListSlice under NVTabular's name."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["ListSlice"]


class ListSlice(Placed, native.ListSlice):
    """A slice of each list: `ListSlice(start, end, pad, pad_value)`.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> ListSlice(-2)).transform(pd.DataFrame({"x": [[1, 2, 3]]}))["x"][0].tolist()
    [2, 3]
    """

    saved_as = native.ListSlice


__getattr__ = module_getattr(__name__)
