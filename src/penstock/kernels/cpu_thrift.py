"""Thrift's compact protocol, in which parquet writes its headers and footers. All release the GIL.

Numbers begin as `int64(0)`: numba would compile what they are handed to once more for the literal 0.

Bytes come from a file and may say anything: a position behind a value is returned only where all of it lies before
`end`, a list never has more items than bytes are left, and nesting is bounded. Anything else is `DAMAGED`.
"""

from __future__ import annotations

import numpy as np
from numba import int64, uint64

from penstock.kernels.kernel_cache import njit

DAMAGED = -2
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
DEEPEST = 32  # values inside values; parquet's own nest four deep


@njit(nogil=True, cache=True)
def varint(data, at, end):
    """`(value, next position)`; the position is -1 when the bytes run out or do not end within 64 bits."""
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
def signed(raw):
    """The number that a zigzag varint stands for."""
    return int64(raw >> uint64(1)) ^ -int64(raw & uint64(1))


@njit(nogil=True, cache=True)
def field_header(data, at, end, previous):
    """`(field number, kind, next position)` of a struct's next field; kind 0 ends it, the position may be -1."""
    if at >= end:
        return 0, 0, -1
    head = int64(data[at])
    at += 1
    if head == 0:
        return 0, 0, at
    number = previous + (head >> 4)
    if head >> 4 == 0:
        raw, at = varint(data, at, end)
        number = signed(raw)
    return number, head & 15, at


@njit(nogil=True, cache=True)
def list_header(data, at, end):
    """`(number of items, their kind, next position)`; the position is -1 where so many cannot be there."""
    if at >= end:
        return 0, 0, -1
    head = int64(data[at])
    at += 1
    size, kind = head >> 4, head & 15
    if size == 15:
        raw, at = varint(data, at, end)
        if at < 0 or raw > uint64(end - at):
            return 0, 0, -1
        size = int64(raw)
    return (size, kind, at) if size <= end - at else (0, 0, -1)


@njit(nogil=True, cache=True)
def _skip_plain(data, at, end, kind):
    """The position behind a value without parts, or a negative one."""
    if kind == BYTE:
        at += 1
    elif kind in (I16, I32, I64):
        _, at = varint(data, at, end)
    elif kind == DOUBLE:
        at += 8
    elif kind == BINARY:
        size, at = varint(data, at, end)
        if at < 0 or size > uint64(end - at):
            return -1
        at += int64(size)
    else:  # maps, which parquet does not have, and kinds that nobody has
        return -1
    return at if at <= end else -1


@njit(nogil=True, cache=True)
def skip(data, at, end, kind):
    """The position behind a struct field's value of any kind, or `DAMAGED`."""
    if kind in (TRUE, FALSE):  # the kind was the value
        return at
    if kind != STRUCT and kind != LIST and kind != SET:
        at = _skip_plain(data, at, end, kind)
        return at if at >= 0 else DAMAGED
    left = np.empty(DEEPEST, np.int64)  # items still to come of each list that is open; -1 for a struct
    kinds = np.empty(DEEPEST, np.int64)
    depth = 0
    while True:
        if kind in (STRUCT, LIST, SET):
            if depth == DEEPEST:
                return DAMAGED
            left[depth], kinds[depth] = -1, STRUCT
            if kind != STRUCT:
                left[depth], kinds[depth], at = list_header(data, at, end)
            depth += 1
        elif kind in (TRUE, FALSE):
            at += 1 if left[depth - 1] >= 0 else 0  # in a list it takes a byte
        else:
            at = _skip_plain(data, at, end, kind)
        if at < 0 or at > end:
            return DAMAGED
        kind = 0
        while kind == 0:  # the next value of the innermost one that has more
            if depth == 0:
                return at
            if left[depth - 1] > 0:
                left[depth - 1] -= 1
                kind = kinds[depth - 1]
                if kind == 0:
                    return DAMAGED
            elif left[depth - 1] == 0:
                depth -= 1
            else:
                _, kind, at = field_header(data, at, end, int64(0))
                if at < 0:
                    return DAMAGED
                depth -= kind == 0
