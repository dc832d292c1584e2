"""ValueCount under NVTabular's name."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["ValueCount"]


class ValueCount(Placed, native.ValueCount):
    """How long lists are, in the schema.

    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> ValueCount()).fit({"x": [[1], [2, 3]]}).output_schema["x"].value_count.max
    2
    """

    saved_as = native.ValueCount


__getattr__ = module_getattr(__name__)
