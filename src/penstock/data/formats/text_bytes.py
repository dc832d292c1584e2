"""Bytes of text files, and where to cut them: between records."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.errors import DataError
from penstock.core.plain_files import open_plain
from penstock.core.runtime.buffers import SpareBuffers
from penstock.core.runtime.threads import available_cores
from penstock.data.files import filesystem, is_remote
from penstock.engine.local import LocalEngine

_WINDOW = 1 << 22
_BLOCK = 1 << 16
_LONGEST_LINE = 1 << 28  # bytes; a file that has no lines must not be taken for a single one
PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"x\x01", b"x^", b"x\x9c", b"x\xda")  # what polars takes for a packed file
_texts = SpareBuffers()


def read_bytes(path: str, start: int, end: int, storage_options: dict[str, Any] | None = None) -> np.ndarray:
    """Bytes `[start, end)` of a file as uint8, in memory of their own.

    A mapped file is at the mercy of others: truncated while it is
    read (as `logrotate` does), it ends the process, and rewritten it changes strings that were read long ago.

    Raises:
        DataError: the file cannot be read, or has become shorter.
    """
    if start == end:
        return np.empty(0, np.uint8)
    if is_remote(path):
        found = np.frombuffer(filesystem(path, storage_options).cat_file(path, start=start, end=end), np.uint8)
    else:
        found, done = _texts.acquire(end - start), 0
        try:
            with open_plain(path) as file:
                file.seek(start)
                while done < len(found) and (got := file.readinto(memoryview(found)[done:])):  # type: ignore[arg-type]
                    done += got
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        found = found[:done]
    if len(found) != end - start:
        raise shorter(path)
    return found


def as_it_is(text: bytes) -> bytes:
    """Text for polars, which unpacks whatever begins as a packed file does, to any size: a cell `x^2` does. A mark of
    UTF-8 before it, which polars takes off, says that it is text.

    >>> as_it_is(b"x^2,3"), as_it_is(b"y^2,3")
    (b'\\xef\\xbb\\xbfx^2,3', b'y^2,3')
    """
    return codecs.BOM_UTF8 + text if text.startswith(PACKED) else text


def shorter(path: str) -> DataError:
    """The error for a file that ends early."""
    return DataError(f"{path} is shorter than when the data set was opened; open the data set again")


def windows(
    path: str, start: int, end: int, storage_options: dict[str, Any] | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """`(offset, bytes)` of a range of any size, some megabytes at a time."""
    for offset in range(start, end, _WINDOW):
        yield offset, read_bytes(path, offset, min(end, offset + _WINDOW), storage_options)


def file_size(path: str, storage_options: dict[str, Any] | None = None) -> int:
    return int(filesystem(path, storage_options).size(path)) if is_remote(path) else Path(path).stat().st_size


def record_bounds(
    path: str, has_header: bool, quote: str | None, part_size: int, storage_options: dict[str, Any] | None = None
) -> list[int]:
    """Offsets between which lie whole records, about `part_size` bytes of them; the header comes before the first."""
    size = file_size(path, storage_options)
    start = 3 if size >= 3 and read_bytes(path, 0, 3, storage_options).tobytes() == codecs.BOM_UTF8 else 0
    start = _after_header(path, size, quote, storage_options) if has_header and size else start
    if quote is not None:
        cuts = _quoted_cuts(path, start, size, ord(quote), part_size, storage_options)
    else:
        cuts = [start]
        while size - cuts[-1] > part_size:
            cuts.append(_after_line(path, cuts[-1] + part_size, size, storage_options))
    return [*cuts, size] if cuts[-1] < size else cuts


def without_blank_end(path: str, bounds: list[int], storage_options: dict[str, Any] | None = None) -> list[int]:
    """Bounds of records without the empty lines that a file may end with."""
    first, end = bounds[0], bounds[-1]
    if read_bytes(path, max(first, end - 2), end, storage_options).tobytes().strip(b"\r\n"):
        return bounds
    stop = end  # behind the last byte that is part of no line end
    while stop > first:
        start = max(first, stop - (1 << 16))
        content = read_bytes(path, start, stop, storage_options).tobytes().rstrip(b"\r\n")
        stop = start + len(content)
        if content:
            break
    behind = read_bytes(path, stop, min(end, stop + (1 << 16)), storage_options).tobytes()
    if stop > first and b"\n" not in behind:  # the last line, which does not end
        return bounds
    end = stop + behind.index(b"\n") + 1 if stop > first else first
    return [*(bound for bound in bounds if bound < end), end] if end > first else bounds[:1]


def bytes_per_row(path: str, start: int, storage_options: dict[str, Any] | None = None) -> float:
    """About how long a record is, judged by the first ones."""
    size = file_size(path, storage_options)
    head = read_bytes(path, start, min(size, start + (1 << 16)), storage_options)
    return max(1.0, len(head) / max(1, int(np.count_nonzero(head == 10))))


def _after_header(path: str, size: int, quote: str | None, storage_options: dict[str, Any] | None) -> int:
    """The first offset after the names; a name in quotes may hold a line end, and a quote inside a name ends none."""
    if quote is not None:
        head = read_bytes(path, 0, min(size, 1 << 20), storage_options)
        is_quoted = np.bitwise_xor.accumulate(head == ord(quote))
        ends = np.flatnonzero((head == 10) & ~is_quoted)
        if len(ends):
            return int(ends[0]) + 1
    return _after_line(path, 0, size, storage_options)


def _after_line(path: str, position: int, size: int, storage_options: dict[str, Any] | None) -> int:
    """The first offset after the newline at or behind `position`."""
    start = position
    while position < size:
        window = read_bytes(path, position, min(size, position + (1 << 16)), storage_options)
        newline = window.tobytes().find(b"\n")
        if newline >= 0:
            return position + newline + 1
        position += len(window)
        if position - start > _LONGEST_LINE:
            raise DataError(
                f"{path}: no line ends within {_LONGEST_LINE:,} bytes from byte {start} on; is it text with a record a "
                f"line?"
            )
    return size


def _quoted_cuts(
    path: str, start: int, size: int, quote: int, part_size: int, storage_options: dict[str, Any] | None
) -> list[int]:
    """A newline may stand inside quotes: all quotes are counted first, on all cores, then each cut is looked for."""
    from penstock.kernels.cpu_lines import record_cuts

    if size - start <= part_size:
        return [start]
    inside = _inside_quotes(path, start, size, quote, storage_options)
    cuts = [start]
    while size - cuts[-1] > part_size:
        number = (cuts[-1] + part_size - 1 - start) // _BLOCK
        state, found = np.array([inside[number], cuts[-1]], np.int64), np.empty(0, np.int64)
        for offset in range(start + number * _BLOCK, size, _BLOCK):
            window = read_bytes(path, offset, min(size, offset + _BLOCK), storage_options)
            found = record_cuts(window, offset, quote, part_size, state)
            if len(found):
                break
            if offset - cuts[-1] > part_size + _LONGEST_LINE:
                raise DataError(
                    f"{path}: no record ends within {_LONGEST_LINE:,} bytes behind byte {cuts[-1] + part_size}: a "
                    f"quote is not closed there; mend it, or pass quote='' where quotes mean nothing"
                )
        if not len(found) or found[0] >= size:
            break
        cuts.append(int(found[0]))
    return cuts


def _inside_quotes(path: str, start: int, end: int, quote: int, storage_options: dict[str, Any] | None) -> np.ndarray:
    """Of every `_BLOCK` bytes, whether they begin inside quotes."""
    from penstock.kernels.cpu_lines import count_in_blocks

    def counted(offset: int) -> np.ndarray:
        window = read_bytes(path, offset, min(end, offset + _WINDOW), storage_options)
        counts = np.empty(-(-len(window) // _BLOCK), np.int64)
        count_in_blocks(window, quote, _BLOCK, counts)
        return counts

    counts = list(LocalEngine(available_cores()).map(counted, range(start, end, _WINDOW)))
    before = np.concatenate([[0], np.concatenate(counts)[:-1]])
    inside: np.ndarray = np.cumsum(before) % 2
    return inside


def is_utf8(text: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


class RecordLines:
    r"""Which line of a buffer its records stand on, also when some of them have been taken out.

    >>> records = RecordLines(np.frombuffer(b'a\nb\n"c\nc"\nd\n', np.uint8), '"')
    >>> records.remove([1])
    >>> records.line(1), records.line(2)
    (2, 4)
    """

    def __init__(self, buffer: np.ndarray, quote: str | None) -> None:
        self._buffer, self._quote = buffer, quote
        self._removed = np.empty(0, np.int64)
        self._lines: np.ndarray | None = None

    def remove(self, rows: Sequence[int]) -> None:
        """Note that records were taken out, by their number among those that were left."""
        self._removed = np.union1d(self._removed, self._original(np.asarray(rows, np.int64)))

    def line(self, row: int) -> int:
        """The line of a record, by its number among those that are left; both from 0."""
        row = int(self._original(np.array([row]))[0])
        if self._quote is None:
            return row
        if self._lines is None:  # a newline inside quotes ends no record; only damaged files come here
            newlines = np.flatnonzero(self._buffer == 10)
            is_quoted = np.bitwise_xor.accumulate(self._buffer == ord(self._quote))
            self._lines = np.concatenate([[0], np.flatnonzero(~is_quoted[newlines]) + 1])
        return int(self._lines[min(row, len(self._lines) - 1)])

    def _original(self, rows: np.ndarray) -> np.ndarray:
        left_before = self._removed - np.arange(len(self._removed))  # of each that was taken out
        return rows + np.searchsorted(left_before, rows, side="right")


def utf8_records(text: bytes, separator: str, quote: str | None, on_error: str) -> tuple[bytes, list[int]]:
    """`(text without what is no UTF-8, the records where it was)`; slow, as only damaged files come here.

    With `on_error="skip"` such records go. With `"null"` their fields become empty where they can be told apart without
    looking at quotes, and all fields of a record that has quotes.
    """
    kept, bad = [], []
    mark, comma = quote.encode() if quote else None, separator.encode()
    record, number = b"", 0
    for line in re.findall(rb"[^\n]*\n|[^\n]+", text):
        record += line
        if mark is not None and record.count(mark) % 2:
            continue  # a newline inside quotes
        if is_utf8(record):
            kept.append(record)
        else:
            bad.append(number)
            if on_error == "null":
                quoted = mark is not None and mark in record
                fields = record.rstrip(b"\n").split(comma)
                kept.append(comma.join(b"" if quoted or not is_utf8(f) else f for f in fields) + b"\n")
        record = b""
        number += 1
    if not is_utf8(record):  # a quote that nobody closed
        bad.append(number)
        record = b""
    return b"".join([*kept, record]), bad
