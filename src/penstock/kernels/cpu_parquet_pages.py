"""Parquet pages: finding them in the bytes of a column chunk, and uncompressing them. All release the GIL."""

from __future__ import annotations

from typing import Any

from numba import int64, njit, types, uint64
from numba.extending import intrinsic

UNSUPPORTED, DAMAGED = -1, -2

# Columns of the page table that `scan_pages` fills, one row per page.
KIND, ENCODING, NUM_VALUES, START, SIZE, FULL_SIZE, LEVEL_BYTES, COMPRESSED = range(8)
PAGE_FIELDS = 8
DATA_V1, DICTIONARY, DATA_V2 = 0, 2, 3
_intrinsic: Any = intrinsic  # its first argument is numba's own, which type checkers do not know
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
def varint(data, at, end):
    """`(value, next position)`; the position is -1 when the bytes run out."""
    value, shift = uint64(0), uint64(0)
    while at < end and shift < 64:
        byte = uint64(data[at])
        at += 1
        value |= (byte & uint64(0x7F)) << shift
        if byte < 0x80:
            return value, at
        shift += uint64(7)
    return value, -1


@njit(nogil=True, cache=True)
def _skip(data, at, end, kind):
    """The position behind one Thrift value (compact protocol), or a negative status."""
    depth, previous_kind = 0, kind
    while True:
        if previous_kind == 3:
            at += 1
        elif previous_kind in (4, 5, 6):
            _, at = varint(data, at, end)
        elif previous_kind == 7:
            at += 8
        elif previous_kind == 8:
            size, at = varint(data, at, end)
            if at < 0 or size > uint64(end - at):
                return DAMAGED
            at += int64(size)
        elif previous_kind == 12:
            depth += 1
        elif previous_kind not in (1, 2):
            return UNSUPPORTED
        if at < 0 or at > end:
            return DAMAGED
        while depth:  # the next field of the innermost struct
            if at >= end:
                return DAMAGED
            head = data[at]
            at += 1
            if head:
                previous_kind = head & 15
                if head >> 4 == 0:
                    _, at = varint(data, at, end)
                    if at < 0:
                        return DAMAGED
                break
            depth -= 1
        if depth == 0:
            return at


@njit(nogil=True, cache=True)
def _page_header(data, at, end, page):
    """Read one PageHeader into a row of the page table; returns the position behind it or a status."""
    nested, outer, field = 0, 0, 0
    page[COMPRESSED] = 1
    while True:
        if at >= end:
            return DAMAGED
        head = data[at]
        at += 1
        if head == 0:
            if nested == 0:
                return at
            nested, field = 0, outer
            continue
        if head >> 4 == 0:
            number, at = varint(data, at, end)
            if at < 0:
                return DAMAGED
            field = int64(number >> uint64(1)) ^ -int64(number & uint64(1))
        else:
            field += head >> 4
        kind = head & 15
        if nested == 0 and kind == 12 and field in (5, 7, 8):
            nested, outer, field = field, field, 0
        elif nested == 8 and field == 7 and kind in (1, 2):
            page[COMPRESSED] = kind == 1
        elif kind == 5:
            raw, at = varint(data, at, end)
            if at < 0:
                return DAMAGED
            _note(page, nested, field, int64(raw >> uint64(1)) ^ -int64(raw & uint64(1)))
        else:
            at = _skip(data, at, end, kind)
            if at < 0:
                return at


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
    elif field == 1:
        page[NUM_VALUES] = value
    elif (nested in (5, 7) and field == 2) or (nested == 8 and field == 4):
        page[ENCODING] = value
    elif nested == 8 and field in (5, 6):
        page[LEVEL_BYTES] += value


@njit(nogil=True, cache=True)
def scan_pages(data, size, pages):
    """Fill the page table from the `size` bytes of a column chunk; returns the number of pages or a status."""
    at, count = 0, 0
    while at < size:
        if count == pages.shape[0]:
            return UNSUPPORTED
        page = pages[count]
        page[:] = 0
        at = _page_header(data, at, size, page)
        if at < 0:
            return at
        page[START] = at
        if page[SIZE] < 0 or page[SIZE] > size - at or page[FULL_SIZE] < 0 or page[NUM_VALUES] < 0:
            return DAMAGED
        if page[LEVEL_BYTES] < 0 or page[LEVEL_BYTES] > min(page[SIZE], page[FULL_SIZE]):
            return DAMAGED
        at += page[SIZE]
        if page[KIND] in (DATA_V1, DICTIONARY, DATA_V2):
            count += 1
        elif page[KIND] != 1:  # index pages carry nothing that is needed
            return UNSUPPORTED
    return count


@njit(nogil=True, cache=True)
def copy_bytes(source, start, out, at, size):
    """`size` bytes, eight at a time; both arrays have `SLACK` bytes behind what may be touched."""
    for k in range(0, size, 8):
        store64(out, at + k, load64(source, start + k))


@njit(nogil=True, cache=True)
def snappy(source, start, size, out, full_size):
    """Uncompress `size` bytes of Snappy; returns the number of bytes written, or a status."""
    end = start + size
    length, position = varint(source, start, end)
    if position < 0 or length != uint64(full_size):
        return DAMAGED
    at = 0
    while position < end:
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
    return at if at == full_size else DAMAGED


@njit(nogil=True, cache=True)
def page_body(data, page, work, compressed):
    """`(bytes, start, end)` of a page's values, uncompressed; the start is negative for a status."""
    start, size, full_size = page[START], page[SIZE], page[FULL_SIZE]
    skip = page[LEVEL_BYTES] if page[KIND] == DATA_V2 else 0
    if not (compressed and page[COMPRESSED]):
        return data, start + skip, start + size
    if full_size - skip > work.shape[0] - SLACK:
        return data, UNSUPPORTED, 0
    if full_size == skip:
        return data, start + skip, start + skip
    written = snappy(data, start + skip, size - skip, work, full_size - skip)
    if written < 0:
        return data, written, 0
    return work, 0, full_size - skip
