"""The dtypes of each library as a mapping by itself: what `merlin.dtypes.mappings` holds."""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.dtypes import aliases
from penstock.compat.merlin.dtypes.base import DType
from penstock.compat.merlin.dtypes.mapping import LIBRARIES, DTypeMapping
from penstock.core.errors import SchemaError

_NAMES = {
    "merlin_dtypes": "merlin",
    "numpy_dtypes": "numpy",
    "pandas_dtypes": "pandas",
    "python_dtypes": "python",
    "tf_dtypes": "tensorflow",
    "torch_dtypes": "torch",
}


def __getattr__(name: str) -> DTypeMapping:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    convert = LIBRARIES[_NAMES[name]]
    found: dict[DType, Any] = {}
    for dtype in vars(aliases).values():
        if isinstance(dtype, DType):
            try:
                found[dtype] = convert(dtype)
            except (AttributeError, KeyError, TypeError, SchemaError):
                continue  # a dtype that the library does not have
    globals()[name] = DTypeMapping(found)
    return globals()[name]
