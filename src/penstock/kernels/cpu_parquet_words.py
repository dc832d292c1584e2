"""What the footer of a parquet file says of the columns of a row group, in thrift's compact protocol.

A file of many columns has some hundred numbers there, a byte at a time each: too much for the interpreter, whose lock
all threads wait for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint8

from penstock.kernels.cpu_intrinsics import KERNEL
from penstock.kernels.cpu_parquet_write import CHUNK_SIZE, DICTIONARY_SIZE, _put_varint
from penstock.kernels.kernel_cache import njit

MOST_BYTES = 5 * 10 + 8  # that the numbers of a column and what stands between them take
_NEXT, _NEXT_BUT_ONE = 0x16, 0x26  # how a field of 64 bits begins, one or two behind the last


@njit(**{**KERNEL, "nogil": False})  # it takes less time than to get the interpreter's lock back
def put_columns(heads: Any, bounds: Any, chunks: Any, num_rows: int, begin: int, out: Any) -> Any:
    """Write what is said of each column; where it ends.

    Args:
        heads: for each column without and with a dictionary, what is said up to the number of values.
        bounds: where each of these begins, and where the last ends.
        chunks: sizes, as `write_group` gives them.
        num_rows: of the row group.
        begin: where it begins in the file.
        out: filled in.
    """
    at: Any = 0
    for column in range(chunks.shape[0]):
        size, dictionary_size = chunks[column, CHUNK_SIZE], chunks[column, DICTIONARY_SIZE]
        which = 2 * column + (1 if dictionary_size else 0)
        for k in range(bounds[which], bounds[which + 1]):
            out[at] = heads[k]
            at += 1
        at = _put_varint(out, at, num_rows << 1)  # zigzag, as all numbers here
        for _ in range(2):  # both sizes are the same where nothing is compressed
            out[at] = uint8(_NEXT)
            at = _put_varint(out, at + 1, size << 1)
        out[at] = uint8(_NEXT_BUT_ONE)
        at = _put_varint(out, at + 1, (begin + dictionary_size) << 1)
        if dictionary_size:
            out[at] = uint8(_NEXT_BUT_ONE)
            at = _put_varint(out, at + 1, begin << 1)
        out[at] = out[at + 1] = uint8(0)  # the ends of two structs
        at += 2
        begin += size
    return np.int64(at)
