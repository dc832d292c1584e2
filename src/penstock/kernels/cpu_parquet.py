"""Parquet column chunks of plain numbers, decoded straight into the loader's memory. All release the GIL.

A reader that goes through a frame writes every column twice: once as the decoder's own buffer, once into the block that
batches are cut from, and the first one is new memory each time. Here pages are unpacked into buffers that are used again
and again and stay in the cache. Every length that comes from the file is checked; what is not understood returns
`UNSUPPORTED`, what cannot be right returns `DAMAGED`, and the caller reads such columns with the general reader.
"""

from __future__ import annotations

import numpy as np
from numba import int64, njit, types, uint8, uint32, uint64
from numba.extending import intrinsic

UNSUPPORTED, DAMAGED = -1, -2

# Columns of the page table that `scan_pages` fills, one row per page.
KIND, ENCODING, NUM_VALUES, START, SIZE, FULL_SIZE, LEVEL_BYTES, COMPRESSED = range(8)
PAGE_FIELDS = 8
DATA_V1, DICTIONARY, DATA_V2 = 0, 2, 3
SLACK = 64  # bytes behind every buffer, so that eight bytes can be read or written at once near its end


@intrinsic
def _load64(typingctx, array, position):
    """Eight bytes of a uint8 array from any position, as one little-endian word."""

    def codegen(context, builder, signature, args):
        from llvmlite import ir
        from numba.core import cgutils

        view = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=args[0])
        pointer = builder.bitcast(builder.gep(view.data, [args[1]]), ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(array, types.intp), codegen


@intrinsic
def _store64(typingctx, array, position, word):
    """The counterpart of `_load64`."""

    def codegen(context, builder, signature, args):
        from llvmlite import ir
        from numba.core import cgutils

        view = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=args[0])
        pointer = builder.bitcast(builder.gep(view.data, [args[1]]), ir.IntType(64).as_pointer())
        builder.store(args[2], pointer, align=1)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.uint64), codegen


@njit(nogil=True, cache=True)
def _varint(data, at, end):
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
            _, at = _varint(data, at, end)
        elif previous_kind == 7:
            at += 8
        elif previous_kind == 8:
            size, at = _varint(data, at, end)
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
                    _, at = _varint(data, at, end)
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
            number, at = _varint(data, at, end)
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
            raw, at = _varint(data, at, end)
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
def _copy_bytes(source, start, out, at, size):
    """`size` bytes, eight at a time; both arrays have `SLACK` bytes behind what may be touched."""
    for k in range(0, size, 8):
        _store64(out, at + k, _load64(source, start + k))


@njit(nogil=True, cache=True)
def snappy(source, start, size, out, full_size):
    """Uncompress `size` bytes of Snappy; returns the number of bytes written, or a status."""
    end = start + size
    length, position = _varint(source, start, end)
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
            _copy_bytes(source, position, out, at, run)
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
                _copy_bytes(out, at - back, out, at, run)
            else:
                for k in range(run):
                    out[at + k] = out[at - back + k]
        at += run
    return at if at == full_size else DAMAGED


@njit(nogil=True, cache=True)
def decode_levels(data, at, end, width, out, count):
    """Definition or repetition levels (RLE and bit-packed runs) as uint8; returns 0 or a status."""
    done = 0
    mask = uint64((1 << width) - 1)
    while done < count:
        head, at = _varint(data, at, end)
        if at < 0:
            return DAMAGED
        if head & uint64(1):
            run = min(int64(head >> uint64(1)) * 8, count - done)
            if run <= 0 or (run * width + 7) // 8 > end - at:
                return DAMAGED
            for k in range(run):
                bit = k * width
                out[done + k] = uint8((_load64(data, at + (bit >> 3)) >> uint64(bit & 7)) & mask)
            at += int64(head >> uint64(1)) * width
        else:
            run = min(int64(head >> uint64(1)), count - done)
            if run <= 0 or at >= end:
                return DAMAGED
            out[done : done + run] = data[at]
            at += 1
        done += run
    return 0


@njit(nogil=True, cache=True)
def _one_run(data, at, end, level, count):
    """Whether the levels are one run of the same `level`: the usual case of a column without nulls."""
    head, at = _varint(data, at, end)
    return at >= 0 and at < end and head & uint64(1) == 0 and int64(head >> uint64(1)) >= count and data[at] == level


@njit(nogil=True, cache=True)
def _unpack_rest(data, at, width, mask, limit, dictionary, out, k):
    """Look up the bit-packed codes from number `k` on; the top bit of the result is set if one was above the limit."""
    beyond = uint32(0)  # a `max` would be a branch for each value
    bit = (uint64(at) << uint64(3)) + uint64(k) * width
    for i in range(k, out.shape[0]):
        code = uint32((_load64(data, bit >> uint64(3)) >> (bit & uint64(7))) & mask)
        out[i] = dictionary[code]
        beyond |= limit - code
        bit += width
    return beyond


@njit(nogil=True, cache=True)
def _unpack_pairs(data, at, width, mask, limit, dictionary, out):
    """The same with two codes of up to 28 bits from each word."""
    beyond = uint32(0)
    bit = uint64(at) << uint64(3)
    pairs = out.shape[0] >> 1
    for k in range(pairs):
        word = _load64(data, bit >> uint64(3)) >> (bit & uint64(7))
        first = uint32(word & mask)
        second = uint32((word >> width) & mask)
        out[2 * k] = dictionary[first]
        out[2 * k + 1] = dictionary[second]
        beyond |= (limit - first) | (limit - second)
        bit += width + width
    return beyond | _unpack_rest(data, at, width, mask, limit, dictionary, out, 2 * pairs)


@njit(nogil=True, cache=True)
def _unpack_fours(data, at, width, mask, limit, dictionary, out):
    """The same with four codes of up to 14 bits from each word."""
    beyond = uint32(0)
    bit = uint64(at) << uint64(3)
    fours = out.shape[0] >> 2
    for k in range(fours):
        word = _load64(data, bit >> uint64(3)) >> (bit & uint64(7))
        first = uint32(word & mask)
        second = uint32((word >> width) & mask)
        word >>= width + width
        third = uint32(word & mask)
        fourth = uint32((word >> width) & mask)
        out[4 * k] = dictionary[first]
        out[4 * k + 1] = dictionary[second]
        out[4 * k + 2] = dictionary[third]
        out[4 * k + 3] = dictionary[fourth]
        beyond |= (limit - first) | (limit - second) | (limit - third) | (limit - fourth)
        bit += width << uint64(2)
    return beyond | _unpack_rest(data, at, width, mask, limit, dictionary, out, 4 * fours)


@njit(nogil=True, cache=True)
def decode_dictionary(data, at, end, dictionary, dictionary_size, out, count):
    """Dictionary codes looked up on the fly: `out[i] = dictionary[code[i]]`; returns 0 or a status."""
    if count == 0:
        return 0
    if at >= end or dictionary_size == 0:
        return DAMAGED
    width = int64(data[at])
    at += 1
    # With room for every code of this width a wrong one reads garbage instead of foreign memory, and is noticed below.
    if width > 30 or (1 << width) > dictionary.shape[0]:
        return UNSUPPORTED
    mask = uint64((1 << width) - 1)
    step = uint64(width)
    limit = uint32(dictionary_size - 1)
    beyond = uint32(0)  # its top bit is set by the first code above the limit
    done = 0
    while done < count:
        head, at = _varint(data, at, end)
        if at < 0:
            return DAMAGED
        if head & uint64(1):
            run = min(int64(head >> uint64(1)) * 8, count - done)
            if run <= 0 or (run * width + 7) // 8 > end - at:
                return DAMAGED
            target = out[done : done + run]
            if width <= 14:
                beyond |= _unpack_fours(data, at, step, mask, limit, dictionary, target)
            elif width <= 28:
                beyond |= _unpack_pairs(data, at, step, mask, limit, dictionary, target)
            else:
                beyond |= _unpack_rest(data, at, step, mask, limit, dictionary, target, 0)
            at += int64(head >> uint64(1)) * width
        else:
            run = min(int64(head >> uint64(1)), count - done)
            size = (width + 7) // 8
            if run <= 0 or size > end - at:
                return DAMAGED
            code = uint32(_load64(data, at) & (uint64((1 << (8 * size)) - 1)))
            if code >= dictionary_size:
                return DAMAGED
            out[done : done + run] = dictionary[code]
            at += size
        done += run
    return 0 if beyond >> uint32(31) == 0 else DAMAGED


@njit(nogil=True, cache=True)
def decode_plain(data, at, end, out, count):
    """Values as they are; returns 0 or a status."""
    size = count * out.itemsize
    if size > end - at:
        return DAMAGED
    values = out[:count].view(np.uint8)
    whole = size & ~7
    _copy_bytes(data, at, values, 0, whole)
    for k in range(whole, size):
        values[k] = data[at + k]
    return 0


@njit(nogil=True, cache=True)
def spread(out, levels, top, values, fill):
    """Move `values` compact values at the front of `out` to the places whose level is `top`; `fill` goes elsewhere."""
    at = values
    for i in range(levels.shape[0] - 1, -1, -1):
        if levels[i] == top:
            at -= 1
            out[i] = out[at]
        else:
            out[i] = fill


@njit(nogil=True, cache=True)
def count_level(levels, top):
    """How many levels are `top`."""
    total = 0
    for i in range(levels.shape[0]):
        total += levels[i] == top
    return total


@njit(nogil=True, cache=True)
def decode_flat(data, pages, work, dictionary, levels, optional, compressed, out, fill):
    """One column chunk without lists into `out`; returns the number of nulls or a status.

    `data` holds the chunk's bytes, `pages` the table of `scan_pages`, `work` an uncompressed page, `dictionary` the
    dictionary's values, `levels` one byte per row. `compressed` says that pages are in Snappy (else they are plain).
    """
    at, nulls, dictionary_size = 0, 0, 0
    for p in range(pages.shape[0]):
        page = pages[p]
        body, start, end = _page_body(data, page, work, compressed)
        if start < 0:
            return start
        count = page[NUM_VALUES]
        if page[KIND] == DICTIONARY:
            if page[ENCODING] not in (0, 2) or count > dictionary.shape[0]:
                return UNSUPPORTED
            status = decode_plain(body, start, end, dictionary, count)
            if status < 0:
                return status
            dictionary_size = count
            continue
        if count > out.shape[0] - at:
            return DAMAGED
        target = out[at : at + count]
        present = count
        if optional:
            if page[KIND] == DATA_V1:
                if end - start < 4:
                    return DAMAGED
                size = int64(_load64(body, start) & uint64(0xFFFFFFFF))
                level_start, level_end = start + 4, start + 4 + size
                start = level_end
            else:
                level_start, level_end = page[START], page[START] + page[LEVEL_BYTES]
            source = body if page[KIND] == DATA_V1 else data
            if page[KIND] == DATA_V1 and level_end > end:
                return DAMAGED
            if not _one_run(source, level_start, level_end, 1, count):
                status = decode_levels(source, level_start, level_end, 1, levels, count)
                if status < 0:
                    return status
                present = count_level(levels[:count], 1)
        if page[ENCODING] == 0:
            status = decode_plain(body, start, end, target, present)
        elif page[ENCODING] in (2, 8):
            status = decode_dictionary(body, start, end, dictionary, dictionary_size, target, present)
        else:
            status = UNSUPPORTED
        if status < 0:
            return status
        if present < count:
            spread(target, levels[:count], 1, present, fill)
            nulls += count - present
        at += count
    return nulls if at == out.shape[0] else DAMAGED


@njit(nogil=True, cache=True)
def _page_body(data, page, work, compressed):
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
