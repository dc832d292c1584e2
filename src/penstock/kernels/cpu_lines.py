"""Records in delimited text: safe places to cut a file, and records with the wrong number of fields."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_intrinsics import KERNEL
from penstock.kernels.kernel_cache import njit

NEWLINE, RETURN = 10, 13


@njit(**KERNEL)
def record_cuts(buffer: np.ndarray, origin: int, quote: int, step: int, state: np.ndarray) -> np.ndarray:
    """Offsets after a record's end, at least `step` bytes apart; newlines inside quotes do not end a record.

    `buffer` is the part of a file from `origin` on; `state` (inside quotes, last cut) goes from one part to the next.
    """
    cuts = []
    inside, last = state[0] != 0, state[1]
    for i in range(buffer.shape[0]):
        byte = buffer[i]
        if byte == quote:
            inside = not inside
        elif byte == NEWLINE and not inside and origin + i + 1 - last >= step:
            last = origin + i + 1
            cuts.append(last)
    state[0], state[1] = inside, last
    out = np.empty(len(cuts), np.int64)
    for i in range(len(cuts)):
        out[i] = cuts[i]
    return out


@njit(**KERNEL)
def without_returns(buffer: np.ndarray, quote: int) -> np.ndarray:
    """A copy whose lines end in a newline alone; `quote` is -1 where the format has none, and quoted text stays."""
    out = np.empty(buffer.shape[0], np.uint8)
    size, inside, last = 0, False, buffer.shape[0] - 1
    for i in range(buffer.shape[0]):
        byte = buffer[i]
        if byte == quote:
            inside = not inside
        elif byte == RETURN and not inside and (i == last or buffer[i + 1] == NEWLINE):
            continue
        out[size] = byte
        size += 1
    return out[:size]


@njit(**KERNEL)
def ragged_records(
    buffer: np.ndarray, separator: int, quote: int, expected: int, most: int
) -> tuple[int, np.ndarray, int]:
    """`(records, bad, number of bad)`: records counted, and for up to `most` bad ones (record, offset, end, fields).

    `quote` is -1 where the format has none. Blank lines are records of one empty field, so they are bad
    unless one field is expected; a final newline ends the last record and starts none.
    """
    bad = np.empty((most, 4), np.int64)
    num_bad = 0
    record = 0
    fields = 1
    inside = False
    start = 0
    size = buffer.shape[0]
    for i in range(size + 1):
        at_end = i == size
        if at_end and start == size:
            break
        byte = NEWLINE if at_end else buffer[i]
        if byte == quote:
            inside = not inside
        elif byte == separator and not inside:
            fields += 1
        elif byte == NEWLINE and (not inside or at_end):
            if fields != expected or inside:
                if num_bad < most:
                    bad[num_bad, 0], bad[num_bad, 1], bad[num_bad, 2], bad[num_bad, 3] = record, start, i, fields
                num_bad += 1
            record += 1
            fields = 1
            start = i + 1
    return record, bad[: min(num_bad, most)], num_bad


@njit(**KERNEL)
def count_byte(buffer: np.ndarray, wanted: int) -> int:
    """How often a byte occurs: a plain loop, which becomes vector instructions."""
    byte = np.uint8(wanted)
    total = 0
    for i in range(buffer.shape[0]):
        total += buffer[i] == byte
    return total


@njit(**KERNEL)
def count_in_blocks(buffer: np.ndarray, wanted: int, block: int, counts: np.ndarray) -> None:
    """How often a byte occurs in each `block` bytes of a buffer."""
    for number in range(counts.shape[0]):
        counts[number] = count_byte(buffer[number * block : (number + 1) * block], wanted)


@njit(**KERNEL)
def is_ascii(buffer: np.ndarray) -> Any:
    """Whether no byte has its top bit set."""
    seen = np.uint8(0)
    for i in range(buffer.shape[0]):
        seen |= buffer[i]
    return seen < 128
