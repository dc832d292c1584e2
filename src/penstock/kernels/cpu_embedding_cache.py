"""Rows of a store by number: what a cache in front of it reads, inserts and writes back.

A batch's rows come sorted by table. Threads draw *pieces* `(table, first, last)` of them from a counter; finding or
inserting ids (`initialise_row`) is one piece a table, since a table's index has one writer.

Rows are found by the table's keyed index (`cpu_embedding_index.hash_of`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np

from penstock.kernels.cpu_embedding_batch import AHEAD
from penstock.kernels.cpu_embedding_index import (
    ABSENT,
    DIM,
    NUM_FIELDS,
    NUM_STATES,
    ROWS,
    SCALAR_OFFSET,
    STATE_OFFSET,
    STORAGE,
    first_place,
    initialise_row,
    resolve,
    row_address,
    side_address,
)
from penstock.kernels.cpu_half import FLOAT32
from penstock.kernels.cpu_intrinsics import LOG2_4, ROW_KERNEL, prefetch
from penstock.kernels.cpu_native_threads import compiled_job, pointer_to
from penstock.kernels.cpu_vector import copy_row, fetch_add, load_u16, load_u32, store_u16, store_u32
from penstock.kernels.kernel_cache import njit

TABLE, FIRST, LAST, STATUS = range(4)
WEIGHTS, STATE, _SECOND_STATE, SCALAR = range(4)  # addresses of columns; 0 for one that is not there

# What `move_pieces` takes, for threads that are handed an address: where the arrays begin, and how long they are.
MOVE = np.dtype(
    [(name, np.uint64) for name in ("counter", "pieces", "headers", "rows", "columns")]
    + [(name, np.int64) for name in ("num_pieces", "num_tables", "num_rows", "out")]
)


@njit(**ROW_KERNEL)
def resolve_pieces(
    counter: np.ndarray, pieces: np.ndarray, headers: np.ndarray, settings: np.ndarray, signs: np.ndarray,
    rows: np.ndarray, fresh: np.ndarray, clock: Any, insert: bool, scratch: np.ndarray,
) -> None:  # fmt: skip
    """Find the signs of each piece, or insert them; one that is not there and shall not be has ABSENT.

    STATUS is 0, or why its table must grow first; FIRST has moved so far.
    """
    while True:
        task = fetch_add(np.uint64(counter.ctypes.data), 1)
        if task >= pieces.shape[0]:
            return
        piece = pieces[task]
        table, last = piece[TABLE], piece[LAST]
        header = headers[table]
        piece[STATUS] = 0
        for i in range(piece[FIRST], min(last, piece[FIRST] + AHEAD)):
            prefetch(first_place(header, signs[i]))
        while piece[FIRST] < last:
            i, known = piece[FIRST], header[ROWS]
            if i + AHEAD < last:
                prefetch(first_place(header, signs[i + AHEAD]))
            row = resolve(header, settings[table], signs[i], clock, insert, np.uint64(scratch.ctypes.data))
            if row < ABSENT:
                piece[STATUS] = row
                break
            rows[i], fresh[i] = row, header[ROWS] != known
            piece[FIRST] += 1


@njit(**ROW_KERNEL)
def initialise_pieces(
    counter: np.ndarray, pieces: np.ndarray, headers: np.ndarray, settings: np.ndarray, signs: np.ndarray,
    rows: np.ndarray, fresh: np.ndarray, scratch: np.ndarray,
) -> None:  # fmt: skip
    """Give the fresh rows of each piece their first values."""
    while True:
        task = fetch_add(np.uint64(counter.ctypes.data), 1)
        if task >= pieces.shape[0]:
            return
        table = pieces[task, TABLE]
        for i in range(pieces[task, FIRST], pieces[task, LAST]):
            if fresh[i]:
                initialise_row(
                    headers[table], settings[table], signs[i], np.uint64(rows[i]), np.uint64(scratch.ctypes.data)
                )


@njit(**ROW_KERNEL)
def _move_weights(inside: Any, outside: Any, dim: Any, wide: bool, out: bool) -> None:
    if wide:
        copy_row(outside if out else inside, inside if out else outside, dim)
        return
    for j in range(dim):
        at = np.uint64(j) << np.uint64(1)
        if out:
            store_u16(outside + at, load_u16(inside + at))
        else:
            store_u16(inside + at, load_u16(outside + at))


@njit(**ROW_KERNEL)
def _move_row(header: np.ndarray, row: Any, i: Any, columns: np.ndarray, out: bool) -> None:
    """Copy a row and its state out to place `i` of the columns, or back in."""
    dim, wide = np.int64(header[DIM]), header[STORAGE] == FLOAT32
    address, width = row_address(header, row), np.uint64(dim) << LOG2_4
    place = np.uint64(i) * (width if wide else width >> np.uint64(1))
    _move_weights(address, columns[WEIGHTS] + place, dim, wide, out)
    for state in range(np.int64(header[NUM_STATES])):
        inside = address + header[STATE_OFFSET] + np.uint64(state) * width
        outside = columns[STATE + state] + np.uint64(i) * width
        copy_row(outside if out else inside, inside if out else outside, dim)
    if header[SCALAR_OFFSET] > 0:
        inside, outside = (
            side_address(header, row, header[SCALAR_OFFSET]),
            columns[SCALAR] + (np.uint64(i) << LOG2_4),
        )
        if out:
            store_u32(outside, load_u32(inside))
        else:
            store_u32(inside, load_u32(outside))


@njit(**ROW_KERNEL)
def _ask_for(header: np.ndarray, row: Any) -> None:
    address = row_address(header, row)
    prefetch(address)
    if header[NUM_STATES] > 0:
        prefetch(address + header[STATE_OFFSET])
    if header[SCALAR_OFFSET] > 0:
        prefetch(side_address(header, row, header[SCALAR_OFFSET]))


@njit(**ROW_KERNEL)
def move_pieces(
    counter: np.ndarray, pieces: np.ndarray, headers: np.ndarray, rows: np.ndarray, columns: np.ndarray, out: bool
) -> None:
    """Copy the rows of each piece out to the columns, or back in; no row twice."""
    while True:
        task = fetch_add(np.uint64(counter.ctypes.data), 1)
        if task >= pieces.shape[0]:
            return
        first, last = pieces[task, FIRST], pieces[task, LAST]
        header = headers[pieces[task, TABLE]]
        for i in range(first, min(last, first + AHEAD)):
            _ask_for(header, np.uint64(rows[i]))
        for i in range(first, last):
            if i + AHEAD < last:
                _ask_for(header, np.uint64(rows[i + AHEAD]))
            _move_row(header, np.uint64(rows[i]), i, columns, out)


def _move_described(address: Any) -> None:
    move = numba.carray(pointer_to(address), 1, MOVE)[0]
    move_pieces(
        numba.carray(pointer_to(move.counter), 1, np.int64),
        numba.carray(pointer_to(move.pieces), (move.num_pieces, STATUS + 1), np.int64),
        numba.carray(pointer_to(move.headers), (move.num_tables, NUM_FIELDS), np.uint64),
        numba.carray(pointer_to(move.rows), move.num_rows, np.int64),
        numba.carray(pointer_to(move.columns), SCALAR + 1, np.uint64),
        move.out != 0,
    )


@cache
def move_job() -> Any:
    """`move_pieces` as a job of native threads, of the address of a `MOVE`; compiled when first asked for."""
    return compiled_job(_move_described)


@njit(**ROW_KERNEL)
def initial_rows(header: np.ndarray, settings: np.ndarray, signs: np.ndarray, scratch: np.ndarray) -> None:
    """Rows as they are before they are first seen, for a header whose rows 0, 1, … lie in memory of the caller's."""
    for i in range(signs.shape[0]):
        initialise_row(header, settings, signs[i], np.uint64(i), np.uint64(scratch.ctypes.data))
