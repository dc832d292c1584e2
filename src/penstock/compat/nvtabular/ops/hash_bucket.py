"""HashBucket under NVTabular's name."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["HashBucket"]


class HashBucket(Placed, native.HashBucket):
    """The bucket of a value's hash; the hashes are Penstock's own, the same on CPU and GPU.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> HashBucket(100)).transform(pd.DataFrame({"x": ["Rome", "Oslo"]}))["x"].tolist()
    [0, 8]
    """

    saved_as = native.HashBucket


__getattr__ = module_getattr(__name__)
