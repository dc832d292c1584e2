"""Parquet column chunks of plain numbers, decoded straight into the loader's memory. All release the GIL.

A reader that goes through a frame writes every column twice: once as the decoder's own buffer, once into the block that
batches are cut from, and the first one is new memory each time. Here pages are unpacked into buffers that are used
again and again and stay in the cache. Every number that comes from the file is checked before it is used. What is valid
but not understood returns `UNSUPPORTED`, and the caller reads such columns with the general reader; what cannot be
right returns `DAMAGED`, less the number of the page, and is refused.
"""

from __future__ import annotations

import numpy as np
from numba import int64, uint64

from penstock.kernels.cpu_parquet_pages import (
    COMPRESSED,
    DATA_V1,
    DICTIONARY,
    ENCODING,
    FULL_SIZE,
    KIND,
    LEVEL_BYTES,
    LEVEL_ENCODING,
    NUM_VALUES,
    PLAIN,
    PLAIN_DICTIONARY,
    REPEAT_BYTES,
    REPEAT_ENCODING,
    RLE,
    RLE_DICTIONARY,
    SLACK,
    START,
    UNSUPPORTED,
    load64,
    page_body,
)
from penstock.kernels.cpu_parquet_runs import (
    count_level,
    counts_up,
    decode_codes,
    decode_dictionary,
    decode_levels,
    decode_plain,
    one_run,
    spread,
)
from penstock.kernels.cpu_thrift import DAMAGED
from penstock.kernels.kernel_cache import njit

MOST_CODES = 1 << 16  # values that codes of 16 bits can stand for


@njit(nogil=True, cache=True)
def _decode_values(body, start, end, encoding, dictionary, dictionary_size, is_counting, out, count):
    """The values of a data page by their encoding; returns 0 or a status.

    Columns with other encodings in their footer never come here: a page that has one contradicts it.
    """
    if encoding == PLAIN:
        return decode_plain(body, start, end, out, count)
    if encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY):
        return decode_dictionary(body, start, end, dictionary, dictionary_size, is_counting, out, count)
    return DAMAGED


@njit(nogil=True, cache=True)
def _read_dictionary(data, page, work, compressed, dictionary):
    """The values of a dictionary page, uncompressed to their place where it has room; their number or a status."""
    room = dictionary.view(np.uint8)
    in_place = compressed and page[COMPRESSED] != 0 and page[FULL_SIZE] + SLACK <= room.shape[0]
    body, start, end = page_body(data, page, room if in_place else work, compressed)
    if start < 0:
        return start
    if page[ENCODING] != PLAIN and page[ENCODING] != PLAIN_DICTIONARY:
        return DAMAGED
    count = page[NUM_VALUES]
    if count * dictionary.itemsize != end - start:
        return DAMAGED
    if count > dictionary.shape[0]:
        return UNSUPPORTED
    if in_place or count == 0:
        return count
    return count if decode_plain(body, start, end, dictionary, count) == 0 else DAMAGED


@njit(nogil=True, cache=True)
def _level_block(body, start, end):
    """`(start, end)` of a block of levels that its length precedes; the end is negative if it does not fit."""
    if end - start < 4:
        return start, DAMAGED
    size = int64(load64(body, start) & uint64(0xFFFFFFFF))
    return (start + 4, start + 4 + size) if size <= end - start - 4 else (start, DAMAGED)


@njit(nogil=True, cache=True)
def flat_levels(data, page, body, start, end, levels):
    """`(how many values are there, where they start)` of a page of a column that may be null; or a status."""
    count = page[NUM_VALUES]
    if page[KIND] == DATA_V1:
        if page[LEVEL_ENCODING] != RLE:  # bit-packed ones are long gone, and polars takes them for RLE
            return DAMAGED, start
        first, last = _level_block(body, start, end)
        if last < 0:
            return DAMAGED, start
        source, start = body, last
    else:
        first, last = page[START], page[START] + page[LEVEL_BYTES]
        source = data
    if one_run(source, first, last, int64(1), count):
        return count, start
    status = decode_levels(source, first, last, int64(1), int64(1), levels, count)
    return (count_level(levels[:count], int64(1)) if status == 0 else status), start


@njit(nogil=True, cache=True)
def _flat_page(data, page, work, optional, compressed, levels, room):
    """`(bytes, start, end, how many values are there)` of a page of at most `room` rows; of these last a status."""
    body, start, end = page_body(data, page, work, compressed)
    if start < 0:
        return body, start, end, start
    if page[NUM_VALUES] > room or page[REPEAT_BYTES] > 0:
        return body, start, end, int64(DAMAGED)
    if not optional:
        return body, start, end, page[NUM_VALUES]
    present, start = flat_levels(data, page, body, start, end, levels)
    return body, start, end, int64(present)


@njit(nogil=True, cache=True)
def decode_flat(data, pages, work, dictionary, levels, optional, compressed, out, fill):
    """One column chunk without lists into `out`; returns the number of nulls or a status.

    `data` holds the chunk's bytes, `pages` the table of `scan_pages`, `work` an uncompressed page, `dictionary` the
    dictionary's values, `levels` one byte per row. `compressed` says that pages are in Snappy (else they are plain).
    """
    at, nulls, dictionary_size, is_counting = int64(0), int64(0), int64(0), False
    for p in range(pages.shape[0]):
        page = pages[p]
        if page[KIND] == DICTIONARY:
            dictionary_size = _read_dictionary(data, page, work, compressed, dictionary)
            if dictionary_size < 0:
                return _on_page(dictionary_size, p)
            is_counting = counts_up(dictionary, dictionary_size)
            continue
        body, start, end, present = _flat_page(data, page, work, optional, compressed, levels, out.shape[0] - at)
        if present < 0:
            return _on_page(present, p)
        count = page[NUM_VALUES]
        target = out[at : at + count]
        status = _decode_values(
            body, start, end, page[ENCODING], dictionary, dictionary_size, is_counting, target, present
        )
        if status < 0:
            return _on_page(status, p)
        if present < count:
            spread(target, levels[:count], int64(1), present, fill)
            nulls += count - present
        at += count
    return nulls if at == out.shape[0] else DAMAGED - pages.shape[0]


@njit(nogil=True, cache=True)
def may_stay_codes(pages):
    """Whether all values of the pages are codes of a dictionary that leaves room for a null."""
    if pages.shape[0] == 0 or pages[0, KIND] != DICTIONARY or pages[0, NUM_VALUES] >= MOST_CODES:
        return False
    for p in range(1, pages.shape[0]):
        if pages[p, ENCODING] != PLAIN_DICTIONARY and pages[p, ENCODING] != RLE_DICTIONARY:
            return False
    return True


@njit(nogil=True, cache=True)
def decode_flat_codes(data, pages, work, values, known, levels, optional, compressed, codes, fill):
    """One column chunk without lists as codes (16 bits) of `values`: `(number of nulls or a status, known values)`.

    Its dictionary goes behind the `known` values of chunks before it, or is one with them where it begins as they do.
    The status is `UNSUPPORTED` where all of them would be more than `MOST_CODES`; what was known before is as it was
    then. A null is the code of `fill`. There is room for as many values again, and for eight codes behind `codes`.
    """
    own = values[known:]
    size = int64(_read_dictionary(data, pages[0], work, compressed, own))
    if size < 0:
        return _on_page(size, 0), known
    first = int64(0) if _begins_alike(values, own, min(size, known)) else known
    if first + size >= MOST_CODES:
        return int64(UNSUPPORTED), known
    if first < known:
        for k in range(known, size):
            values[k] = own[k]
    filling = max(known, first + size)
    values[filling] = fill
    at, nulls = int64(0), int64(0)
    for p in range(1, pages.shape[0]):
        page = pages[p]
        body, start, end, present = _flat_page(data, page, work, optional, compressed, levels, codes.shape[0] - at)
        if present < 0:
            return _on_page(present, p), known
        count = page[NUM_VALUES]
        status = decode_codes(body, start, end, size, codes[at : at + count], present)
        if status < 0:
            return _on_page(status, p), known
        if present < count:
            spread(codes[at : at + count], levels[:count], int64(1), present, filling - first)
            nulls += count - present
        at += count
    if at != codes.shape[0]:
        return int64(DAMAGED - pages.shape[0]), known
    if first > 0:
        for i in range(at):
            codes[i] += first
    return nulls, filling + (nulls > 0)


@njit(nogil=True, cache=True)
def _begins_alike(values, own, count):
    """Whether two dictionaries hold the same values as far as both go: those of ids that count from 0 do."""
    for k in range(count):
        if values[k] != own[k]:
            return False
    return count > 0


@njit(nogil=True, cache=True)
def _on_page(status, page):
    """A status of a page, with its number where it is damaged."""
    return status - page if status == DAMAGED else status


@njit(nogil=True, cache=True)
def _list_levels(data, page, body, start, end, top, levels):
    """Where the values of a page of lists begin, with its levels decoded; or a status."""
    size, version_1 = page[NUM_VALUES], page[KIND] == DATA_V1
    if size > levels.shape[1]:
        return DAMAGED
    first, stop, source = page[START], page[START] + page[REPEAT_BYTES], data
    if version_1:
        if page[LEVEL_ENCODING] != RLE or page[REPEAT_ENCODING] != RLE:
            return DAMAGED
        first, stop = _level_block(body, start, end)
        source = body
    for kind in range(2):
        highest = int64(1 if kind == 0 else top)
        width = int64(1 if highest == 1 else 2)
        if stop < 0 or decode_levels(source, first, stop, width, highest, levels[kind], size) < 0:
            return DAMAGED
        if version_1:
            start = stop
            if kind == 0:
                first, stop = _level_block(body, stop, end)
        else:
            first, stop = stop, stop + page[LEVEL_BYTES]
    return start


@njit(nogil=True, cache=True)
def decode_lists(data, pages, work, dictionary, levels, list_level, top, compressed, values, offsets, count):
    """One column chunk of lists of numbers; returns the number of values after it, or a status.

    `offsets[0]` belongs to the chunk's first row and `count` values are there before it. `levels` has two rows of one
    byte a level, for repetition and definition. An empty list has definition level `list_level`, an item `top`;
    anything else is a null, and columns with nulls are left to the general reader, once all else was found right.
    """
    row, rows, dictionary_size, closed, nulls = int64(-1), offsets.shape[0] - 1, int64(0), True, False
    is_counting = False
    for p in range(pages.shape[0]):
        page = pages[p]
        if page[KIND] == DICTIONARY:
            dictionary_size = _read_dictionary(data, page, work, compressed, dictionary)
            if dictionary_size < 0:
                return _on_page(dictionary_size, p)
            is_counting = counts_up(dictionary, dictionary_size)
            continue
        body, start, end = page_body(data, page, work, compressed)
        if start < 0:
            return _on_page(start, p)
        size = page[NUM_VALUES]
        start = _list_levels(data, page, body, start, end, top, levels)
        if start < 0:
            return _on_page(start, p)
        present = int64(0)
        for i in range(size):
            row += 1 - int64(levels[0, i])
            if row < 0 or row >= rows:
                return DAMAGED - p
            level = int64(levels[1, i])
            if levels[0, i] != 0 and (closed or level <= list_level):  # a list that goes on although it is empty
                return DAMAGED - p
            closed = level <= list_level
            nulls |= level != top and level != list_level
            present += level == top
            offsets[row + 1] = count + present
        if present > values.shape[0] - count:
            return DAMAGED - p
        target = values[count : count + present]
        status = _decode_values(
            body, start, end, page[ENCODING], dictionary, dictionary_size, is_counting, target, present
        )
        if status < 0:
            return _on_page(status, p)
        count += present
    if row != rows - 1:
        return DAMAGED - pages.shape[0]
    return UNSUPPORTED if nulls else count
