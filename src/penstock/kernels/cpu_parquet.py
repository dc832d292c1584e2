"""Parquet column chunks of plain numbers, decoded straight into the loader's memory. All release the GIL.

A reader that goes through a frame writes every column twice: once as the decoder's own buffer, once into the block that
batches are cut from, and the first one is new memory each time. Here pages are unpacked into buffers that are used
again and again and stay in the cache. Every length that comes from the file is checked; what is not understood returns
`UNSUPPORTED`, what cannot be right returns `DAMAGED`, and the caller reads such columns with the general reader.
"""

from __future__ import annotations

import numpy as np
from numba import int64, njit, uint8, uint32, uint64

from penstock.kernels.cpu_parquet_pages import (
    DAMAGED,
    DATA_V1,
    DICTIONARY,
    ENCODING,
    KIND,
    LEVEL_BYTES,
    NUM_VALUES,
    START,
    UNSUPPORTED,
    copy_bytes,
    load64,
    page_body,
    varint,
)


@njit(nogil=True, cache=True)
def decode_levels(data, at, end, width, out, count):
    """Definition or repetition levels (RLE and bit-packed runs) as uint8; returns 0 or a status."""
    done = 0
    mask = uint64((1 << width) - 1)
    while done < count:
        head, at = varint(data, at, end)
        if at < 0:
            return DAMAGED
        if head & uint64(1):
            run = min(int64(head >> uint64(1)) * 8, count - done)
            if run <= 0 or (run * width + 7) // 8 > end - at:
                return DAMAGED
            for k in range(run):
                bit = k * width
                out[done + k] = uint8((load64(data, at + (bit >> 3)) >> uint64(bit & 7)) & mask)
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
    head, at = varint(data, at, end)
    return at >= 0 and at < end and head & uint64(1) == 0 and int64(head >> uint64(1)) >= count and data[at] == level


@njit(nogil=True, cache=True)
def _unpack_rest(data, at, width, mask, limit, dictionary, out, k):
    """Look up the bit-packed codes from number `k` on; the top bit of the result is set if one was above the limit."""
    beyond = uint32(0)  # a `max` would be a branch for each value
    bit = (uint64(at) << uint64(3)) + uint64(k) * width
    for i in range(k, out.shape[0]):
        code = uint32((load64(data, bit >> uint64(3)) >> (bit & uint64(7))) & mask)
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
        word = load64(data, bit >> uint64(3)) >> (bit & uint64(7))
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
        word = load64(data, bit >> uint64(3)) >> (bit & uint64(7))
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
        head, at = varint(data, at, end)
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
            code = uint32(load64(data, at) & (uint64((1 << (8 * size)) - 1)))
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
    copy_bytes(data, at, values, 0, whole)
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
        body, start, end = page_body(data, page, work, compressed)
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
                size = int64(load64(body, start) & uint64(0xFFFFFFFF))
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
def _level_block(body, start, end):
    """`(start, end)` of a block of levels that its length precedes; the end is negative if it does not fit."""
    if end - start < 4:
        return start, DAMAGED
    size = int64(load64(body, start) & uint64(0xFFFFFFFF))
    return (start + 4, start + 4 + size) if size <= end - start - 4 else (start, DAMAGED)


@njit(nogil=True, cache=True)
def decode_lists(data, pages, work, dictionary, levels, list_level, top, compressed, values, offsets, count):
    """One column chunk of lists of numbers; returns the number of values after it, or a status.

    `offsets[0]` belongs to the chunk's first row and `count` values are there before it. `levels` has two rows of one
    byte a level, for repetition and definition. An empty list has definition level `list_level`, an item `top`;
    anything else is a null, and columns with nulls are left to the general reader.
    """
    row, rows, dictionary_size = -1, offsets.shape[0] - 1, 0
    width = 1 if top == 1 else 2
    for p in range(pages.shape[0]):
        page = pages[p]
        body, start, end = page_body(data, page, work, compressed)
        if start < 0:
            return start
        size = page[NUM_VALUES]
        if page[KIND] == DICTIONARY:
            if page[ENCODING] not in (0, 2) or size > dictionary.shape[0]:
                return UNSUPPORTED
            if decode_plain(body, start, end, dictionary, size) < 0:
                return DAMAGED
            dictionary_size = size
            continue
        if page[KIND] != DATA_V1:
            return UNSUPPORTED
        if size > levels.shape[1]:
            return DAMAGED
        for kind in range(2):
            start, stop = _level_block(body, start, end)
            if stop < 0 or decode_levels(body, start, stop, 1 if kind == 0 else width, levels[kind], size) < 0:
                return DAMAGED
            start = stop
        present = 0
        for i in range(size):
            row += 1 - min(int64(levels[0, i]), 1)
            if row < 0 or row >= rows:
                return DAMAGED
            level = int64(levels[1, i])
            if level != top and level != list_level:
                return UNSUPPORTED
            present += level == top
            offsets[row + 1] = count + present
        if present > values.shape[0] - count:
            return DAMAGED
        target = values[count : count + present]
        if page[ENCODING] == 0:
            status = decode_plain(body, start, end, target, present)
        elif page[ENCODING] in (2, 8):
            status = decode_dictionary(body, start, end, dictionary, dictionary_size, target, present)
        else:
            status = UNSUPPORTED
        if status < 0:
            return status
        count += present
    return count if row == rows - 1 else DAMAGED
