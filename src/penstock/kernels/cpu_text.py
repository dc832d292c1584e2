"""A reader for delimited click-log text: a byte range of whole lines in, typed columns with Arrow validity out.

Plain fields only: no quoting, no surrounding blanks; an empty field is null. Kinds are `"int8"` to `"int64"`, `"uint8"`
to `"uint64"`, `"hex32"` (up to 8 hexadecimal digits, as uint32), `"hex64"`, `"float32"`, `"float64"`, `"string"` and
`"skip"`. Strings come as Arrow string views with bytes of their own; the text must be valid UTF-8 and below 2 GiB.
Integers may have a sign and are checked for range; floats are correctly rounded; lines may end in `\\r\\n`, and the
last one need not end at all. Any number of threads may parse different ranges.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.core.choices import ON_ERROR
from penstock.core.errors import ParameterError, suggest
from penstock.core.params import Int, OneOf, check
from penstock.core.runtime.buffers import SpareBuffers
from penstock.kernels import cpu_text_range as text_range
from penstock.kernels import cpu_text_tiles as tiles
from penstock.kernels.cpu_intrinsics import address_of, kernel_input
from penstock.kernels.cpu_text_columns import (
    DTYPES,
    KINDS,
    LineError,
    ParsedColumn,
    ParsedText,
    allocate_columns,
    copied_strings,
)
from penstock.kernels.nearest_float32 import nearest_float32

PADDING = 64  # bytes that the kernel may read beyond the last line
HARD_FLOATS = 1 << 14  # floats put aside for Python before the kernel pauses
CODES = {"hex32": tiles.HEX32, "hex64": tiles.HEX64, "float32": tiles.FLOAT32, "float64": tiles.FLOAT64}
CODES["string"] = tiles.STRING
PIECE = 1 << 20  # bytes of a file that the cache is to hold
_pieces = SpareBuffers()


def parse(
    buffer: Any, kinds: Sequence[str], keep: Sequence[int] | None = None, delimiter: bytes = b"\t",
    on_error: str = "raise", max_errors: int = 1000,
) -> ParsedText:  # fmt: skip
    """Parse a buffer of whole lines (bytes, mmap slice, uint8 array) whose columns are of the given kinds.

    `keep` lists the columns to return (all but `"skip"` ones where None). Malformed lines never stop the parse:
    with `on_error="raise"` the caller raises if `errors` is not empty; `"skip"` drops their rows; `"null"` makes bad
    and missing fields null and ignores surplus ones. Fields of columns that are not kept are not looked at, except with
    `"skip"`: which rows remain must not depend on the columns asked for.

    >>> text = parse(b"1\\t68fd1e64\\n0\\t\\n", ["int8", "hex32"])
    >>> text.to_polars(["label", "C1"]).rows()
    [(1, 1761418852), (0, None)]
    >>> [(error.line, error.column, error.text) for error in parse(b"1\\tzz\\n", ["int8", "hex32"]).errors]
    [(0, 1, 'not hexadecimal')]
    """
    kept = _check_arguments(kinds, keep, delimiter, on_error, max_errors)
    text = _as_uint8(buffer)
    num_lines = count_lines(text)
    outputs = allocate_columns(num_lines, {column: np.dtype(DTYPES[kinds[column]]) for column in kept})
    for column in kept:
        if kinds[column] == "string":
            outputs[column].text = text
    run = _Run(kinds, outputs, delimiter, on_error, max_errors)
    split = _last_line_start(text, len(text) - PADDING)
    run.parse(text, split, 0)
    tail = text[split:]
    padded = np.zeros(len(tail) + 1 + PADDING, np.uint8)
    padded[: len(tail)] = tail
    ends = len(tail) == 0 or tail[-1] == 10
    padded[len(tail)] = 0 if ends else 10
    run.parse(padded, len(tail) + (not ends), split)
    return run.finish(num_lines)


def parse_handle(
    handle: int, start: int, end: int, kinds: Sequence[str], keep: Sequence[int] | None = None,
    delimiter: bytes = b"\t", on_error: str = "raise", max_errors: int = 1000, num_rows: int = 0,
    quote: int = -1, piece: int = PIECE,
) -> ParsedText | None:  # fmt: skip
    """Like `parse`, of bytes `[start, end)` of a file, most often in a single call of a kernel that reads and parses.

    Args:
        handle: the number of an open file.
        start, end: of whole lines; the last need not end.
        kinds, keep, delimiter, on_error, max_errors: of `parse`; there is no text among `kinds`.
        num_rows: how many rows there will be; where there are more, room is made for them.
        quote: a byte that must not occur; -1 where any may.
        piece: bytes read at once.

    Returns:
        What was parsed; None where the quote was found.

    Raises:
        EOFError: the file has become shorter.
        OSError: it cannot be read.
    """
    kept = _check_arguments(kinds, keep, delimiter, on_error, max_errors)
    assert "string" not in kinds
    dtypes = {column: np.dtype(DTYPES[kinds[column]]) for column in kept}
    run = _Run(kinds, allocate_columns(num_rows, dtypes), delimiter, on_error, max_errors)
    progress = np.zeros(text_range.NUM_PROGRESS, np.int64)
    progress[text_range.FILE_POSITION], progress[text_range.FILE_END] = start, end
    buffer = _pieces.acquire(piece + 2 * text_range.ROOM)
    while (why := run.parse_file(handle, buffer, piece, quote, num_rows, progress)) != text_range.DONE:
        if why == text_range.MORE_ROWS:
            num_rows = max(int(progress[text_range.NUM_LINES]), num_rows + num_rows // 2)
            run.move_to(allocate_columns(num_rows, dtypes))
        elif why == text_range.MORE_BUFFER:  # a line longer than a piece
            larger = np.empty(2 * len(buffer) + piece, np.uint8)
            larger[: progress[text_range.FILLED]] = buffer[: progress[text_range.FILLED]]
            buffer = larger
        elif why == text_range.HARD_FLOATS:
            run.round_hard_floats(buffer)
        elif why == text_range.QUOTED:
            return None
        elif why == text_range.SHORTER:
            raise EOFError("the file ends early")
        else:
            os.pread(handle, 1, int(progress[text_range.FILE_POSITION]))  # says what is wrong
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    return run.finish(int(progress[text_range.NUM_LINES]))


def count_lines(buffer: Any) -> int:
    """The number of lines; a last one without a newline counts.

    >>> count_lines(b"a\\nb"), count_lines(b"a\\nb\\n"), count_lines(b"")
    (2, 2, 0)
    """
    text = _as_uint8(buffer)
    return int(tiles.count_bytes(address_of(text), len(text), 10)) + bool(len(text) and text[-1] != 10)


def next_line_start(buffer: Any, position: int) -> int:
    """Where the first line that starts at or after `position` starts; the buffer's length where none does.

    >>> [next_line_start(b"ab\\ncd\\n", position) for position in (0, 1, 3, 4)]
    [0, 3, 3, 6]
    """
    if position <= 0:
        return 0
    text = _as_uint8(buffer)
    for start in range(position - 1, len(text), 1 << 16):
        found = text[start : start + (1 << 16)].tobytes().find(b"\n")
        if found >= 0:
            return start + found + 1
    return len(text)


class _Run:
    """One parse: the plan and the state that its kernel calls share."""

    def __init__(
        self, kinds: Sequence[str], outputs: dict[int, ParsedColumn], delimiter: bytes, on_error: str, max_errors: int
    ) -> None:
        self.kinds, self.delimiter = kinds, delimiter[0]
        self.mode = tiles.MODE_NULL if on_error == "null" else tiles.MODE_DROP
        wanted = set(outputs) if on_error != "skip" else {c for c, kind in enumerate(kinds) if kind != "skip"}
        self.decoded = sorted(wanted)
        self._set_outputs(outputs)
        rows = self.decoded
        self.state, self.null_counts = np.zeros(tiles.NUM_STATE, np.int64), np.zeros(len(rows), np.int64)
        self.errors = np.zeros((max_errors, 4), np.int64)
        has_floats = any(kinds[column].startswith("float") for column in outputs)
        # Room for one tile at least; without floats nothing is ever put aside.
        room = tiles.TILE * len(rows)
        self.hard = np.zeros((room + HARD_FLOATS * has_floats, 4), np.int64)

    def _set_outputs(self, outputs: dict[int, ParsedColumn]) -> None:
        self.outputs = outputs
        block = next((address_of(own.block) for own in outputs.values()), 0)
        rows = [_plan_row(column, self.kinds[column], outputs.get(column), block) for column in self.decoded]
        self.plan = np.array(rows, np.int64).reshape(len(rows), 6)

    def move_to(self, outputs: dict[int, ParsedColumn]) -> None:
        """Go on in larger columns."""
        rows = int(self.state[tiles.OUT_ROW])
        for index, column in self.outputs.items():
            outputs[index].values[:rows] = column.values[:rows]
            outputs[index].bitmap[: -(-rows // 8)] = column.bitmap[: -(-rows // 8)]
        self._set_outputs(outputs)

    def parse(self, text: np.ndarray, limit: int, origin: int) -> None:
        """Parse `text[:limit]`, which starts at `origin` of the range."""
        self.state[tiles.POSITION], self.state[tiles.ORIGIN] = 0, origin
        num_errors = self.state[tiles.NUM_ERRORS]
        while self.state[tiles.POSITION] < limit:
            tiles.parse_tiles(
                address_of(text), limit, self.delimiter, len(self.kinds), self.mode, self.plan, self.state,
                self.null_counts, self.errors, self.hard,
            )  # fmt: skip
            self.round_hard_floats(text)
        self.errors[num_errors : self.state[tiles.NUM_ERRORS], 1] += origin

    def parse_file(
        self, handle: int, buffer: np.ndarray, piece: int, quote: int, capacity: int, progress: np.ndarray
    ) -> int:
        """Go on parsing a range of a file; why it stopped (see `cpu_text_range`)."""
        why = text_range.parse_file(
            handle, address_of(buffer), len(buffer), piece, quote, capacity, self.delimiter, len(self.kinds), self.mode,
            self.plan, self.state, self.null_counts, self.errors, self.hard, progress,
        )  # fmt: skip
        return int(why)

    def finish(self, num_lines: int) -> ParsedText:
        num_rows = int(self.state[tiles.OUT_ROW])
        null_counts = dict(zip(self.decoded, self.null_counts.tolist(), strict=True))
        for index, column in self.outputs.items():
            column.num_rows = num_rows
            column.null_count = null_counts[index]
            if column.text is not None:
                column.text = copied_strings(column.values, column.text)
        errors = sorted(LineError(*entry) for entry in self.errors[: self.state[tiles.NUM_ERRORS]].tolist())
        return ParsedText(self.outputs, num_rows, num_lines, int(self.state[tiles.BAD_LINES]), errors)

    def round_hard_floats(self, text: np.ndarray) -> None:
        """Floats whose last bit the kernel leaves to Python."""
        for place, row, offset, length in self.hard[: self.state[tiles.NUM_HARD]].tolist():
            values = self.outputs[self.decoded[place]].values
            digits = text[offset : offset + length].tobytes().decode("ascii")
            values[row] = float(digits) if values.dtype == np.float64 else nearest_float32(digits)
        self.state[tiles.NUM_HARD] = 0


def _plan_row(column: int, kind: str, out: ParsedColumn | None, block: int) -> list[int]:
    code, log2_size, most = _about_kind(kind)
    addresses = (0, 0) if out is None else (block + out.start, block + out.bitmap_start)
    return [column, code, log2_size, *addresses, most]


@functools.cache
def _about_kind(kind: str) -> tuple[int, int, int]:
    """How a kind's values are told to the kernel: its code, the size of one, the greatest."""
    dtype = np.dtype(DTYPES[kind])
    code = CODES.get(kind, tiles.UNSIGNED if dtype.kind == "u" else tiles.SIGNED)
    most = int(np.iinfo(dtype).max) if dtype.kind in "iu" else 0
    return code, dtype.itemsize.bit_length() - 1, most - 2**64 if most >= 2**63 else most


def _as_uint8(buffer: Any) -> np.ndarray:
    if isinstance(buffer, np.ndarray):
        return kernel_input(buffer, np.uint8)
    return kernel_input(np.frombuffer(buffer, np.uint8)) if len(buffer) else np.empty(0, np.uint8)


def _last_line_start(text: np.ndarray, stop: int) -> int:
    """Where the last line that starts at or before `stop` starts; 0 where none does."""
    while stop > 0:
        start = max(0, stop - (1 << 16))
        found = text[start:stop].tobytes().rfind(b"\n")
        if found >= 0:
            return start + found + 1
        stop = start
    return 0


def _check_arguments(
    kinds: Sequence[str], keep: Sequence[int] | None, delimiter: bytes, on_error: str, max_errors: int
) -> list[int]:
    """Refuse what cannot be parsed; the columns to return, in file order."""
    check("on_error", on_error, OneOf(ON_ERROR))
    check("max_errors", max_errors, Int(min=1))
    if not kinds:
        raise ParameterError("kinds must name at least one column")
    for kind in kinds:
        if kind not in KINDS:
            raise ParameterError(f"unknown column kind {kind!r}{suggest(str(kind), KINDS, 'kinds')}")
    if len(delimiter) != 1 or delimiter in b"\r\n":
        raise ParameterError(f"delimiter must be one byte other than a line end, got {delimiter!r}")
    kept = [column for column, kind in enumerate(kinds) if kind != "skip"] if keep is None else sorted(set(keep))
    for column in kept:
        if not 0 <= column < len(kinds) or kinds[column] == "skip":
            raise ParameterError(f"keep names column {column}, which is not there or of kind 'skip'")
    return kept
