"""Where the values of a column's pages lie, for a device that decodes them itself. Releases the GIL.

The bytes are read, headers and checksums are looked at as ever, and instead of the values their runs are written down
(`parquet_runs_contract`). Pages that are compressed or have nulls are `UNSUPPORTED` here: the host decodes them.
"""

from __future__ import annotations

from numba import int64, uint64

from penstock.kernels.cpu_parquet import flat_levels
from penstock.kernels.cpu_parquet_column import OPTIONAL, ROWS, SIZE, read_chunk
from penstock.kernels.cpu_parquet_pages import (
    DATA_V2,
    DICTIONARY,
    ENCODING,
    KIND,
    LEVEL_BYTES,
    NUM_VALUES,
    PLAIN,
    PLAIN_DICTIONARY,
    REPEAT_BYTES,
    RLE_DICTIONARY,
    SLACK,
    START,
    UNSUPPORTED,
    load64,
    scan_pages,
)
from penstock.kernels.cpu_parquet_pages import SIZE as PAGE_SIZE
from penstock.kernels.cpu_parquet_runs import packed_run, repeated_run
from penstock.kernels.cpu_thrift import DAMAGED, varint
from penstock.kernels.kernel_cache import njit
from penstock.kernels.parquet_runs_contract import LONGEST_RUN

_MOST_BYTES = 2**31 - 2**16  # places are numbers of 32 bits


@njit(nogil=True, cache=True)
def _note(runs, number, row, count, place, step, page):
    """Write down a run of `count` values of `step` bits from byte `place` on, cut into short ones; their number then.

    `LONGEST_RUN` is a multiple of eight, so that pieces begin at whole bytes.
    """
    done = int64(0)
    while done < count:
        if number == runs.shape[0]:
            return UNSUPPORTED
        part = min(count - done, int64(LONGEST_RUN))
        runs[number, 0], runs[number, 1] = row + done, part
        runs[number, 2], runs[number, 3] = place + ((done * step) >> 3), page
        number += 1
        done += part
    return number


@njit(nogil=True, cache=True)
def _find_codes(raw, start, end, runs, number, row, count, page, entries):
    """The runs of a page of dictionary codes; `(their number then, bits of a code)`, or a status."""
    if count == 0:
        return number, int64(0)
    if start >= end or entries == 0:
        return DAMAGED, int64(0)
    width = int64(raw[start])
    at = start + 1
    if width > 32:
        return DAMAGED, width
    done = int64(0)
    while done < count:
        head, at = varint(raw, at, end)
        if at < 0:
            return DAMAGED, width
        if head & uint64(1):
            run, size = packed_run(head, count - done, width, end - at)
            if run == 0:
                return DAMAGED, width
            number = _note(runs, number, row + done, run, at, width, page)
            if number < 0:
                return number, width
        else:
            run = repeated_run(head, count - done)
            size = (width + 7) // 8
            if run == 0 or size > end - at or number == runs.shape[0]:
                return UNSUPPORTED, width
            code = int64(load64(raw, at) & uint64((1 << (8 * size)) - 1))
            if code >= entries:
                return DAMAGED, width
            runs[number, 0], runs[number, 1], runs[number, 2], runs[number, 3] = row + done, -run, code, page
            number += 1
        at += size
        done += run
    return number, width


@njit(nogil=True, cache=True)
def _find_in_page(raw, page, optional, itemsize, entries, runs, number, row, levels, number_of_page):
    """The runs of one data page; `(their number then, bits of a code)`, or a status."""
    count, start, end = page[NUM_VALUES], page[START], page[START] + page[PAGE_SIZE]
    if page[REPEAT_BYTES] > 0:
        return DAMAGED, int64(0)
    if page[KIND] == DATA_V2:
        start += page[LEVEL_BYTES]
    if optional:
        present, start = flat_levels(raw, page, raw, start, end, levels)
        if present != count:
            return UNSUPPORTED, int64(0)
    if page[ENCODING] == PLAIN:
        if count * itemsize != end - start:
            return DAMAGED, int64(0)
        return _note(runs, number, row, count, start, 8 * itemsize, number_of_page), 8 * itemsize
    if page[ENCODING] in (PLAIN_DICTIONARY, RLE_DICTIONARY):
        return _find_codes(raw, start, end, runs, number, row, count, number_of_page, entries)
    return DAMAGED, int64(0)


@njit(nogil=True, cache=True)
def find_runs(table, raw, first_byte, itemsize, scanned, runs, pages, levels):
    """Read column chunks (rows of `cpu_parquet_column`'s table) to `raw` and find the runs of their values.

    Args:
        table: the chunks, uncompressed ones.
        raw: where their bytes go, one behind the other.
        first_byte: the first of them.
        itemsize: bytes of a value.
        scanned: room for the pages of a chunk.
        runs: room for runs; their pages are counted from 0.
        pages: room for what is said of pages, but for the column.
        levels: room for the levels of a page.

    Returns:
        `(runs, pages)` that were found, or `(a status, 0)`.
    """
    number, number_of_page, row, at = int64(0), int64(0), int64(0), int64(first_byte)
    for c in range(table.shape[0]):
        chunk = table[c]
        size = chunk[SIZE]
        if at + size + SLACK > min(raw.shape[0], int64(_MOST_BYTES)):
            return UNSUPPORTED, int64(0)
        data = raw[at : at + size + SLACK]
        if not read_chunk(chunk, data):
            return UNSUPPORTED, int64(0)
        count = scan_pages(data, size, scanned)
        if count < 0:
            return count, int64(0)
        dictionary, entries, end = int64(-1), int64(0), row + chunk[ROWS]
        for p in range(count):
            page = scanned[p]
            page[START] += at
            if page[KIND] == DICTIONARY:
                dictionary, entries = page[START], page[NUM_VALUES]
                if entries * itemsize != page[PAGE_SIZE] or page[ENCODING] not in (PLAIN, PLAIN_DICTIONARY):
                    return DAMAGED, int64(0)
                continue
            if page[NUM_VALUES] > end - row or page[NUM_VALUES] > levels.shape[0]:
                return DAMAGED, int64(0)
            if number_of_page == pages.shape[0]:
                return UNSUPPORTED, int64(0)
            number, width = _find_in_page(
                raw, page, chunk[OPTIONAL] != 0, itemsize, entries, runs, number, row, levels, number_of_page
            )
            if number < 0:
                return number, int64(0)
            plain = page[ENCODING] == PLAIN
            pages[number_of_page, 1], pages[number_of_page, 2] = -1 if plain else dictionary, entries
            pages[number_of_page, 3] = width
            number_of_page += 1
            row += page[NUM_VALUES]
        if row != end:
            return DAMAGED, int64(0)
        at += size
    return number, number_of_page
