"""A whole column in one call: read from the file, find the pages, uncompress, decode, one chunk after the other.

Calls from Python take the interpreter's lock for a moment. With many threads and a call for each step of each row group
they spend more time waiting for it than working: measured on 16 cores, decoding alone fell from 46 M rows/s with 8
threads to 28 M with 16. Here nothing needs the lock between the first byte and the last value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int32, int64, types, uint64

from penstock.kernels.cpu_intrinsics import memcpy
from penstock.kernels.cpu_parquet import decode_flat, decode_flat_codes, may_stay_codes
from penstock.kernels.cpu_parquet_pages import (
    DICTIONARY,
    FULL_SIZE,
    KIND,
    NUM_VALUES,
    SLACK,
    UNSUPPORTED,
    scan_pages,
)
from penstock.kernels.kernel_cache import njit

# Columns of the table of chunks, one row per column chunk.
HANDLE, OFFSET, SIZE, ROWS, OPTIONAL, SNAPPY = range(6)
CHUNK_FIELDS = 6
READING, KNOWN = range(2)  # of what `decode_column` has found
_CLOCK_MONOTONIC = 1

# The C library's functions by name: unlike ctypes pointers they can be compiled to the cache. Pointers go as integers.
pread: Any = types.ExternalFunction("pread", types.int64(types.int32, types.uint64, types.uint64, types.int64))
_clock_gettime: Any = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uint64))


@njit(nogil=True, cache=True)
def _nanoseconds(parts):
    _clock_gettime(int32(_CLOCK_MONOTONIC), uint64(parts.ctypes.data))
    return parts[0] * 1_000_000_000 + parts[1]


@njit(nogil=True, cache=True)
def read_chunk(chunk, data):
    """The chunk's bytes at the front of `data`; False where the file ends or cannot be read."""
    size, done = chunk[SIZE], 0
    while done < size:
        place = uint64(data.ctypes.data) + uint64(done)
        got = pread(int32(chunk[HANDLE]), place, uint64(size - done), int64(chunk[OFFSET] + done))
        if got <= 0:
            return False
        done += got
    return True


@njit(nogil=True, cache=True)
def _has_room(pages, work, dictionary):
    """Whether every page fits the buffers, with room for every code of the width that the writer needs."""
    for p in range(pages.shape[0]):
        if pages[p, FULL_SIZE] + SLACK > work.shape[0]:
            return False
        if pages[p, KIND] == DICTIONARY:
            codes = 2
            while codes < pages[p, NUM_VALUES]:
                codes *= 2
            if codes > dictionary.shape[0]:
                return False
    return True


@njit(nogil=True, cache=True)
def decode_column(table, data, pages, work, dictionary, levels, out, fill, values, codes, found):
    """Column chunks (rows of `table`) one after the other into `out`; the number of nulls or a negative status.

    A chunk that does not fit the buffers is `UNSUPPORTED`: it is read step by step then, where it is said what is wrong
    with it. Where there is room in `codes` and all chunks allow it, these are filled in the place of `out`, and
    `values` with what they stand for: `found[KNOWN]` is how many there are then, and else 0. `found[READING]` grows by
    the nanoseconds spent reading.
    """
    at, nulls, known = 0, int64(0), int64(0)
    codes_stay = codes.shape[0] == out.shape[0]
    clock = np.empty(2, np.int64)
    for c in range(table.shape[0]):
        chunk = table[c]
        if chunk[SIZE] + SLACK > data.shape[0] or chunk[ROWS] > levels.shape[0]:
            return UNSUPPORTED
        began = _nanoseconds(clock)
        if not read_chunk(chunk, data):
            return UNSUPPORTED
        found[READING] += _nanoseconds(clock) - began
        count = scan_pages(data, chunk[SIZE], pages)
        if count < 0:
            return count
        if not _has_room(pages[:count], work, dictionary):
            return UNSUPPORTED
        optional, compressed, own = chunk[OPTIONAL] != 0, chunk[SNAPPY] != 0, int64(UNSUPPORTED)
        if codes_stay and may_stay_codes(pages[:count]):
            places = codes[at : at + chunk[ROWS]]
            own, known = decode_flat_codes(
                data, pages[:count], work, values, known, levels, optional, compressed, places, fill
            )
        if codes_stay and own == UNSUPPORTED:
            codes_stay = False
            for i in range(at):
                out[i] = values[codes[i]]
        if not codes_stay:
            target = out[at : at + chunk[ROWS]]
            own = decode_flat(data, pages[:count], work, dictionary, levels, optional, compressed, target, fill)
        if own < 0:
            return own
        nulls += own
        at += chunk[ROWS]
    found[KNOWN] = known if codes_stay else 0
    return nulls


@njit(nogil=True, cache=True)
def copy_pieces(addresses, sizes, out):
    """Pieces of memory (address and bytes) end to end into the bytes of `out`."""
    at = uint64(out.ctypes.data)
    for p in range(addresses.shape[0]):
        memcpy(at, addresses[p], uint64(sizes[p]))
        at += uint64(sizes[p])
