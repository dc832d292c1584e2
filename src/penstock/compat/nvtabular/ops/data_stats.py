"""DataStats under NVTabular's name."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["DataStats"]


class DataStats(Placed, native.DataStats):
    """Statistics of columns, in the schema.

    >>> from penstock.compat.nvtabular import Workflow
    >>> schema = Workflow(["x"] >> DataStats()).fit({"x": [1.0, 3.0]}).output_schema
    >>> schema["x"].properties["statistics"]["mean"]
    2.0
    """

    saved_as = native.DataStats


__getattr__ = module_getattr(__name__)
