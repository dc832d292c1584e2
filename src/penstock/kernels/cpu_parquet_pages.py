"""Parquet pages: finding them in the bytes of a column chunk, and uncompressing them. All release the GIL."""

from __future__ import annotations

from typing import Any

from numba import int32, int64, types, uint64
from numba.extending import intrinsic

from penstock.kernels.cpu_checksum import crc32
from penstock.kernels.cpu_thrift import DAMAGED, FALSE, I32, STRUCT, TRUE, field_header, signed, skip, varint
from penstock.kernels.kernel_cache import njit

UNSUPPORTED = -1  # valid, as far as one can see, but not understood; DAMAGED - n says that page n cannot be right

# Columns of the page table that `scan_pages` fills, one row per page; -1 stands for what a header does not say.
KIND, ENCODING, NUM_VALUES, START, SIZE, FULL_SIZE, LEVEL_BYTES, COMPRESSED = range(8)
REPEAT_BYTES, LEVEL_ENCODING, REPEAT_ENCODING, CHECKSUM, HEADER = range(8, 13)
PAGE_FIELDS = 13
DATA_V1, INDEX, DICTIONARY, DATA_V2 = range(4)
PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 0, 2, 3, 8  # encodings
_intrinsic: Any = intrinsic  # its first argument is numba's own, which type checkers do not know
MOST_GAIN = 32  # times that Snappy makes bytes fewer: three of them copy up to 64
SLACK = 64  # bytes behind every buffer, so that eight bytes can be read or written at once near its end


@_intrinsic
def load64(typingctx, array, position):
    """Eight bytes of a uint8 array from any position, as one little-endian word."""

    def codegen(context, builder, signature, args):
        from llvmlite import ir
        from numba.core import cgutils

        view = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=args[0])
        pointer = builder.bitcast(builder.gep(view.data, [args[1]]), ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(array, types.intp), codegen


@_intrinsic
def store64(typingctx, array, position, word):
    """The counterpart of `load64`."""

    def codegen(context, builder, signature, args):
        from llvmlite import ir
        from numba.core import cgutils

        view = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=args[0])
        pointer = builder.bitcast(builder.gep(view.data, [args[1]]), ir.IntType(64).as_pointer())
        builder.store(args[2], pointer, align=1)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.uint64), codegen


@njit(nogil=True, cache=True)
def page_header(data, at, end, page):
    """Read one PageHeader into a row of the page table; returns the position behind it or a status."""
    nested, outer, field = int64(0), int64(0), int64(0)
    while True:
        field, kind, at = field_header(data, at, end, field)
        if at < 0:
            return DAMAGED
        if kind == 0:
            if nested == 0:
                return at
            nested, field = int64(0), outer
        elif nested == 0 and kind == STRUCT and (field == 5 or field == 7 or field == 8):
            if page[HEADER] >= 0:  # two descriptions of one page
                return DAMAGED
            page[HEADER], nested, outer, field = field, field, field, int64(0)
        elif nested == 8 and field == 7 and (kind in (TRUE, FALSE)):
            page[COMPRESSED] = kind == TRUE
        elif kind == I32:
            raw, at = varint(data, at, end)
            value = signed(raw)
            if at < 0 or value != int64(int32(value)):
                return DAMAGED
            _note(page, nested, field, value)
        else:
            at = skip(data, at, end, kind)
            if at < 0:
                return DAMAGED


@njit(nogil=True, cache=True)
def _note(page, nested, field, value):
    """Put a number of the page header where it belongs."""
    if nested == 0:
        if field == 1:
            page[KIND] = value
        elif field == 2:
            page[FULL_SIZE] = value
        elif field == 3:
            page[SIZE] = value
        elif field == 4:
            page[CHECKSUM] = value & 0xFFFFFFFF
    elif field == 1:
        page[NUM_VALUES] = value
    elif (nested != 8 and field == 2) or (nested == 8 and field == 4):
        page[ENCODING] = value
    elif nested == 5 and field == 3:
        page[LEVEL_ENCODING] = value
    elif nested == 5 and field == 4:
        page[REPEAT_ENCODING] = value
    elif nested == 8 and field == 5:
        page[LEVEL_BYTES] = value
    elif nested == 8 and field == 6:
        page[REPEAT_BYTES] = value


@njit(nogil=True, cache=True)
def check_header(page, room):
    """0 where a page header's numbers are there, fit one another and the `room` bytes behind it; else a status."""
    kind, size = page[KIND], page[SIZE]
    if size < 0 or size > room or page[FULL_SIZE] < 0:
        return DAMAGED
    if kind == INDEX:
        return 0
    if kind != DATA_V1 and kind != DICTIONARY and kind != DATA_V2:
        return DAMAGED
    header = 5 if kind == DATA_V1 else (7 if kind == DICTIONARY else 8)
    if page[HEADER] != header or page[NUM_VALUES] < 0 or page[ENCODING] < 0:
        return DAMAGED
    if kind == DATA_V1:
        return 0 if page[LEVEL_ENCODING] >= 0 and page[REPEAT_ENCODING] >= 0 else DAMAGED
    if kind == DATA_V2:
        if page[LEVEL_BYTES] < 0 or page[REPEAT_BYTES] < 0:
            return DAMAGED
        if page[LEVEL_BYTES] + page[REPEAT_BYTES] > min(size, page[FULL_SIZE]):
            return DAMAGED
    return 0


@njit(nogil=True, cache=True)
def _check_page(data, page, room):
    """Like `check_header`, and the checksum where there is one."""
    status = check_header(page, room)
    if status == 0 and page[CHECKSUM] >= 0 and crc32(data, page[START], page[SIZE], int64(0)) != page[CHECKSUM]:
        return DAMAGED
    return status


@njit(nogil=True, cache=True)
def scan_pages(data, size, pages):
    """Fill the page table from the `size` bytes of a column chunk; returns the number of pages or a status.

    The status of a damaged page tells which one it is (see `damaged_page`).
    """
    at, count = int64(0), int64(0)
    while at < size:
        if count == pages.shape[0]:
            return UNSUPPORTED
        page = pages[count]
        page[:] = -1
        page[COMPRESSED] = 1
        at = page_header(data, at, size, page)
        if at < 0:
            return DAMAGED - count
        page[START] = at
        if _check_page(data, page, size - at) < 0 or (page[KIND] == DICTIONARY and count > 0):
            return DAMAGED - count
        at += page[SIZE]
        if page[KIND] != INDEX:  # index pages carry nothing that is needed
            count += 1
    return count


def damaged_page(status: int) -> int | None:
    """The number of the damaged page that a kernel's status tells of, or None where it tells of none.

    >>> damaged_page(UNSUPPORTED), damaged_page(DAMAGED - 3), damaged_page(17)
    (None, 3, None)
    """
    return DAMAGED - status if status <= DAMAGED else None


@njit(nogil=True, cache=True)
def copy_bytes(source, start, out, at, size):
    """`size` bytes, eight at a time; both arrays have `SLACK` bytes behind what may be touched."""
    for k in range(0, size, 8):
        store64(out, at + k, load64(source, start + k))


@njit(nogil=True, cache=True)
def snappy(source, start, size, out, full_size, enough):
    """Uncompress `size` bytes of Snappy, or as many as give `enough` bytes where it is not more than `full_size`.

    Returns the number of bytes written, or a status.
    """
    end = start + size
    length, position = varint(source, start, end)
    if position < 0 or length != uint64(full_size):
        return DAMAGED
    at = int64(0)
    while position < end and at < enough:
        tag = source[position]
        position += 1
        kind = tag & 3
        if kind == 0:
            run = int64(tag >> 2) + 1
            if run > 60:
                extra = run - 60
                if position + extra > end:
                    return DAMAGED
                run = 1
                for k in range(extra):
                    run += int64(source[position + k]) << (8 * k)
                position += extra
            if run > end - position or run > full_size - at:
                return DAMAGED
            copy_bytes(source, position, out, at, run)
            position += run
        else:
            if position + (kind if kind < 3 else 4) > end:
                return DAMAGED
            if kind == 1:
                run = int64((tag >> 2) & 7) + 4
                back = (int64(tag >> 5) << 8) | int64(source[position])
                position += 1
            else:
                run = int64(tag >> 2) + 1
                back = int64(source[position]) | (int64(source[position + 1]) << 8)
                if kind == 3:
                    back |= (int64(source[position + 2]) << 16) | (int64(source[position + 3]) << 24)
                position += 2 if kind == 2 else 4
            if back == 0 or back > at or run > full_size - at:
                return DAMAGED
            if back >= 8:
                copy_bytes(out, at - back, out, at, run)
            else:
                for k in range(run):
                    out[at + k] = out[at - back + k]
        at += run
    return at if at == full_size or at >= enough else DAMAGED


@njit(nogil=True, cache=True)
def page_body(data, page, work, compressed):
    """`(bytes, start, end)` of a page's values, uncompressed; the start is negative for a status."""
    start, size, full_size = page[START], page[SIZE], page[FULL_SIZE]
    skipped = page[LEVEL_BYTES] + page[REPEAT_BYTES] if page[KIND] == DATA_V2 else 0
    if not (compressed and page[COMPRESSED]):
        return data, start + skipped, start + size
    if full_size == skipped:
        return data, start + skipped, start + skipped
    if full_size - skipped > MOST_GAIN * size:  # Snappy gains no more: no reason to find room for it
        return data, DAMAGED, 0
    if full_size - skipped > work.shape[0] - SLACK:
        return data, UNSUPPORTED, 0
    full_size -= skipped
    written = snappy(data, start + skipped, size - skipped, work, full_size, full_size + 1)
    if written < 0:
        return data, DAMAGED, 0
    return work, 0, full_size
