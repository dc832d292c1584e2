"""Bucketize under NVTabular's name."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["Bucketize"]


class Bucketize(Placed, native.Bucketize):
    """The bucket of each number: `Bucketize(boundaries)`.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> Bucketize([1.0, 2.0])).transform(pd.DataFrame({"x": [1.5, 0.0]}))["x"].tolist()[0]
    1
    """

    saved_as = native.Bucketize


__getattr__ = module_getattr(__name__)
