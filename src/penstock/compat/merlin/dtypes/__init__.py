"""`merlin.dtypes`: one spelling of dtypes for all frameworks."""

from typing import Any

from penstock.compat.merlin.dtypes.aliases import (
    boolean,
    datetime64,
    datetime64D,
    datetime64h,
    datetime64M,
    datetime64m,
    datetime64ms,
    datetime64ns,
    datetime64s,
    datetime64us,
    datetime64Y,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    object_,
    string,
    uint8,
    uint16,
    uint32,
    uint64,
    unknown,
)
from penstock.compat.merlin.dtypes.base import DType, ElementType, ElementUnit, dtype_of
from penstock.compat.merlin.dtypes.shape import Shape
from penstock.compat.missing import module_getattr

__all__ = [
    "DType",
    "ElementType",
    "ElementUnit",
    "Shape",
    "boolean",
    "datetime64",
    "datetime64D",
    "datetime64M",
    "datetime64Y",
    "datetime64h",
    "datetime64m",
    "datetime64ms",
    "datetime64ns",
    "datetime64s",
    "datetime64us",
    "dtype",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "object_",
    "string",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unknown",
]


def dtype(external_dtype: Any) -> DType:
    """Merlin's dtype for a NumPy, pandas, polars, torch, TensorFlow or Python one.

    >>> import numpy as np
    >>> dtype(np.int32) == int32, dtype(str).name, dtype("float32").is_float
    (True, 'str', True)
    """
    return dtype_of(external_dtype)


__getattr__ = module_getattr(__name__)
