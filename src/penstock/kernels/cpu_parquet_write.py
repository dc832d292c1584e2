"""Row groups into parquet files, all columns in one call: values to pages, with dictionaries where they are short.

Columns are flat numbers of four or eight bytes with Arrow's validity bits, in one piece or several. A page is what
`cpu_parquet` reads: version 1, uncompressed, definition levels as one run (or as the validity bits themselves, which
are a bit-packed run already), then plain values or the codes of a dictionary, and a CRC-32 over it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int32, int64, types, uint8, uint64

from penstock.kernels.cpu_checksum import crc32
from penstock.kernels.cpu_intrinsics import KERNEL, load8, store32, store64
from penstock.kernels.cpu_parquet_dictionary import MOST, code_bits, number_values, put_word, word_at
from penstock.kernels.cpu_parquet_pages import DATA_V1, DICTIONARY, PLAIN, RLE, RLE_DICTIONARY
from penstock.kernels.kernel_cache import njit

PAGE_ROWS = 1 << 15  # a multiple of 8, so that a page's validity bits begin with a byte
HEADER = 128  # bytes that a page's header, its first run of levels and what its last group leaves empty have at most
ALIKE = 64  # codes from which on they are written as one
SLACK = 64  # bytes behind buffers that words may be stored to

VALUES, BITS, FIRST_BIT, PIECE_FIELDS = 0, 1, 2, 3  # of a column's piece: where they lie; bits 0: all are valid
CHUNK_SIZE, DICTIONARY_SIZE, CHUNK_FIELDS = 0, 1, 2  # of a written column, in bytes; dictionary 0: none

_memcpy: Any = types.ExternalFunction("memcpy", types.uint64(types.uint64, types.uint64, types.uint64))
_pwrite: Any = types.ExternalFunction("pwrite", types.int64(types.int32, types.uint64, types.uint64, types.int64))


class Workspace:
    """The buffers that one thread writes row groups with."""

    def __init__(self) -> None:
        self.slots, self.dictionary = np.empty(2 * MOST, np.uint32), np.empty(MOST, np.uint64)
        self.page = np.empty(MOST * 8 + PAGE_ROWS + SLACK, np.uint8)
        self.num_rows = -1

    def buffers(self, num_rows: int) -> tuple[np.ndarray, ...]:
        """What `write_group` asks for, with room for so many rows."""
        if self.num_rows < num_rows:
            self.num_rows = num_rows
            self.values, self.bits = np.empty(num_rows, np.uint64), np.empty(num_rows // 8 + SLACK, np.uint8)
            self.codes = np.empty(num_rows + SLACK, np.uint32)
            num_pages = 2 + num_rows // PAGE_ROWS
            self.chunk = np.empty(num_rows * 8 + num_rows // 8 + num_pages * HEADER + SLACK, np.uint8)
        return self.slots, self.dictionary, self.page, self.values, self.bits, self.codes, self.chunk


@njit(**KERNEL)
def _put_varint(out, at, value):
    value = uint64(value)
    while value >= uint64(0x80):
        out[at] = uint8(value) | uint8(0x80)
        value >>= uint64(7)
        at += 1
    out[at] = uint8(value)
    return at + 1


@njit(**KERNEL)
def _put_int(out, at, value):
    """A thrift field of 32 bits, the one behind the last."""
    out[at] = uint8(0x15)
    return _put_varint(out, at + 1, uint64((int64(value) << 1) ^ (int64(value) >> 63)))


@njit(**KERNEL)
def _put_page(out, at, page, size, kind, count, encoding):
    """A page's header, and its body; where the next one begins."""
    checksum = crc32(page, int64(0), int64(size), int64(0))
    if checksum >= 1 << 31:
        checksum -= 1 << 32
    at = _put_int(out, at, kind)
    at = _put_int(out, at, size)
    at = _put_int(out, at, size)
    at = _put_int(out, at, checksum)
    out[at] = uint8(0x1C if kind == DATA_V1 else 0x3C)
    at = _put_int(out, at + 1, count)
    at = _put_int(out, at, encoding)
    if kind == DATA_V1:
        at = _put_int(out, at, RLE)
        at = _put_int(out, at, RLE)
    out[at] = out[at + 1] = uint8(0)
    _memcpy(uint64(out.ctypes.data) + uint64(at + 2), uint64(page.ctypes.data), uint64(size))
    return at + 2 + size


@njit(**KERNEL)
def _put_levels(page, first, count, bits, has_nulls):
    """The definition levels of rows; where the page goes on."""
    if has_nulls:
        groups = (count + 7) >> 3
        at = _put_varint(page, 4, (groups << 1) | 1)
        page[at : at + groups] = bits[first >> 3 : (first >> 3) + groups]
        at += groups
    else:
        at = _put_varint(page, 4, count << 1)
        page[at] = uint8(1)
        at += 1
    store32(uint64(page.ctypes.data), uint64(at - 4))
    return at


@njit(**KERNEL)
def _gather(pieces, piece_rows, column, itemsize, values, bits):
    """A column's pieces end to end: `(where its valid values lie, how many they are, whether there are nulls)`."""
    has_nulls = False
    for p in range(pieces.shape[0]):
        has_nulls |= pieces[p, column, BITS] != 0
    if not has_nulls and pieces.shape[0] == 1:
        return uint64(pieces[0, column, VALUES]), piece_rows[0], False
    target, count, row = uint64(values.ctypes.data), 0, 0
    if has_nulls:
        bits[:] = uint8(0)
    for p in range(pieces.shape[0]):
        source, rows = uint64(pieces[p, column, VALUES]), piece_rows[p]
        valid, skipped = uint64(pieces[p, column, BITS]), pieces[p, column, FIRST_BIT]
        if not has_nulls:
            _memcpy(target + uint64(count * itemsize), source, uint64(rows * itemsize))
            count += rows
            continue
        for k in range(rows):
            bit = uint64(skipped + k)
            there = valid == uint64(0) or (load8(valid + (bit >> uint64(3))) >> (bit & uint64(7))) & uint64(1)
            put_word(target, itemsize, count, word_at(source, itemsize, k))
            count += int64(there)
            bits[(row + k) >> 3] |= uint8(uint8(there) << uint8((row + k) & 7))
        row += rows
    return target, count, has_nulls


@njit(**KERNEL)
def _pack(page, at, codes, first, count, width):
    """Codes side by side, `width` bits each, in groups of eight; where the page goes on."""
    start = uint64(page.ctypes.data) + uint64(at)
    held, word, place = uint64(0), uint64(0), start
    for k in range(first, first + count):
        word |= uint64(codes[k]) << held
        held += uint64(width)
        if held >= uint64(32):
            store32(place, word)
            place += uint64(4)
            word >>= uint64(32)
            held -= uint64(32)
    store64(place, word)
    store64(place + uint64(8), uint64(0))
    return at + (((count + 7) >> 3) * width)


@njit(**KERNEL)
def _alike(codes, first, last):
    """How many codes from `first` on are the same; 0 where they are fewer than `ALIKE`."""
    code = codes[first]
    if last - first < ALIKE or codes[first + 7] != code or codes[first + ALIKE - 1] != code:
        return 0
    k = first + 1
    while k < last and codes[k] == code:
        k += 1
    return k - first if k - first >= ALIKE else 0


@njit(**KERNEL)
def _put_codes(page, at, codes, first, last, width):
    """A page's codes: runs of one code where there are long ones, bit-packed between them."""
    page[at] = uint8(width)
    at += 1
    k = first
    while k < last:
        run = _alike(codes, k, last)
        if run:
            at = _put_varint(page, at, run << 1)
            store32(uint64(page.ctypes.data) + uint64(at), uint64(codes[k]))
            at += (width + 7) >> 3
            k += run
            continue
        end = k + 8
        while end < last and not _alike(codes, end, last):
            end += 8
        end = min(end, last)
        at = _put_varint(page, at, (((end - k + 7) >> 3) << 1) | 1)
        at = _pack(page, at, codes, k, end - k, width)
        k = end
    return at


@njit(**KERNEL)
def _count_valid(bits, first, count, has_nulls):
    if not has_nulls:
        return count
    total = 0
    for k in range(first, first + count):
        total += int64((bits[k >> 3] >> uint8(k & 7)) & uint8(1))
    return total


@njit(**KERNEL)
def _put_chunk(pieces, piece_rows, column, itemsize, num_rows, key, slots, dictionary, page, values, bits, codes, out):
    """One column of a row group: `(bytes in out, those of its dictionary)`."""
    at, dictionary_size = 0, 0
    address, count, has_nulls = _gather(pieces, piece_rows, column, itemsize, values, bits)
    size = number_values(address, itemsize, count, slots, dictionary, codes, key)
    width = code_bits(size)
    if size >= 0:
        for k in range(size):
            put_word(uint64(page.ctypes.data), itemsize, k, dictionary[k])
        at = dictionary_size = _put_page(out, 0, page, size * itemsize, DICTIONARY, size, PLAIN)
    done = 0
    for first in range(0, num_rows, PAGE_ROWS):
        rows = min(PAGE_ROWS, num_rows - first)
        present = _count_valid(bits, first, rows, has_nulls)
        end = _put_levels(page, first, rows, bits, has_nulls)
        if size >= 0:
            end = _put_codes(page, end, codes, done, done + present, width)
            at = _put_page(out, at, page, end, DATA_V1, rows, RLE_DICTIONARY)
        else:
            source = address + uint64(done * itemsize)
            _memcpy(uint64(page.ctypes.data) + uint64(end), source, uint64(present * itemsize))
            at = _put_page(out, at, page, end + present * itemsize, DATA_V1, rows, PLAIN)
        done += present
    return at, dictionary_size


@njit(**KERNEL)
def write_group(
    handle, position, pieces, piece_rows, itemsizes, key, slots, dictionary, page, values, bits, codes, out, chunks
):
    """Write the columns of a row group to a file; where it ends then, or -1 - the place that cannot be written.

    Args:
        handle: the number of an open file.
        position: where the row group begins in it.
        pieces: `(pieces, columns, PIECE_FIELDS)`.
        piece_rows: rows of each piece.
        itemsizes: 4 or 8 for each column.
        key, slots, dictionary, page, values, bits, codes, out: a `Workspace`.
        chunks: `(columns, CHUNK_FIELDS)`, filled in.
    """
    num_rows = 0
    for p in range(piece_rows.shape[0]):
        num_rows += piece_rows[p]
    for column in range(pieces.shape[1]):
        size, dictionary_size = _put_chunk(
            pieces,
            piece_rows,
            column,
            itemsizes[column],
            num_rows,
            key,
            slots,
            dictionary,
            page,
            values,
            bits,
            codes,
            out,
        )
        chunks[column, CHUNK_SIZE], chunks[column, DICTIONARY_SIZE] = size, dictionary_size
        done = 0
        while done < size:
            source = uint64(out.ctypes.data) + uint64(done)
            wrote = _pwrite(int32(handle), source, uint64(size - done), int64(position))
            if wrote <= 0:
                return -1 - position
            done += wrote
            position += wrote
    return position
