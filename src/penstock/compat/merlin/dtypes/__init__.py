"""`merlin.dtypes`: one spelling of dtypes for all frameworks."""

from typing import Any

from penstock.compat.merlin.dtypes.base import DType, dtype_of

__all__ = ["dtype"]


def dtype(external_dtype: Any) -> DType:
    """Merlin's dtype for a NumPy, pandas, polars, torch, TensorFlow or Python one.

    >>> import numpy as np
    >>> from penstock.compat.merlin.dtypes import int32
    >>> dtype(np.int32) == int32, dtype(str).name, dtype("float32").is_float
    (True, 'str', True)
    """
    return dtype_of(external_dtype)
