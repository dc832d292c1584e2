"""Delimited text in tiles of up to 64 lines: find the separators, check the lines, decode column by column.

A tile's text and separator positions stay in the first-level cache; each column writes its 64 values in one run and
its validity as one word, so there are no forty write streams and no bit twiddling per field.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels import cpu_text_fields as fields
from penstock.kernels.cpu_intrinsics import (
    KERNEL,
    load8,
    load64,
    match_mask,
    population_count,
    prefetch,
    store8,
    store16,
    store32,
    store64,
    trailing_zeros,
)
from penstock.kernels.kernel_cache import njit

U64, U32, I64 = np.uint64, np.uint32, np.int64
TILE = fields.TILE
MAX_LINE = 1 << 31  # positions are 32-bit, relative to the tile
UNROLLED = 16  # separators written per 64 bytes without a branch

SIGNED, UNSIGNED, HEX32, HEX64, FLOAT32, FLOAT64, STRING = range(7)
MODE_DROP, MODE_NULL = 0, 1

# Columns of the plan: one row per column to decode; where VALUES and BITMAP are 0 it is checked but not kept.
COLUMN, KIND, LOG2_SIZE, VALUES, BITMAP, MOST = range(6)
# Entries of the state that a call leaves for the next one.
POSITION, OUT_ROW, LINE, NUM_ERRORS, NUM_HARD, BAD_LINES, ORIGIN, NUM_STATE = range(8)


@njit(**KERNEL)
def count_bytes(address: int, length: int, wanted: int) -> Any:
    """How many of the `length` bytes are this one."""
    base, whole, count = U64(address), length // 64 * 64, U64(0)
    for position in range(0, whole, 64):
        count += population_count(match_mask(base + U64(position), np.uint8(wanted)))
    for position in range(whole, length):
        count += U64(load8(base + U64(position)) == U64(wanted))
    return I64(count)


@njit(**KERNEL)
def _scan(base: Any, length: Any, delimiter: Any, separators: np.ndarray, line_ends: np.ndarray, room: int) -> Any:
    """Positions of delimiters and newlines from `base` on, until 64 lines, the end or no room.

    `separators[0]` is -1, the end of the line before; `line_ends[i]` is line i's place in `separators`. Returns the
    number of lines and of separators. Text is read in blocks of 64, up to 63 bytes beyond `length`.
    """
    separators[0] = U32(0xFFFFFFFF)
    filled, num_lines, position = U64(1), U64(0), U64(0)
    while position < min(length, U64(MAX_LINE)) and num_lines < U64(TILE) and filled < U64(room):
        newlines = match_mask(base + position, np.uint8(10))
        both = newlines | match_mask(base + position, np.uint8(delimiter))
        if length - position < U64(64):
            inside = (U64(1) << (length - position)) - U64(1)
            newlines &= inside
            both &= inside
        line_ends[num_lines] = filled + population_count(both & ((newlines & (U64(0) - newlines)) - U64(1)))
        num_lines += U64(newlines != U64(0))
        newlines &= newlines - U64(1)
        while newlines != U64(0):
            line_ends[num_lines] = filled + population_count(both & ((newlines & (U64(0) - newlines)) - U64(1)))
            num_lines += U64(1)
            newlines &= newlines - U64(1)
        count, place = population_count(both), filled
        for _ in range(UNROLLED):
            separators[place] = U32(position + trailing_zeros(both))
            both &= both - U64(1)
            place += U64(1)
        while both != U64(0):
            separators[place] = U32(position + trailing_zeros(both))
            both &= both - U64(1)
            place += U64(1)
        filled += count
        position += U64(64)
    return I64(num_lines), I64(filled)


@njit(**KERNEL)
def _note_error(errors: np.ndarray, state: np.ndarray, line: int, offset: int, column: int, code: int) -> None:
    if state[NUM_ERRORS] < errors.shape[0]:
        entry = errors[state[NUM_ERRORS]]
        entry[0], entry[1], entry[2], entry[3] = line, offset, column, code
        state[NUM_ERRORS] += 1


@njit(**KERNEL)
def _is_return(base: Any, newline: Any) -> Any:
    """Whether the newline at this place has a carriage return before it."""
    return load8(base + U64(newline) - U64(1)) == fields.CARRIAGE_RETURN


@njit(**KERNEL)
def own_strings(views: np.ndarray, text: np.ndarray, out: np.ndarray) -> Any:
    """Copy what long string views point at end to end into `out`, and point them there; the number of bytes."""
    at, twelve, low = U64(0), U64(12), U64(0xFFFFFFFF)
    for row in range(views.shape[0]):
        length = views[row, 0] & low
        if length > twelve:
            start = views[row, 1] >> U64(32)
            if at + length <= U64(out.shape[0]):
                out[at : at + length] = text[start : start + length]
                views[row, 1] = (views[row, 1] & low) | (at << U64(32))
            at += length
    return I64(at)


@njit(**KERNEL)
def _select_lines(
    base: Any, separators: np.ndarray, line_ends: np.ndarray, num_lines: int, filled: int, num_fields: int, mode: int,
    errors: np.ndarray, state: np.ndarray, first: np.ndarray, lines: np.ndarray,
) -> Any:  # fmt: skip
    """Check every line's number of fields; list the rows to decode in `first` and `lines`.

    Returns how many they are and, as a bit mask, which of them are of the wrong length.
    """
    before: Any = 0
    num_rows, spare, ragged = 0, filled, U64(0)
    for line in range(num_lines):
        end: Any = I64(line_ends[line])
        count, origin = end - before, before
        before = end
        first[num_rows], lines[num_rows] = origin + 1, state[LINE] + line
        if count != num_fields:
            state[BAD_LINES] += 1
            offset_in_tile = U32(separators[origin] + U32(1))
            offset = state[POSITION] + I64(offset_in_tile)
            code = fields.TOO_FEW_FIELDS if count < num_fields else fields.TOO_MANY_FIELDS
            _note_error(errors, state, state[LINE] + line, offset, min(count, num_fields), code)
            if mode != MODE_NULL:
                continue
            ragged |= U64(1) << U64(num_rows)
            if count < num_fields:  # a copy whose missing fields have length -1: null
                first[num_rows] = spare + 1
                for column in range(num_fields + 1):
                    place = origin + column if origin + column < end else end
                    separators[spare + column] = separators[place]
                    newline = separators[place]
                    if place == end and newline > offset_in_tile and _is_return(base, newline):
                        separators[spare + column] = newline - U32(1)
                spare += num_fields + 1
        num_rows += 1
    return num_rows, ragged


@njit(forceinline=True, **KERNEL)
def _decode(
    base: Any, separators: np.ndarray, first: np.ndarray, num_rows: int, num_fields: int, column: int, kind: int,
    most: Any, values: np.ndarray, words: np.ndarray, lengths: np.ndarray,
) -> Any:  # fmt: skip
    """The fast loop of one column; `(null rows, flagged rows)`."""
    is_last = column == num_fields - 1
    if kind == HEX64:
        return fields.decode_hex64(base, separators, first, num_rows, column, is_last, values)
    if kind in (FLOAT32, FLOAT64):
        return fields.decode_floats(base, separators, first, num_rows, column, is_last, values, kind == FLOAT32)
    fields.gather_fields(base, separators, first, num_rows, column, is_last, words, lengths)
    if kind == HEX32:
        return fields.decode_hex(words, lengths, values)
    return fields.decode_integers(words, lengths, values, kind == SIGNED, most)


@njit(**KERNEL)
def _decode_slowly(start: Any, length: Any, kind: int, most: Any) -> Any:
    """One flagged field; `(value, status)`."""
    if kind in (SIGNED, UNSIGNED):
        return fields.slow_integer(start, start + length, kind == SIGNED, most)
    if kind in (HEX32, HEX64):
        return fields.slow_hex(start, length, U64(8 if kind == HEX32 else 16))
    _, status = fields.parse_float(start, start + length)
    return U64(0), fields.BAD_FLOAT if status == fields.BAD_FLOAT else fields.HARD


@njit(forceinline=True, **KERNEL)
def _write(values: np.ndarray, num_rows: int, address: Any, log2_size: int) -> None:
    """The low 1, 2, 4 or 8 bytes of each value, one after the other."""
    if log2_size == 2:
        for row in range(num_rows):
            store32(address + (U64(row) << U64(2)), values[row])
    elif log2_size == 3:
        for row in range(num_rows):
            store64(address + (U64(row) << U64(3)), values[row])
    elif log2_size == 1:
        for row in range(num_rows):
            store16(address + (U64(row) << U64(1)), values[row])
    else:
        for row in range(num_rows):
            store8(address + U64(row), values[row])


@njit(**KERNEL)
def _write_views(
    base: Any, separators: np.ndarray, first: np.ndarray, num_rows: int, column: int, is_last: bool, address: Any,
    offset: Any,
) -> Any:  # fmt: skip
    """One Arrow string view a row (16 bytes): up to 12 bytes of text in the view itself, more where they stand.

    `offset` is the place of `base` in the whole text. Empty fields are null; returns them as a bit mask.
    """
    null, four_bytes = U64(0), U64(0xFFFFFFFF)
    for row in range(num_rows):
        start, length = fields.field_bounds(base, separators, U64(first[row] + column), is_last)
        head, rest = load64(start), load64(start + U64(4))  # 64 more bytes may be read behind every field
        if length <= U64(4):
            head &= (U64(1) << (U64(8) * length)) - U64(1)
            rest = U64(0)
        elif length < U64(12):
            rest &= (U64(1) << (U64(8) * (length - U64(4)))) - U64(1)
        elif length > U64(12):
            rest = (offset + (start - base)) << U64(32)
        head &= four_bytes
        store64(address, length | (head << U64(32)))
        store64(address + U64(8), rest)
        address += U64(16)
        null |= U64(length == U64(0)) << U64(row)
    return null


@njit(**KERNEL)
def _decode_tile(
    base: Any, separators: np.ndarray, first: np.ndarray, lines: np.ndarray, num_rows: int, num_fields: int,
    plan: np.ndarray, values: np.ndarray, words: np.ndarray, lengths: np.ndarray, valid: np.ndarray,
    errors: np.ndarray, hard: np.ndarray, state: np.ndarray,
) -> Any:  # fmt: skip
    """Decode every kept column of a tile into the output; the rows with a bad field, as a bit mask."""
    bad_rows = U64(0)
    all_rows = (U64(1) << U64(num_rows)) - U64(1) if num_rows < 64 else ~U64(0)
    for place in range(plan.shape[0]):
        column, kind, most = plan[place, COLUMN], plan[place, KIND], U64(plan[place, MOST])
        if kind == STRING:  # any text is a string: nothing to check, and nothing to do where it is not kept
            valid[place] = all_rows
            if plan[place, VALUES] != 0:
                views = U64(plan[place, VALUES]) + (U64(state[OUT_ROW]) << U64(4))
                offset = U64(state[ORIGIN] + state[POSITION])
                last = column == num_fields - 1
                null = _write_views(base, separators, first, num_rows, column, last, views, offset)
                valid[place] = ~null & all_rows
            continue
        null, flagged = _decode(
            base, separators, first, num_rows, num_fields, column, kind, most, values, words, lengths
        )
        flagged &= all_rows
        while flagged != U64(0):
            row = I64(trailing_zeros(flagged))
            bit = flagged & (U64(0) - flagged)
            flagged ^= bit
            start, length = fields.field_bounds(base, separators, U64(first[row] + column), column == num_fields - 1)
            if kind not in (HEX32, HEX64):
                start, length = fields.without_blanks(start, length)
                if length == U64(0):
                    values[row] = U64(0)
                    null |= bit
                    continue
            values[row], status = _decode_slowly(start, length, kind, most)
            offset = I64(start - base) + state[POSITION]
            if status == fields.HARD and plan[place, VALUES] != 0:
                entry = hard[state[NUM_HARD]]
                entry[0], entry[1], entry[2], entry[3] = place, state[OUT_ROW] + row, offset, I64(length)
                state[NUM_HARD] += 1
            elif status > fields.HARD:
                _note_error(errors, state, lines[row], offset, column, status)
                values[row] = U64(0)
                null |= bit
                bad_rows |= bit
        if plan[place, VALUES] != 0:  # else the column is only checked
            address = U64(plan[place, VALUES]) + (U64(state[OUT_ROW]) << U64(plan[place, LOG2_SIZE]))
            _write(values, num_rows, address, plan[place, LOG2_SIZE])
            for line in range(1 << plan[place, LOG2_SIZE]):  # where the next tile will write
                prefetch(address + (U64(TILE) << U64(plan[place, LOG2_SIZE])) + U64(64 * line))
        valid[place] = ~null & all_rows
    return bad_rows


@njit(**KERNEL)
def _commit(plan: np.ndarray, valid: np.ndarray, null_counts: np.ndarray, num_rows: int, state: np.ndarray) -> None:
    """Add a tile's validity words to the bitmaps, at any bit offset."""
    shift = U64(state[OUT_ROW] & 63)
    for place in range(plan.shape[0]):
        if plan[place, BITMAP] == 0:
            continue
        word = U64(plan[place, BITMAP]) + (U64(state[OUT_ROW] >> 6) << U64(3))
        store64(word, load64(word) | (valid[place] << shift))
        if shift != U64(0):
            store64(word + U64(8), load64(word + U64(8)) | (valid[place] >> (U64(64) - shift)))
        null_counts[place] += num_rows - I64(population_count(valid[place]))
    state[OUT_ROW] += num_rows


@njit(**KERNEL)
def _drop_rows(first: np.ndarray, lines: np.ndarray, num_rows: int, dropped: Any) -> int:
    kept = 0
    for row in range(num_rows):
        if (dropped >> U64(row)) & U64(1) == U64(0):
            first[kept], lines[kept] = first[row], lines[row]
            kept += 1
    return kept


@njit(**KERNEL)
def _end_of_line(base: Any, length: Any) -> Any:
    """The position of the next newline, or `length`."""
    position = U64(0)
    while position < length and load8(base + position) != fields.NEWLINE:
        position += U64(1)
    return position


@njit(**KERNEL)
def parse_tiles(
    address: int, limit: int, delimiter: int, num_fields: int, mode: int, plan: np.ndarray, state: np.ndarray,
    null_counts: np.ndarray, errors: np.ndarray, hard: np.ndarray,
) -> None:  # fmt: skip
    """Parse whole lines in `[state[POSITION], limit)`; stops early where `hard` might overflow.

    The text ends with a newline at `limit - 1` and at least 64 more bytes may be read.
    """
    room = TILE * (num_fields + 1)
    separators, line_ends = np.empty(2 * room + 256, np.uint32), np.empty(TILE + 65, np.uint64)
    first, lines = np.empty(TILE + 1, np.int64), np.empty(TILE + 1, np.int64)
    values, words, lengths = np.zeros(TILE, np.uint64), np.zeros(TILE, np.uint64), np.zeros(TILE, np.uint64)
    valid = np.zeros(plan.shape[0], np.uint64)
    while state[POSITION] < limit and state[NUM_HARD] + TILE * plan.shape[0] <= hard.shape[0]:
        base, remaining = U64(address) + U64(state[POSITION]), U64(limit - state[POSITION])
        num_lines, filled = _scan(base, remaining, delimiter, separators, line_ends, room)
        if num_lines == 0:  # a line with far too many fields, or of 2 GiB: keep what was found of it
            separators[filled] = separators[filled - 1]
            line_ends[0], num_lines = filled, 1
            consumed = I64(_end_of_line(base, remaining)) + 1
            filled += 1
        else:
            num_lines = min(num_lines, TILE)
            consumed = I64(separators[line_ends[num_lines - 1]]) + 1
        num_rows, ragged = _select_lines(
            base, separators, line_ends, num_lines, filled, num_fields, mode, errors, state, first, lines
        )
        num_hard, bad = state[NUM_HARD], ~U64(0)
        while bad != U64(0):  # twice where rows are dropped: their neighbours move up
            state[NUM_HARD] = num_hard
            bad = _decode_tile(
                base, separators, first, lines, num_rows, num_fields, plan, values, words, lengths, valid, errors, hard,
                state,
            )  # fmt: skip
            state[BAD_LINES] += I64(population_count(bad & ~ragged))
            if mode == MODE_NULL:
                break
            num_rows = _drop_rows(first, lines, num_rows, bad)
        _commit(plan, valid, null_counts, num_rows, state)
        state[POSITION] += consumed
        state[LINE] += num_lines
