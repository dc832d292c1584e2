"""What parquet pages are made of: runs of levels and of dictionary codes, plain values. All release the GIL.

Every number that comes from the file is checked before it is used. Arrays have `SLACK` bytes behind `end`.
"""

from __future__ import annotations

import numpy as np
from numba import int64, uint8, uint64

from penstock.kernels.cpu_bit_packing import GROUP, NARROW, greatest, unpack_narrow, unpack_wide
from penstock.kernels.cpu_parquet_pages import UNSUPPORTED, copy_bytes, load64
from penstock.kernels.cpu_thrift import DAMAGED, varint
from penstock.kernels.kernel_cache import njit

_LONGEST = 2**31 - 1  # values: pages count them in 32 bits
_BLOCK = 512  # codes that are unpacked before they are looked up; whole groups of eight


@njit(nogil=True, cache=True)
def packed_run(head, count, width, room):
    """`(values, bytes)` of a bit-packed run of which `count` values are wanted; no values where it does not fit.

    The last group of eight that is wanted need not be there further than it is; a longer run must be there whole.
    """
    groups, wanted = head >> uint64(1), uint64((count + 7) >> 3)
    if groups > uint64(_LONGEST >> 3) or (groups > wanted and int64(groups) * width > room):
        return 0, 0
    run = min(int64(groups) * 8, count)
    return (run, int64(groups) * width) if (run * width + 7) >> 3 <= room else (0, 0)


@njit(nogil=True, cache=True)
def repeated_run(head, count):
    """How often a repeated value is wanted, at most `count` times; 0 where no run is that long."""
    length = head >> uint64(1)
    return int64(min(length, uint64(count))) if length <= uint64(_LONGEST) else 0


@njit(nogil=True, cache=True)
def decode_levels(data, at, end, width, top, out, count):
    """Definition or repetition levels up to `top` (RLE and bit-packed runs) as uint8; returns 0 or a status."""
    done = 0
    mask = uint64((1 << width) - 1)
    while done < count:
        head, at = varint(data, at, end)
        if at < 0:
            return DAMAGED
        if head & uint64(1):
            run, size = packed_run(head, count - done, width, end - at)
            if run == 0:
                return DAMAGED
            for k in range(run >> 3):  # eight levels of one or two bits lie in one word
                word = load64(data, at + k * width)
                place = done + 8 * k
                for lane in range(8):
                    out[place + lane] = uint8((word >> uint64(lane * width)) & mask)
            rest = run & 7
            if rest:
                word = load64(data, at + (run >> 3) * width)
                for lane in range(rest):
                    out[done + run - rest + lane] = uint8((word >> uint64(lane * width)) & mask)
            at += size
        else:
            run = repeated_run(head, count - done)
            if run == 0 or at >= end:
                return DAMAGED
            out[done : done + run] = data[at]
            at += 1
        done += run
    return 0 if int64(greatest(out[:count])) <= top else DAMAGED


@njit(nogil=True, cache=True)
def one_run(data, at, end, level, count):
    """Whether the levels are one run of the same `level`: the usual case of a column without nulls."""
    head, at = varint(data, at, end)
    if at < 0 or at >= end or head & uint64(1) or data[at] != level:
        return False
    return head >> uint64(1) >= uint64(count) and head >> uint64(1) <= uint64(_LONGEST)


@njit(nogil=True, cache=True)
def code_width(data, at, end, count):
    """The bits of each dictionary code of a page of `count` values, which its first byte says; or a status."""
    if at >= end:
        return 0 if count == 0 else DAMAGED
    return int64(data[at]) if data[at] <= 32 else DAMAGED


@njit(nogil=True, cache=True)
def next_run(data, at, end, width, left):
    """`(values, begin, behind, repeated code)` of the next run of codes, of which `left` values are wanted at most.

    The code is -1 where they are bit-packed from `begin` on. No values where it cannot be right.
    """
    head, at = varint(data, at, end)
    if at < 0:
        return int64(0), at, at, int64(-1)
    if head & uint64(1):
        run, size = packed_run(head, left, width, end - at)
        return int64(run), at, at + size, int64(-1)
    run, size = repeated_run(head, left), (width + 7) // 8
    if size > end - at:
        return int64(0), at, at, int64(-1)
    return int64(run), at, at + size, int64(load64(data, at) & uint64((1 << (8 * size)) - 1))


@njit(nogil=True, cache=True)
def counts_up(dictionary, size):
    """Whether a dictionary is the numbers from its first on, so that a value is that plus its code."""
    for k in range(size):
        if dictionary[k] != dictionary[0] + dictionary.dtype.type(k):
            return False
    return size > 0


@njit(nogil=True, cache=True)
def decode_dictionary(data, at, end, dictionary, dictionary_size, is_counting, out, count):
    """Dictionary codes looked up on the fly: `out[i] = dictionary[code[i]]`; returns 0 or a status.

    Where the dictionary is counting (`counts_up`), nothing is looked up.
    """
    width, done = code_width(data, at, end, count), 0
    if width < 0 or (count > 0 and dictionary_size == 0):
        return DAMAGED
    at, codes = at + 1, np.empty(_BLOCK + GROUP, np.uint32)
    while done < count:
        run, at, behind, code = next_run(data, at, end, width, count - done)
        if run == 0 or code >= dictionary_size:
            return DAMAGED
        target = out[done : done + run]
        if code >= 0:
            target[:] = dictionary[code]
        else:
            for first in range(0, run, _BLOCK):
                size = min(_BLOCK, run - first)
                unpack_wide(data, at + (first >> 3) * width, width, codes, size)
                if greatest(codes[:size]) >= dictionary_size:
                    return DAMAGED
                if is_counting:
                    for k in range(size):
                        target[first + k] = dictionary[0] + dictionary.dtype.type(codes[k])
                else:
                    for k in range(size):
                        target[first + k] = dictionary[codes[k]]
        at = behind
        done += run
    return 0


@njit(nogil=True, cache=True)
def decode_codes(data, at, end, dictionary_size, out, count):
    """Dictionary codes of at most 16 bits as they are, with room for seven more in `out`; returns 0 or a status."""
    width, done = code_width(data, at, end, count), 0
    if width < 0 or (count > 0 and dictionary_size == 0):
        return DAMAGED
    if width > NARROW:
        return UNSUPPORTED
    at += 1
    while done < count:
        run, at, behind, code = next_run(data, at, end, width, count - done)
        if run == 0 or code >= dictionary_size:
            return DAMAGED
        if code >= 0:
            out[done : done + run] = code
        else:
            unpack_narrow(data, at, width, out[done:], run)
        at = behind
        done += run
    return 0 if count == 0 or int64(greatest(out[:count])) < dictionary_size else DAMAGED


@njit(nogil=True, cache=True)
def decode_plain(data, at, end, out, count):
    """Values as they are, and nothing behind them; returns 0 or a status."""
    size = count * out.itemsize
    if size != end - at:
        return DAMAGED
    values = out[:count].view(np.uint8)
    whole = size & ~7
    copy_bytes(data, at, values, int64(0), whole)
    for k in range(whole, size):
        values[k] = data[at + k]
    return 0


@njit(nogil=True, cache=True)
def spread(out, levels, top, values, fill):
    """Move `values` compact values at the front of `out` to the places whose level is `top`; `fill` goes elsewhere."""
    at = values
    for i in range(levels.shape[0] - 1, -1, -1):
        is_there = levels[i] == top
        at -= is_there
        value = out[uint64(at)]  # also where it is not wanted: a branch that cannot be foretold costs more
        out[i] = value if is_there else fill


@njit(nogil=True, cache=True)
def count_level(levels, top):
    """How many levels are `top`."""
    total = 0
    for i in range(levels.shape[0]):
        total += levels[i] == top
    return total
