"""Which columns of a row group are written as codes of a dictionary, and of which. All release the GIL.

Whole numbers that lie close together get the dictionary of all numbers from their lowest to their highest (from 0 on
where that is near): a code is a difference, nothing is looked up to write it, and who knows such a dictionary looks
nothing up to read it either. Where many of those numbers do not occur, it holds those that do, found by a table in
which each number has its place. What lies further apart, as floats do by their bits, is numbered by first sight
through a hash table, which is worth its time only for few values.
"""

from __future__ import annotations

from numba import int32, int64, uint32, uint64

from penstock.kernels.cpu_intrinsics import KERNEL, load32, load64, store32, store64
from penstock.kernels.kernel_cache import njit

MOST = 1 << 16  # values of a dictionary
SAMPLE, FEW = 20_000, 1_000  # apart from whole numbers: if so many rows have no more values than this
_LOOK = 1 << 10  # values that are looked at before it is asked whether they lie close together
_WIDER = 1.25  # as many times the bytes of a dictionary without gaps are worth not looking anything up
_NEAR = 1 << 15  # from 0
_LEAST, _GREATEST = -(2**63), 2**63 - 1


@njit(**KERNEL)
def word_at(address, itemsize, number):
    """The bits of a value, of 4 or 8 bytes."""
    number = uint64(number)
    return load32(address + (number << uint64(2))) if itemsize == 4 else load64(address + (number << uint64(3)))


@njit(**KERNEL)
def put_word(address, itemsize, number, word):
    """Write them."""
    number = uint64(number)
    if itemsize == 4:
        store32(address + (number << uint64(2)), word)
    else:
        store64(address + (number << uint64(3)), word)


@njit(**KERNEL)
def code_bits(size):
    """The bits of a code of a dictionary of so many values."""
    width = 1
    while size > 1 << width:
        width += 1
    return width


@njit(**KERNEL)
def _size(values, itemsize, count):
    """Bytes of a dictionary of `values` values and of `count` codes of it."""
    return values * itemsize + ((count * code_bits(values)) >> 3)


@njit(**KERNEL)
def _extent(address, itemsize, count):
    """`(lowest, highest)` of whole numbers, or `(0, MOST)` once they lie too far apart."""
    lowest, highest = int64(_GREATEST), int64(_LEAST)
    for first in range(0, count, _LOOK):
        last = min(count, first + _LOOK)
        if itemsize == 4:
            low, high = int32(2**31 - 1), int32(-(2**31))
            for k in range(first, last):
                value = int32(uint32(load32(address + (uint64(k) << uint64(2)))))
                low, high = min(low, value), max(high, value)
            lowest, highest = min(lowest, int64(low)), max(highest, int64(high))
        else:
            for k in range(first, last):
                value = int64(load64(address + (uint64(k) << uint64(3))))
                lowest, highest = min(lowest, value), max(highest, value)
        if uint64(highest) - uint64(lowest) >= uint64(MOST):
            return int64(0), int64(MOST)
    return lowest, highest


@njit(**KERNEL)
def _differences(address, itemsize, count, base, codes):
    """How far each value is from `base`, which is at most `MOST`."""
    if itemsize == 4:
        low = uint32(base)
        for k in range(count):
            codes[k] = uint32(load32(address + (uint64(k) << uint64(2)))) - low
    else:
        for k in range(count):
            codes[k] = uint32(load64(address + (uint64(k) << uint64(3))) - uint64(base))


@njit(**KERNEL)
def _number_close(address, itemsize, count, lowest, highest, slots, dictionary, codes):
    """Number whole numbers of `[lowest, highest]` in their order; how many there are."""
    base = int64(0) if 0 <= lowest < _NEAR and highest < MOST else lowest
    span, values = highest - base + 1, 0
    _differences(address, itemsize, count, base, codes)
    slots[:span] = uint32(0)
    for k in range(count):
        slots[codes[k]] = uint32(1)
    for k in range(span):
        values += int64(slots[k])
    if _size(span, itemsize, count) <= _WIDER * _size(values, itemsize, count):
        for k in range(span):
            dictionary[k] = uint64(base + k)
        return span
    size = 0
    for k in range(span):
        if slots[k]:
            dictionary[size] = uint64(base + k)
            slots[k] = uint32(size)
            size += 1
    for k in range(count):
        codes[k] = slots[codes[k]]
    return size


@njit(**KERNEL)
def _spread(slots, dictionary, size, shift, key):
    """Put the dictionary's words into a table that was made larger."""
    mask = uint64(1) << (uint64(64) - shift)
    slots[: int64(mask)] = uint32(0)
    for number in range(size):
        place = (dictionary[number] * key) >> shift
        while slots[place] != uint32(0):
            place = (place + uint64(1)) & (mask - uint64(1))
        slots[place] = uint32(number + 1)


@njit(**KERNEL)
def _number_seen(address, itemsize, count, slots, dictionary, codes, key):
    """Number values by first sight; how many there are, or -1 where a dictionary is not worth it."""
    shift, size, room = uint64(64 - 12), 0, 1 << 11
    mask = (uint64(1) << uint64(12)) - uint64(1)
    slots[:4096] = uint32(0)
    before, code = uint64(0), uint32(0)
    for k in range(count):
        word = word_at(address, itemsize, k)
        if k > 0 and word == before:
            codes[k] = code
            continue
        before = word
        place = (word * key) >> shift
        while True:
            found = slots[place]
            if found == uint32(0):
                if size == MOST or (size == FEW and k < SAMPLE):
                    return -1
                dictionary[size] = word
                size += 1
                slots[place] = uint32(size)
                code = uint32(size - 1)
                if size == room and size < MOST:
                    shift -= uint64(1)
                    room *= 2
                    mask = (mask << uint64(1)) | uint64(1)
                    _spread(slots, dictionary, size, shift, key)
                break
            if dictionary[found - uint32(1)] == word:
                code = found - uint32(1)
                break
            place = (place + uint64(1)) & mask
        codes[k] = code
    return size


@njit(**KERNEL)
def number_values(address, itemsize, count, slots, dictionary, codes, key):
    """A column's values as codes of a dictionary; how many it has, or -1 where plain values are less to write.

    Args:
        address: where the values lie.
        itemsize: 4 or 8 bytes each.
        count: how many.
        slots: room for twice `MOST`.
        dictionary: filled in, the bits of each value; room for `MOST`.
        codes: filled in.
        key: of the hash table: odd, and secret, so that nobody chooses values that meet in it.
    """
    if count == 0:
        return -1
    lowest, highest = _extent(address, itemsize, count)
    if highest - lowest < MOST and highest - lowest < 4 * count:
        size = _number_close(address, itemsize, count, lowest, highest, slots, dictionary, codes)
    else:
        size = _number_seen(address, itemsize, count, slots, dictionary, codes, key)
    return size if size >= 0 and _size(size, itemsize, count) < count * itemsize else -1
