"""What parquet pages are made of: runs of levels and of dictionary codes, plain values. All release the GIL.

Every number that comes from the file is checked before it is used. Arrays have `SLACK` bytes behind `end`.
"""

from __future__ import annotations

import numpy as np
from numba import int64, uint8, uint32, uint64

from penstock.kernels.cpu_parquet_pages import copy_bytes, load64
from penstock.kernels.cpu_thrift import DAMAGED, varint
from penstock.kernels.kernel_cache import njit

_LONGEST = 2**31 - 1  # values: pages count them in 32 bits


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
    highest = uint8(0)
    while done < count:
        head, at = varint(data, at, end)
        if at < 0:
            return DAMAGED
        if head & uint64(1):
            run, size = packed_run(head, count - done, width, end - at)
            if run == 0:
                return DAMAGED
            for k in range(run):
                bit = k * width
                level = uint8((load64(data, at + (bit >> 3)) >> uint64(bit & 7)) & mask)
                highest = max(highest, level)
                out[done + k] = level
            at += size
        else:
            run = repeated_run(head, count - done)
            if run == 0 or at >= end:
                return DAMAGED
            highest = max(highest, data[at])
            out[done : done + run] = data[at]
            at += 1
        done += run
    return 0 if highest <= top else DAMAGED


@njit(nogil=True, cache=True)
def one_run(data, at, end, level, count):
    """Whether the levels are one run of the same `level`: the usual case of a column without nulls."""
    head, at = varint(data, at, end)
    if at < 0 or at >= end or head & uint64(1) or data[at] != level:
        return False
    return head >> uint64(1) >= uint64(count) and head >> uint64(1) <= uint64(_LONGEST)


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
def _unpack_checked(data, at, width, mask, dictionary, out):
    """The same for codes that the dictionary may have no room for."""
    bit = uint64(at) << uint64(3)
    for i in range(out.shape[0]):
        code = (load64(data, bit >> uint64(3)) >> (bit & uint64(7))) & mask
        if code >= uint64(dictionary.shape[0]):
            return uint32(1 << 31)
        out[i] = dictionary[code]
        bit += width
    return uint32(0)


@njit(nogil=True, cache=True)
def decode_dictionary(data, at, end, dictionary, dictionary_size, out, count):
    """Dictionary codes looked up on the fly: `out[i] = dictionary[code[i]]`; returns 0 or a status."""
    if count == 0:
        return 0 if at >= end or data[at] <= 32 else DAMAGED
    if at >= end or dictionary_size == 0:
        return DAMAGED
    width = int64(data[at])
    at += 1
    if width > 32:
        return DAMAGED
    # With room for every code of this width a wrong one reads garbage instead of foreign memory, and is noticed below.
    # Writers that use more bits than they need are few: their codes are looked at one by one.
    roomy = width <= 30 and (1 << width) <= dictionary.shape[0]
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
            run, size = packed_run(head, count - done, width, end - at)
            if run == 0:
                return DAMAGED
            target = out[done : done + run]
            if not roomy:
                beyond |= _unpack_checked(data, at, step, mask, dictionary[:dictionary_size], target)
            elif width <= 14:
                beyond |= _unpack_fours(data, at, step, mask, limit, dictionary, target)
            elif width <= 28:
                beyond |= _unpack_pairs(data, at, step, mask, limit, dictionary, target)
            else:
                beyond |= _unpack_rest(data, at, step, mask, limit, dictionary, target, int64(0))
            at += size
        else:
            run = repeated_run(head, count - done)
            size = (width + 7) // 8
            if run == 0 or size > end - at:
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
