"""Parquet footers: every number that readers act on, checked before a reader is asked. All release the GIL.

Readers trust footers: one that lacks a column's description ends the process inside pyarrow, one that promises 2⁴⁰ rows
makes others ask for the memory. `scan_footer` walks the Thrift bytes once, holds rows, sizes and places against one
another and against the file, and notes where each column chunk lies.
"""

from __future__ import annotations

import numpy as np
from numba import int64, uint64

from penstock.kernels.cpu_thrift import BINARY, I32, I64, LIST, STRUCT, field_header, list_header, signed, skip, varint
from penstock.kernels.kernel_cache import njit

# Columns of the table of column chunks, one row per leaf of the schema in each row group.
GROUP, LEAF, TYPE, ENCODINGS, CODEC, NUM_VALUES, FULL_SIZE, SIZE, DATA_PAGE, DICTIONARY_PAGE, ROWS = range(11)
FOOTER_FIELDS = 11
# What is wrong; `FOOTER_TEXTS` says it in words.
THRIFT, SCHEMA, COLUMNS, NOT_DESCRIBED, OTHER_TYPE = range(-10, -5)
OTHER_FILE, NEGATIVE, OUTSIDE, OTHER_ROWS, SUM_OF_ROWS = range(-5, 0)
FOOTER_TEXTS = {
    THRIFT: "its footer is no Thrift",
    SCHEMA: "the tree of its schema is broken",
    COLUMNS: "a row group does not have the schema's columns",
    NOT_DESCRIBED: "a column is not described",
    OTHER_TYPE: "a column is of another type than the schema says",
    OTHER_FILE: "a column lies in another file",
    NEGATIVE: "a number of rows, values or bytes is negative",
    OUTSIDE: "a column lies outside the file",
    OTHER_ROWS: "a column has another number of values than its row group has rows",
    SUM_OF_ROWS: "the rows of its row groups do not add up",
}
DEEPEST_SCHEMA = 64
_MOST_ROWS = 1 << 62


@njit(nogil=True, cache=True)
def _element(data, at, end, element):
    """One SchemaElement into `(type, repetition, number of children)`; the position behind it, or -1."""
    element[0], element[1], element[2] = -1, 0, 0
    number, has_name = int64(0), False
    while True:
        number, kind, at = field_header(data, at, end, number)
        if at < 0:
            return -1
        if kind == 0:
            return at if has_name else -1
        if kind == I32 and (number == 1 or number == 3 or number == 5):
            raw, at = varint(data, at, end)
            if at < 0:
                return -1
            element[0 if number == 1 else (1 if number == 3 else 2)] = signed(raw)
        else:
            has_name = has_name or (number == 4 and kind == BINARY)
            at = skip(data, at, end, kind)
            if at < 0:
                return -1


@njit(nogil=True, cache=True)
def _schema(data, at, end, leaves):
    """The list of SchemaElements: `(number of leaves, position)`, or a status. Leaves are rows (type, repeated)."""
    size, kind, at = list_header(data, at, end)
    if at < 0 or kind != STRUCT or size == 0 or size > leaves.shape[0]:
        return int64(SCHEMA), int64(0)
    left, repeated = np.zeros(DEEPEST_SCHEMA, np.int64), np.zeros(DEEPEST_SCHEMA, np.bool_)
    element = np.zeros(3, np.int64)
    depth, count = 0, 0
    for i in range(size):
        at = _element(data, at, end, element)
        if at < 0:
            return int64(THRIFT), int64(0)
        while depth > 0 and left[depth - 1] == 0:
            depth -= 1
        if (i > 0 and depth == 0) or element[2] < 0 or element[2] > size - i - 1:
            return int64(SCHEMA), int64(0)
        inside = i > 0 and (repeated[depth - 1] or element[1] == 2)
        if i > 0:
            left[depth - 1] -= 1
        if element[2] > 0 or i == 0:
            if depth == DEEPEST_SCHEMA:
                return int64(SCHEMA), int64(0)
            left[depth], repeated[depth] = element[2], inside
            depth += 1
        else:
            if element[0] < 0 or element[0] > 7:
                return int64(SCHEMA), int64(0)
            leaves[count, 0], leaves[count, 1] = element[0], int64(inside)
            count += 1
    for d in range(depth):
        if left[d] != 0:
            return int64(SCHEMA), int64(0)
    return int64(count), int64(at)


@njit(nogil=True, cache=True)
def _encodings(data, at, end):
    """A list of encodings as a bit set; `(bits, position)`, where the position may be -1."""
    size, kind, at = list_header(data, at, end)
    if at < 0 or kind != I32:
        return uint64(0), -1
    bits = uint64(0)
    for _ in range(size):
        raw, at = varint(data, at, end)
        if at < 0:
            return bits, -1
        unknown = raw & uint64(1) == uint64(1) or raw > uint64(124)  # negative, or larger than any there is
        bits |= uint64(1) << (uint64(62) if unknown else raw >> uint64(1))
    return bits, at


@njit(nogil=True, cache=True)
def _column_metadata(data, at, end, chunk):
    """A ColumnMetaData into a row of the table; the position behind it, or -1."""
    number, seen = int64(0), int64(0)
    while True:
        number, kind, at = field_header(data, at, end, number)
        if at < 0:
            return -1
        if kind == 0:  # all that the format requires, 1 to 7 and 9, must have been there
            return at if seen & 0b1011111110 == 0b1011111110 else -1
        place = -1
        if kind == I32 and (number == 1 or number == 4):
            place = TYPE if number == 1 else CODEC
        elif kind == I64 and (number == 5 or number == 6 or number == 7):
            place = NUM_VALUES + number - 5
        elif kind == I64 and (number == 9 or number == 11):
            place = DATA_PAGE if number == 9 else DICTIONARY_PAGE
        if place >= 0:
            raw, at = varint(data, at, end)
            chunk[place] = signed(raw)
        elif number == 2 and kind == LIST:
            bits, at = _encodings(data, at, end)
            chunk[ENCODINGS] = int64(bits)
        elif number == 3 and kind == LIST:
            at = skip(data, at, end, kind)
        else:  # not needed, or of another kind than the format says
            at = skip(data, at, end, kind)
            if at < 0:
                return -1
            continue
        if at < 0:
            return -1
        seen |= 1 << number


@njit(nogil=True, cache=True)
def _column_chunk(data, at, end, chunk):
    """A ColumnChunk into a row of the table; the position behind it, or a status."""
    number, described = int64(0), False
    while True:
        number, kind, at = field_header(data, at, end, number)
        if at < 0:
            return THRIFT
        if kind == 0:
            return at if described else NOT_DESCRIBED
        if number == 3 and kind == STRUCT:
            at = _column_metadata(data, at, end, chunk)
            if at < 0:
                return NOT_DESCRIBED
            described = True
        elif number == 1 and kind == BINARY:
            return OTHER_FILE
        elif number == 8 or number == 9:  # encrypted
            return NOT_DESCRIBED
        else:
            at = skip(data, at, end, kind)
            if at < 0:
                return THRIFT


@njit(nogil=True, cache=True)
def _row_group(data, at, end, group, leaves, table, numbers):
    """A RowGroup: its chunks into the table from row `group * leaves` on; the position behind it, or a status."""
    number, has_columns, spare = int64(0), False, np.zeros(FOOTER_FIELDS, np.int64)
    numbers[0] = numbers[1] = -1
    while True:
        number, kind, at = field_header(data, at, end, number)
        if at < 0:
            return THRIFT
        if kind == 0:
            return at if has_columns else COLUMNS
        if number == 1 and kind == LIST:
            size, item, at = list_header(data, at, end)
            if at < 0 or (item != STRUCT and size > 0) or size != leaves.shape[0] or has_columns:
                return COLUMNS
            has_columns = True
            for leaf in range(size):
                row = group * leaves.shape[0] + leaf
                chunk = table[row] if row < table.shape[0] else spare
                chunk[:] = 0
                chunk[GROUP], chunk[LEAF] = group, leaf
                at = _column_chunk(data, at, end, chunk)
                if at < 0:
                    return at
        elif (number == 2 or number == 3) and kind == I64:
            raw, at = varint(data, at, end)
            if at < 0:
                return THRIFT
            numbers[number - 2] = signed(raw)
        else:
            at = skip(data, at, end, kind)
            if at < 0:
                return THRIFT


@njit(nogil=True, cache=True)
def _check_chunk(chunk, leaf, rows, size_of_data):
    """0, or what is wrong with one column chunk."""
    if chunk[TYPE] != leaf[0]:
        return OTHER_TYPE
    if chunk[NUM_VALUES] < 0 or chunk[SIZE] < 0 or chunk[FULL_SIZE] < 0:
        return NEGATIVE
    # A list has one value at least, were it a null; other columns one a row.
    if chunk[NUM_VALUES] < rows or (leaf[1] == 0 and chunk[NUM_VALUES] != rows):
        return OTHER_ROWS
    start = chunk[DATA_PAGE]
    if 0 < chunk[DICTIONARY_PAGE] < start:
        start = chunk[DICTIONARY_PAGE]
    outside = (
        start < 4 or chunk[DICTIONARY_PAGE] < 0 or chunk[SIZE] > size_of_data or start > size_of_data - chunk[SIZE]
    )
    if outside and rows > 0:
        return OUTSIDE
    if outside:  # of an empty row group, which some writers put nowhere: there is nothing to read
        chunk[SIZE] = 0
    chunk[ROWS] = rows
    return 0


@njit(nogil=True, cache=True)
def scan_footer(data, size_of_data, leaves, table, found):
    """Fill `table` (as far as it reaches) from the footer's bytes; 0 or what is wrong.

    `size_of_data` is where the footer begins in the file. `leaves` is room for the schema's leaves. `found` becomes
    (leaves, row groups, row group at fault, column at fault); -1 stands for none.
    """
    found[0] = found[1] = 0
    found[2] = found[3] = -1
    at, end, number, num_leaves = int64(0), data.shape[0], int64(0), int64(-1)
    num_groups, total, stated = int64(0), int64(0), int64(-1)
    numbers = np.empty(2, np.int64)
    while True:
        number, kind, at = field_header(data, at, end, number)
        if at < 0:
            return THRIFT
        if kind == 0:
            break
        if number == 2 and kind == LIST:
            num_leaves, at = _schema(data, at, end, leaves)
            if num_leaves < 0:
                return num_leaves
            found[0] = num_leaves
        elif number == 3 and kind == I64:
            raw, at = varint(data, at, end)
            stated = signed(raw)
        elif number == 4 and kind == LIST:
            size, item, at = list_header(data, at, end)
            if at < 0 or num_leaves < 0 or (item != STRUCT and size > 0) or num_groups > 0:
                return THRIFT
            for group in range(size):
                found[2] = group
                at = _row_group(data, at, end, group, leaves[:num_leaves], table, numbers)
                if at < 0:
                    return at
                if numbers[0] < 0 or numbers[1] < 0 or numbers[1] > _MOST_ROWS - total:
                    return NEGATIVE
                total += numbers[1]
                for leaf in range(num_leaves):
                    row = group * num_leaves + leaf
                    if row < table.shape[0]:
                        found[3] = leaf
                        status = _check_chunk(table[row], leaves[leaf], numbers[1], size_of_data)
                        if status < 0:
                            return status
                found[3] = -1
            found[1], found[2], num_groups = size, -1, size
        else:
            at = skip(data, at, end, kind)
        if at < 0:
            return THRIFT
    if num_leaves < 0:
        return SCHEMA
    return 0 if stated == total else SUM_OF_ROWS
