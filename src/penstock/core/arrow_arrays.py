"""Numbers between NumPy and Arrow, where they lie.

pyarrow's own ways (`pa.array`, `Array.to_numpy`) import pandas where it is installed: half a second in every process
that reads a checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_of(values: np.ndarray) -> pa.Array:
    """Numbers without gaps as an Arrow array.

    Args:
        values: of one dimension, integers or floats; copied only where they do not lie end to end.

    Returns:
        An array of the same type.

    >>> arrow_of(np.array([1, 2], np.int16)).type
    DataType(int16)
    """
    import pyarrow as pa

    flat = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), len(flat), [None, pa.py_buffer(flat)])


def numpy_of(array: pa.Array) -> np.ndarray:
    """The numbers of an Arrow array without gaps, as a view that cannot be written to.

    Args:
        array: integers or floats.

    Returns:
        Its values.

    Raises:
        pyarrow.ArrowInvalid: some are missing, or they are something else.

    >>> import pyarrow as pa
    >>> numpy_of(pa.array([1.5, 2.5, 3.5])[1:])
    array([2.5, 3.5])
    """
    import pyarrow as pa

    if array.null_count or not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise pa.ArrowInvalid(f"{array.type} with {array.null_count} missing values is no array of numbers")
    memory, dtype = array.buffers()[1], np.dtype(array.type.to_pandas_dtype())
    if memory is None:
        return np.empty(0, dtype)
    return np.frombuffer(memory, dtype, len(array), array.offset * dtype.itemsize)
