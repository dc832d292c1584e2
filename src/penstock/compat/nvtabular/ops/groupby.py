"""Groupby under NVTabular's name."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["Groupby"]


class Groupby(Placed, native.Groupby):
    """One row for each key of the whole data set, not of each partition.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> frame = pd.DataFrame({"user": [2, 1, 2], "item": [7, 8, 9]})
    >>> Workflow(["user", "item"] >> Groupby("user", aggs={"item": "count"})).transform(frame)["item_count"].tolist()
    [1, 2]
    """

    saved_as = native.Groupby


__getattr__ = module_getattr(__name__)
