"""`(x - offset) / scale`, computed in float64 and stored as asked: one pass, no temporary."""

from __future__ import annotations

import numpy as np

from penstock.kernels.cpu_intrinsics import KERNEL
from penstock.kernels.kernel_cache import njit


@njit(**KERNEL)
def _scale(values: np.ndarray, offset: float, scale: float, out: np.ndarray) -> None:
    for i in range(values.shape[0]):
        out[i] = (np.float64(values[i]) - offset) / scale


def scaled(values: np.ndarray, offset: float, scale: float, dtype: np.dtype) -> np.ndarray:
    """`(values - offset) / scale` in `dtype`.

    >>> scaled(np.array([1, 2, 3], np.int32), 2.0, 0.5, np.dtype("float32"))
    array([-2.,  0.,  2.], dtype=float32)
    """
    out = np.empty(len(values), dtype)
    _scale(np.ascontiguousarray(values), float(offset), float(scale), out)
    return out
