"""A range of a text file in one call: read a piece, parse its whole lines while the cache holds them, and so on.

A call that returns takes the interpreter's lock to do so, and with many threads most of the time would go there. This
one returns before the end only where Python has to help, and goes on where it was when it is called again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int32, int64, uint64

from penstock.kernels import cpu_text_fields as fields
from penstock.kernels import cpu_text_tiles as tiles
from penstock.kernels.cpu_intrinsics import KERNEL, load8, store8
from penstock.kernels.cpu_parquet_column import pread
from penstock.kernels.kernel_cache import njit

# Why a call returns: at the end, for an error, for more room, or for floats that Python rounds.
DONE, SHORTER, UNREADABLE, QUOTED, MORE_BUFFER, MORE_ROWS, HARD_FLOATS = range(7)
_READ = -1
# Where it is: in the file, in the buffer (bytes there, and those of whole lines that are to be parsed), lines seen.
FILE_POSITION, FILE_END, FILLED, PENDING, CONSUMED, NUM_LINES, FIRST_ERROR, NUM_PROGRESS = range(8)
ROOM = 64  # bytes behind the text that are read or written


@njit(**KERNEL)
def _read_piece(handle: int, base: Any, buffer_size: int, piece: int, progress: np.ndarray) -> int:
    """Read on behind what is left of the last piece; `progress[PENDING]` is then where its last line ends."""
    before = progress[FILLED]
    room = buffer_size - 2 * ROOM - before
    if room < max(1, piece // 2):  # a line of that length; most are short, and leave room for nearly a piece
        return MORE_BUFFER
    wanted = min(int64(piece), int64(room), progress[FILE_END] - progress[FILE_POSITION])
    got = pread(int32(handle), base + uint64(before), uint64(wanted), int64(progress[FILE_POSITION]))
    if got <= 0:
        return SHORTER if got == 0 else UNREADABLE
    progress[FILE_POSITION] += got
    end = before + got
    if progress[FILE_POSITION] == progress[FILE_END]:
        if load8(base + uint64(end - 1)) != fields.NEWLINE:
            store8(base + uint64(end), fields.NEWLINE)
            end += 1
        progress[PENDING] = end
    else:
        last = end
        while last > before and load8(base + uint64(last - 1)) != fields.NEWLINE:
            last -= 1
        progress[PENDING] = last if last > before else 0
    progress[FILLED] = end
    return _READ


@njit(**KERNEL)
def _next_piece(base: Any, state: np.ndarray, errors: np.ndarray, progress: np.ndarray) -> None:
    """Done with the lines of a piece: what is left moves to the front."""
    whole = progress[PENDING]
    for number in range(progress[FIRST_ERROR], min(state[tiles.NUM_ERRORS], errors.shape[0])):
        errors[number, 1] += progress[CONSUMED]
    for position in range(progress[FILLED] - whole):
        store8(base + uint64(position), load8(base + uint64(whole + position)))
    progress[FILLED] -= whole
    progress[CONSUMED] += whole
    progress[PENDING] = 0


@njit(**KERNEL)
def parse_file(
    handle: int, address: int, buffer_size: int, piece: int, quote: int, capacity: int, delimiter: int, num_fields: int,
    mode: int, plan: np.ndarray, state: np.ndarray, null_counts: np.ndarray, errors: np.ndarray, hard: np.ndarray,
    progress: np.ndarray,
) -> int:  # fmt: skip
    """Parse bytes `[progress[FILE_POSITION], progress[FILE_END])` of an open file; why it returned.

    `quote` is a byte that must not occur, -1 where any may; `capacity` is how many rows the plan's columns hold.
    """
    base = uint64(address)
    while True:
        if progress[PENDING] == 0:
            if progress[FILE_POSITION] == progress[FILE_END]:
                return DONE
            status = _read_piece(handle, base, buffer_size, piece, progress)
            if status != _READ:
                return status
            if progress[PENDING] == 0:  # a line longer than a piece
                continue
            if quote >= 0 and tiles.count_bytes(address, progress[PENDING], quote) > 0:
                return QUOTED
            progress[NUM_LINES] += tiles.count_bytes(address, progress[PENDING], 10)
            state[tiles.POSITION], state[tiles.ORIGIN] = 0, progress[CONSUMED]
            progress[FIRST_ERROR] = state[tiles.NUM_ERRORS]
        if progress[NUM_LINES] > capacity:
            return MORE_ROWS
        tiles.parse_tiles(
            address, progress[PENDING], delimiter, num_fields, mode, plan, state, null_counts, errors, hard
        )
        if state[tiles.NUM_HARD] > 0:
            return HARD_FLOATS
        if state[tiles.POSITION] >= progress[PENDING]:
            _next_piece(base, state, errors, progress)
