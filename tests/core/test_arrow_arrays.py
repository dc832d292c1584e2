"""Numbers between NumPy and Arrow: the same, in the same memory."""

import numpy as np
import pyarrow as pa
import pytest

from penstock.core.arrow_arrays import arrow_of, numpy_of

DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_there_and_back_in_the_same_memory(dtype):
    values = np.arange(7).astype(dtype)
    array = arrow_of(values)
    assert array.equals(pa.array(values)) and np.shares_memory(numpy_of(array), values)
    assert numpy_of(array[2:5]).tolist() == [2, 3, 4] and numpy_of(array).dtype == values.dtype
    assert arrow_of(values[::2]).to_pylist() == [0, 2, 4, 6]
    assert numpy_of(arrow_of(values[:0])).tolist() == [] and numpy_of(pa.array([], array.type)).dtype == values.dtype


@pytest.mark.parametrize("array", [pa.array([1, None]), pa.array(["a"]), pa.array([True]), pa.array([[1]])], ids=str)
def test_what_is_no_array_of_numbers_is_refused(array):
    with pytest.raises(pa.ArrowInvalid):
        numpy_of(array)
