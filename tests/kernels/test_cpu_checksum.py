"""CRC-32 as zlib computes it, by tables and by folding."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from penstock.kernels.cpu_checksum import WAYS

DATA = np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8)


@pytest.mark.parametrize("crc32", WAYS, ids=lambda way: way.__name__)
def test_every_length_and_place(crc32) -> None:
    for size in [*range(600), 1000, 1024, 4096]:
        for start in (0, 1, 7):
            assert crc32(DATA, start, size, 0) == zlib.crc32(DATA[start : start + size]), (start, size)


@pytest.mark.parametrize("crc32", WAYS, ids=lambda way: way.__name__)
def test_piece_by_piece(crc32) -> None:
    for cut in (0, 1, 63, 64, 65, 255, 256, 257, 1000, 5000):
        assert crc32(DATA, cut, 5000 - cut, crc32(DATA, 0, cut, 0)) == zlib.crc32(DATA)


@pytest.mark.parametrize("crc32", WAYS, ids=lambda way: way.__name__)
def test_every_flipped_bit_shows(crc32) -> None:
    data, whole = DATA[:900].copy(), crc32(DATA, 0, 900, 0)
    for bit in range(0, 7200, 13):
        data[bit // 8] ^= 1 << bit % 8
        assert crc32(data, 0, 900, 0) != whole
        data[bit // 8] ^= 1 << bit % 8
