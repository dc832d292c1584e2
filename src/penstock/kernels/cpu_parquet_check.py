"""The pages of columns that another reader will decode: their headers, and their checksums. Releases the GIL.

Other readers take the memory that a page's header promises before they look at the page, and most pass over its
checksum. Only the headers are read here, and the bodies of pages that carry a checksum.
"""

from __future__ import annotations

import numpy as np
from numba import int32, int64, uint64

from penstock.kernels.cpu_checksum import crc32
from penstock.kernels.cpu_parquet_column import pread
from penstock.kernels.cpu_parquet_pages import (
    CHECKSUM,
    COMPRESSED,
    DATA_V2,
    DICTIONARY,
    ENCODING,
    FULL_SIZE,
    INDEX,
    KIND,
    LEVEL_BYTES,
    NUM_VALUES,
    PAGE_FIELDS,
    PLAIN,
    PLAIN_DICTIONARY,
    REPEAT_BYTES,
    RLE_DICTIONARY,
    SIZE,
    SLACK,
    check_header,
    page_header,
)
from penstock.kernels.cpu_thrift import DAMAGED, varint
from penstock.kernels.kernel_cache import njit

# Columns of the table of chunks, one row per column chunk. What the footer says, and how much a codec can gain.
CHUNK_OFFSET, CHUNK_SIZE, CHUNK_VALUES, CHUNK_FULL_SIZE, CHUNK_GAIN, CHUNK_IS_COMMON, CHUNK_IS_SNAPPY = range(7)
CHECKED_FIELDS = 7
_LENGTH_BYTES = 5  # at most, of the length that Snappy begins with
_SPARE = 1 << 16  # bytes that a page may have beyond what the footer says of all pages: some writers count otherwise
HEADER_BYTES, PIECE_BYTES = 512, 1 << 18  # read at first for a header; at once for a checksum


@njit(nogil=True, cache=True)
def _read(handle, offset, size, into):
    """Whether `size` bytes are at the front of `into` now."""
    done = 0
    while done < size:
        place = uint64(into.ctypes.data) + uint64(done)
        got = pread(int32(handle), place, uint64(size - done), int64(offset + done))
        if got <= 0:
            return False
        done += got
    return True


@njit(nogil=True, cache=True)
def _checksum(handle, offset, size, piece):
    """The checksum of a page's body, or -1 where it cannot be read."""
    total, at = int64(0), int64(0)
    while at < size:
        part = min(PIECE_BYTES, size - at)
        if not _read(handle, offset + at, part, piece):
            return -1
        total = crc32(piece, int64(0), part, total)
        at += part
    return total


@njit(nogil=True, cache=True)
def _header(handle, offset, room, piece, page):
    """The length of the header at `offset`, or a status; some headers carry long statistics."""
    size = min(HEADER_BYTES, room)
    while True:
        page[:] = -1
        page[COMPRESSED] = 1
        if not _read(handle, offset, size, piece):
            return DAMAGED
        length = page_header(piece, int64(0), size, page)
        if length >= 0 or size == min(PIECE_BYTES, room):
            return length
        size = min(PIECE_BYTES, room)


@njit(nogil=True, cache=True)
def _check_against_footer(page, chunk):
    """0, or a status where a page promises what its chunk, codec or encoding cannot keep."""
    if page[FULL_SIZE] > page[SIZE] * chunk[CHUNK_GAIN] + SLACK or page[FULL_SIZE] > chunk[CHUNK_FULL_SIZE] + _SPARE:
        return DAMAGED
    if page[KIND] == DICTIONARY:
        return 0 if page[NUM_VALUES] <= page[FULL_SIZE] else DAMAGED
    encoding = page[ENCODING]
    is_common = encoding in (PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY)
    return 0 if is_common or not chunk[CHUNK_IS_COMMON] else DAMAGED


@njit(nogil=True, cache=True)
def _check_snappy(handle, offset, page, piece):
    """0 where a page of Snappy says that it unfolds to as many bytes as its header says."""
    levels = page[LEVEL_BYTES] + page[REPEAT_BYTES] if page[KIND] == DATA_V2 else 0
    size, full_size = page[SIZE] - levels, page[FULL_SIZE] - levels
    if page[KIND] == INDEX or not page[COMPRESSED] or full_size == 0:
        return 0
    count = min(size, _LENGTH_BYTES)
    if not _read(handle, offset + levels, count, piece):
        return DAMAGED
    said, behind = varint(piece, 0, count)
    return 0 if behind >= 0 and said == uint64(full_size) else DAMAGED


@njit(nogil=True, cache=True)
def check_chunks(handle, chunks, piece, found, bare):
    """0 where all pages of the chunks are possible and have their checksums; else `DAMAGED`.

    `piece` is room for `PIECE_BYTES` and some slack; `found` becomes the chunk and the page at fault. `bare` becomes
    True for chunks of which a page carries no checksum.
    """
    page = np.empty(PAGE_FIELDS, np.int64)
    for c in range(chunks.shape[0]):
        chunk = chunks[c]
        at, values, number = int64(0), int64(0), int64(0)
        while at < chunk[CHUNK_SIZE]:
            found[0], found[1] = c, number
            place, room = chunk[CHUNK_OFFSET] + at, chunk[CHUNK_SIZE] - at
            length = _header(handle, place, room, piece, page)
            if length < 0 or check_header(page, room - length) < 0:
                return DAMAGED
            if page[CHECKSUM] < 0:
                bare[c] = True
                if chunk[CHUNK_IS_SNAPPY] and _check_snappy(handle, place + length, page, piece) < 0:
                    return DAMAGED
            elif _checksum(handle, place + length, page[SIZE], piece) != page[CHECKSUM]:
                return DAMAGED
            at += length + page[SIZE]
            if page[KIND] == INDEX:
                continue
            if (page[KIND] == DICTIONARY and number > 0) or _check_against_footer(page, chunk) < 0:
                return DAMAGED
            values += page[NUM_VALUES] if page[KIND] != DICTIONARY else 0
            number += 1
        if values != chunk[CHUNK_VALUES]:
            found[0], found[1] = c, number
            return DAMAGED
    return 0
