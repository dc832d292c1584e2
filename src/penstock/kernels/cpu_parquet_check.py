"""The pages of columns that another reader will decode: their headers, and their checksums. Releases the GIL.

Other readers take the memory that a page's header promises before they look at the page, and most pass over its
checksum. Read here are the headers, the bodies of pages that carry a checksum, and of the others what tells how many
values there are.
"""

from __future__ import annotations

import numpy as np
from numba import int32, int64, uint64

from penstock.kernels.cpu_checksum import crc32
from penstock.kernels.cpu_parquet_column import pread
from penstock.kernels.cpu_parquet_pages import (
    CHECKSUM,
    COMPRESSED,
    DATA_V1,
    DATA_V2,
    DICTIONARY,
    ENCODING,
    FULL_SIZE,
    INDEX,
    KIND,
    LEVEL_BYTES,
    LEVEL_ENCODING,
    NUM_VALUES,
    PAGE_FIELDS,
    PLAIN,
    PLAIN_DICTIONARY,
    REPEAT_BYTES,
    RLE,
    RLE_DICTIONARY,
    SIZE,
    SLACK,
    check_header,
    page_header,
)
from penstock.kernels.cpu_parquet_structure import STRANGE, check_page, check_sizes, has_codes
from penstock.kernels.cpu_thrift import DAMAGED, varint
from penstock.kernels.kernel_cache import njit

# Columns of the table of chunks, one row per column chunk. What the footer says, and how much a codec can gain.
# `CHUNK_LEVELS` is how deep a flat column's are, -1 for columns of which nobody looks inside the pages;
# `CHUNK_WIDTH` the bytes of a plain value, 0 where they differ.
CHUNK_OFFSET, CHUNK_SIZE, CHUNK_VALUES, CHUNK_FULL_SIZE, CHUNK_GAIN, CHUNK_IS_COMMON = range(6)
CHUNK_CODEC, CHUNK_LEVELS, CHUNK_WIDTH = range(6, 9)
CHECKED_FIELDS = 9
# Columns of the table of pages that are left to others to uncompress, and to look inside.
LEFT_CHUNK, LEFT_NUMBER, LEFT_OFFSET, LEFT_DICTIONARY, LEFT_PAGE = range(5)
LEFT_FIELDS = LEFT_PAGE + PAGE_FIELDS
_UNCOMPRESSED, _SNAPPY = 0, 1
_LEFT = 2
_HEAD = 1 << 14  # bytes of a page that are read first where its levels are wanted
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
def _check_inside(handle, offset, page, chunk, dictionary_size, raw, work):
    """0 where a data page adds up, a status where it does not, `_LEFT` where others have to uncompress it."""
    is_optional, is_coded = chunk[CHUNK_LEVELS] == 1, has_codes(page)
    if not is_optional and not is_coded:
        levels = page[LEVEL_BYTES] + page[REPEAT_BYTES] if page[KIND] == DATA_V2 else 0
        return check_sizes(page, page[NUM_VALUES], page[FULL_SIZE] - levels, chunk[CHUNK_WIDTH])
    is_packed = chunk[CHUNK_CODEC] != _UNCOMPRESSED and page[COMPRESSED] != 0
    if is_packed and chunk[CHUNK_CODEC] != _SNAPPY and (is_coded or page[KIND] != DATA_V2):
        return _LEFT
    size = page[SIZE] if is_coded else min(page[SIZE], max(_HEAD, page[LEVEL_BYTES]))
    while True:
        if not _read(handle, offset, size, raw):
            return DAMAGED
        status = check_page(raw, size, page, work, is_optional, is_packed, chunk[CHUNK_WIDTH], dictionary_size)
        if status >= 0 or size == page[SIZE]:
            return status
        size = page[SIZE]


@njit(nogil=True, cache=True)
def _check_bare(handle, offset, page, chunk, dictionary_size, piece, raw, work):
    """The same of any page that carries no checksum."""
    if chunk[CHUNK_CODEC] == _SNAPPY and _check_snappy(handle, offset, page, piece) < 0:
        return DAMAGED
    if page[KIND] == INDEX or page[KIND] == DICTIONARY or chunk[CHUNK_LEVELS] < 0:
        return 0
    return _check_inside(handle, offset, page, chunk, dictionary_size, raw, work)


@njit(nogil=True, cache=True)
def _rooms(chunks):
    """Room for a page of any of the chunks, and for what Snappy makes of it; memory comes only as it is used."""
    size, full_size = int64(0), int64(0)
    for c in range(chunks.shape[0]):
        size = max(size, chunks[c, CHUNK_SIZE])
        if chunks[c, CHUNK_CODEC] == _SNAPPY:
            most = chunks[c, CHUNK_SIZE] * chunks[c, CHUNK_GAIN] + SLACK
            full_size = max(full_size, min(most, chunks[c, CHUNK_FULL_SIZE] + _SPARE))
    return np.empty(size + SLACK, np.uint8), np.empty(full_size + SLACK, np.uint8)


@njit(nogil=True, cache=True)
def _leave(left, count, chunk, number, offset, dictionary_size, page):
    """The table of pages that are left to others, with one more."""
    if count == len(left):
        longer = np.empty((2 * count + 16, LEFT_FIELDS), np.int64)
        for k in range(count):  # an assignment of slices would take longer to compile than all the rest
            for field in range(LEFT_FIELDS):
                longer[k, field] = left[k, field]
        left = longer
    left[count, LEFT_CHUNK], left[count, LEFT_NUMBER], left[count, LEFT_OFFSET] = chunk, number, offset
    left[count, LEFT_DICTIONARY] = dictionary_size
    for field in range(PAGE_FIELDS):
        left[count, LEFT_PAGE + field] = page[field]
    return left


@njit(nogil=True, cache=True)
def check_chunks(handle, chunks, piece, found, bare, strange):
    """`(status, pages left)`: 0 where all pages of the chunks are possible and have their checksums; else `DAMAGED`.

    `piece` is room for `PIECE_BYTES` and some slack; `found` becomes the chunk and the page at fault. `bare` becomes
    True for chunks of which a page carries no checksum, and `strange` for those of which one has levels as they were
    written of old, or more bytes than it says. The pages left are to be uncompressed and looked into by the caller.
    """
    page = np.empty(PAGE_FIELDS, np.int64)
    left, num_left = np.empty((0, LEFT_FIELDS), np.int64), int64(0)
    raw, work = _rooms(chunks)
    for c in range(chunks.shape[0]):
        chunk = chunks[c]
        at, values, number, dictionary_size = int64(0), int64(0), int64(0), int64(-1)
        while at < chunk[CHUNK_SIZE]:
            found[0], found[1] = c, number
            place, room = chunk[CHUNK_OFFSET] + at, chunk[CHUNK_SIZE] - at
            length = _header(handle, place, room, piece, page)
            if length < 0 or check_header(page, room - length) < 0:
                return DAMAGED, left[:0]
            at += length + page[SIZE]
            if page[KIND] != INDEX and (
                (page[KIND] == DICTIONARY and number > 0) or _check_against_footer(page, chunk) < 0
            ):
                return DAMAGED, left[:0]
            if page[KIND] == DATA_V1 and chunk[CHUNK_LEVELS] == 1 and page[LEVEL_ENCODING] != RLE:
                strange[c] = True
            elif page[CHECKSUM] < 0:
                bare[c] = True
                status = _check_bare(handle, place + length, page, chunk, dictionary_size, piece, raw, work)
                if status < 0:
                    return DAMAGED, left[:0]
                if status == STRANGE:
                    strange[c] = True
                if status == _LEFT:
                    left = _leave(left, num_left, c, number, place + length, dictionary_size, page)
                    num_left += 1
            elif _checksum(handle, place + length, page[SIZE], piece) != page[CHECKSUM]:
                return DAMAGED, left[:0]
            if page[KIND] == INDEX:
                continue
            if page[KIND] == DICTIONARY:
                dictionary_size = page[NUM_VALUES]
            else:
                values += page[NUM_VALUES]
            number += 1
        if values != chunk[CHUNK_VALUES]:
            found[0], found[1] = c, number
            return DAMAGED, left[:0]
    return 0, left[:num_left]
