"""Differences to earlier rows."""

from __future__ import annotations

from typing import Any

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed, names_of
from penstock.etl import ops as native

__all__ = ["DifferenceLag"]


class DifferenceLag(Placed, native.DifferenceLag):
    """`x` minus the `x` of an earlier row of the same series, over the whole data set.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> frame = pd.DataFrame({"user": [1, 1], "time": [5, 8]})
    >>> Workflow(["time"] >> DifferenceLag("user")).transform(frame)["time_difference_lag_1"].tolist()
    [nan, 3.0]
    """

    saved_as = native.DifferenceLag

    def __init__(self, partition_cols: Any, shift: Any = 1) -> None:
        super().__init__(names_of(partition_cols, "DifferenceLag.partition_cols"), shift)


__getattr__ = module_getattr(__name__)
