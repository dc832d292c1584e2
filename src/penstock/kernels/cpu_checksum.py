"""CRC-32 (the one of gzip and parquet pages), sixteen bytes at a time with a table for each. Releases the GIL."""

from __future__ import annotations

import numpy as np
from numba import njit, uint8, uint32

_POLYNOMIAL = 0xEDB88320
_SLICES = 16


def _tables() -> np.ndarray:
    """Table k has what a byte followed by k zero bytes adds to the remainder."""
    tables = np.zeros((_SLICES, 256), np.uint32)
    remainders = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        remainders = np.where(remainders & 1, (remainders >> 1) ^ np.uint32(_POLYNOMIAL), remainders >> 1)
    tables[0] = remainders
    for k in range(1, _SLICES):
        tables[k] = tables[0][tables[k - 1] & 255] ^ (tables[k - 1] >> 8)
    return tables


_TABLES = _tables()


@njit(nogil=True, cache=True)
def crc32(data, start, size):
    """The checksum of `size` bytes from `start` on: slicing-by-16."""
    remainder, at, end = uint32(0xFFFFFFFF), start, start + size
    while end - at >= _SLICES:
        total = uint32(0)
        for k in range(4):
            byte = uint8(remainder >> uint32(8 * k)) ^ data[at + k]
            total ^= _TABLES[_SLICES - 1 - k, byte]
        for k in range(4, _SLICES):
            total ^= _TABLES[_SLICES - 1 - k, data[at + k]]
        remainder = total
        at += _SLICES
    while at < end:
        remainder = _TABLES[0, uint8(remainder) ^ data[at]] ^ (remainder >> uint32(8))
        at += 1
    return int(remainder ^ uint32(0xFFFFFFFF))
