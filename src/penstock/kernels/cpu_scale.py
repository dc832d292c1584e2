"""`(x - offset) / scale`, computed in float64 and stored as asked: one pass, no temporary."""

from __future__ import annotations

import numpy as np

from penstock.kernels.cpu_intrinsics import KERNEL, kernel_input
from penstock.kernels.kernel_cache import njit

# Others go through float64, as they would in the loop: a kernel for every pair of dtypes takes longer to compile.
INPUTS = ("int32", "int64", "float32", "float64")
OUTPUTS = ("float32", "float64")


@njit(**KERNEL)
def _scale(values: np.ndarray, offset: float, scale: float, out: np.ndarray) -> None:
    for i in range(values.shape[0]):
        out[i] = (np.float64(values[i]) - offset) / scale


def scaled(values: np.ndarray, offset: float, scale: float, dtype: np.dtype) -> np.ndarray:
    """`(values - offset) / scale` in `dtype`.

    >>> scaled(np.array([1, 2, 3], np.int32), 2.0, 0.5, np.dtype("float32"))
    array([-2.,  0.,  2.], dtype=float32)
    """
    given = kernel_input(values, None if values.dtype.name in INPUTS else np.float64)
    out = np.empty(len(given), dtype if np.dtype(dtype).name in OUTPUTS else np.float64)
    _scale(given, float(offset), float(scale), out)
    return out.astype(dtype, copy=False)
