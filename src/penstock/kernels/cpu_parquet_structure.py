"""Whether the inside of a page without a checksum adds up: its levels, and its codes. Releases the GIL.

Other readers take levels that end early, or that no column has, for values. Nothing is decoded here: runs are walked
from head to head. Arrays have `SLACK` bytes behind `end`.
"""

from __future__ import annotations

from numba import int64, uint64

from penstock.kernels.cpu_parquet_pages import (
    DATA_V2,
    ENCODING,
    FULL_SIZE,
    KIND,
    LEVEL_BYTES,
    NUM_VALUES,
    PLAIN_DICTIONARY,
    REPEAT_BYTES,
    RLE_DICTIONARY,
    SLACK,
    load64,
    snappy,
)
from penstock.kernels.cpu_parquet_runs import packed_run, repeated_run
from penstock.kernels.cpu_thrift import DAMAGED, varint
from penstock.kernels.kernel_cache import njit

STRANGE = 1  # it can be read, but there is more than it says
_LENGTH = 4  # bytes before the levels of a page of version 1 that say how long they are


@njit(nogil=True, cache=True)
def has_codes(page):
    """Whether a data page's values are codes into a dictionary."""
    return page[ENCODING] == PLAIN_DICTIONARY or page[ENCODING] == RLE_DICTIONARY


@njit(nogil=True, cache=True)
def _ones(data, at, count):
    """How many of `count` bits are set."""
    total = int64(0)
    for first in range(0, count, 64):
        word = load64(data, at + (first >> 3))
        if count - first < 64:
            word &= (uint64(1) << uint64(count - first)) - uint64(1)
        word -= (word >> uint64(1)) & uint64(0x5555555555555555)
        word = (word & uint64(0x3333333333333333)) + ((word >> uint64(2)) & uint64(0x3333333333333333))
        word = (word + (word >> uint64(4))) & uint64(0x0F0F0F0F0F0F0F0F)
        total += int64((word * uint64(0x0101010101010101)) >> uint64(56))
    return total


@njit(nogil=True, cache=True)
def count_present(data, at, end, count):
    """How many of `count` values are there, by the levels of a column that may have nulls; or a status."""
    done, present = int64(0), int64(0)
    while done < count:
        head, at = varint(data, at, end)
        if at < 0:
            return DAMAGED
        if head & uint64(1):
            run, size = packed_run(head, count - done, 1, end - at)
            if run == 0:
                return DAMAGED
            present += _ones(data, at, run)
            at += size
        else:
            run = repeated_run(head, count - done)
            if run == 0 or at >= end or data[at] > 1:
                return DAMAGED
            present += run * data[at]
            at += 1
        done += run
    return present


@njit(nogil=True, cache=True)
def check_codes(data, at, end, dictionary_size, count):
    """0 where there are runs for `count` codes, the repeated ones of which the dictionary has; else a status.

    `STRANGE` where there are bytes behind them.
    """
    if count == 0:
        return (0 if at + 1 >= end else STRANGE) if at >= end or data[at] <= 32 else DAMAGED
    if at >= end or data[at] > 32 or dictionary_size == 0:
        return DAMAGED
    width = int64(data[at])
    at += 1
    done = int64(0)
    while done < count:
        head, at = varint(data, at, end)
        if at < 0:
            return DAMAGED
        if head & uint64(1):
            run, size = packed_run(head, count - done, width, end - at)
        else:
            run, size = repeated_run(head, count - done), (width + 7) // 8
            if size > end - at:
                return DAMAGED
            code = load64(data, at) & ((uint64(1) << uint64(8 * size)) - uint64(1))
            if dictionary_size > 0 and code >= uint64(dictionary_size):
                return DAMAGED
        if run == 0:
            return DAMAGED
        at += size
        done += run
    return 0 if at >= end else STRANGE


@njit(nogil=True, cache=True)
def check_sizes(page, present, size, width):
    """0 where `size` bytes are what `present` plain values of `width` bytes take (0: any size); else `STRANGE`."""
    if has_codes(page):
        return 0
    return 0 if (size == present * width if width > 0 else size == 0 or present > 0) else STRANGE


@njit(nogil=True, cache=True)
def check_body(data, at, end, page, full_size, present, has_levels, width, dictionary_size):
    """0 where the uncompressed values of a page add up, the levels of version 1 before them; else a status.

    Args:
        data, at, end: the bytes. Where there are no codes, those behind the levels need not be there.
        page: its header.
        full_size: how many bytes there would be.
        present: how many values there are, where levels were elsewhere.
        has_levels: whether they are here.
        width: bytes of a plain value; 0 where they differ.
        dictionary_size: how many values the dictionary has; -1 where that is not known.
    """
    if has_levels:
        if end - at < _LENGTH:
            return DAMAGED
        length = int64(load64(data, at) & uint64(0xFFFFFFFF))
        at += _LENGTH
        if length > end - at:
            return DAMAGED
        present = count_present(data, at, at + length, page[NUM_VALUES])
        if present < 0:
            return DAMAGED
        at += length
        full_size -= _LENGTH + length
    if has_codes(page):
        return check_codes(data, at, end, dictionary_size, present)
    return check_sizes(page, present, full_size, width)


@njit(nogil=True, cache=True)
def check_page(raw, size, page, work, is_optional, is_snappy, width, dictionary_size):
    """0 where a data page adds up of which `size` bytes are at the front of `raw`; else a status.

    Args:
        raw, size: the page's bytes, or some of the first ones: where these are too few, it is a status.
        page: its header.
        work: room for what is uncompressed.
        is_optional: whether the column may have nulls.
        is_snappy: whether the values are compressed so; else they are not compressed, or are not looked at.
        width: bytes of a plain value; 0 where they differ.
        dictionary_size: how many values the dictionary has; -1 where that is not known.
    """
    present, start, full_size = page[NUM_VALUES], int64(0), page[FULL_SIZE]
    is_second = page[KIND] == DATA_V2
    if is_second:
        start = page[LEVEL_BYTES] + page[REPEAT_BYTES]
        full_size -= start
        if start > size:
            return DAMAGED
        if is_optional:
            present = count_present(raw, page[REPEAT_BYTES], start, present)
        if present < 0:
            return DAMAGED
        if not has_codes(page):
            return check_sizes(page, present, full_size, width)
    has_levels = is_optional and not is_second
    if not is_snappy or full_size == 0:
        return check_body(raw, start, size, page, full_size, present, has_levels, width, dictionary_size)
    if full_size > len(work) - SLACK:
        return DAMAGED
    enough = full_size + 1
    if not has_codes(page):  # the levels are at the front: how long they are, and then they
        if snappy(raw, start, size - start, work, full_size, int64(_LENGTH)) < _LENGTH:
            return DAMAGED
        enough = _LENGTH + int64(load64(work, 0) & uint64(0xFFFFFFFF))
        if enough > full_size:
            return DAMAGED
    written = snappy(raw, start, size - start, work, full_size, enough)
    if written < 0:
        return DAMAGED
    return check_body(work, int64(0), written, page, full_size, present, has_levels, width, dictionary_size)
