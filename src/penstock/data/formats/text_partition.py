"""A byte range of a text file: read by the fast kernel where the columns allow, by polars otherwise."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from penstock.core import dtypes as dt
from penstock.core.errors import ColumnNotFoundError, DataError
from penstock.core.runtime.forks import require_polars
from penstock.data import bad_lines
from penstock.data.files import is_remote
from penstock.data.formats.text_bytes import RecordLines, as_it_is, is_utf8, read_bytes, utf8_records, windows
from penstock.data.formats.text_layout import TextLayout, unreadable_quotes
from penstock.data.partition import Partition, WrappedPartition, named

_NO_UTF8 = "bytes that are no UTF-8"
_MOST_REPORTED = 1000
_HEXADECIMAL = "^[0-9a-fA-F]+$"  # polars, as Python, takes signs, blanks, underscores and 0x as well


@dataclass(frozen=True)
class TextPartition(Partition):
    """Whole records in bytes `[start, end)` of one file."""

    path: str
    start: int
    end: int
    layout: TextLayout
    storage_options: dict[str, Any] | None = field(default=None, compare=False)
    bytes_per_row: float = field(default=100.0, compare=False)  # of the file's first lines

    @property
    def estimated_rows(self) -> int:
        return max(1, round(self.num_bytes / self.bytes_per_row))

    @property
    def num_rows(self) -> None:  # type: ignore[override]
        return None

    @property
    def num_bytes(self) -> int:  # type: ignore[override]
        return self.end - self.start

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        require_polars(f"reading {self.path}")
        for name in columns or ():
            if name not in self.layout.dtypes:
                raise ColumnNotFoundError(name, self.layout.names, self.path)
        wanted = list(columns) if columns is not None else list(self.layout.names)
        if self.layout.fast and not self.layout.has_text and not is_remote(self.path) and hasattr(os, "pread"):
            from penstock.data.formats.text_kernel import parse_range

            about = self.estimated_rows + self.estimated_rows // 20
            found = parse_range(self.path, self.start, self.end, self.layout, wanted, about)
            if found is not None:
                frame, errors, rows_before_skip = found
                if errors:
                    buffer = read_bytes(self.path, self.start, self.end)
                    self._report(errors, rows_before_skip, RecordLines(buffer, self.layout.quote))
                return frame
        buffer = read_bytes(self.path, self.start, self.end, self.storage_options)
        records = RecordLines(buffer, self.layout.quote)
        buffer = self._only_text(buffer, records) if self.layout.has_text else buffer
        if self.layout.suits(buffer):
            from penstock.data.formats.text_kernel import parse

            frame, errors, rows_before_skip = parse(buffer, self.layout, wanted)
            if errors:
                self._report(errors, rows_before_skip, records)
            return frame
        return self._read_general(buffer, wanted, records)

    def count(self) -> int:
        if self.layout.on_error == "skip" or self.layout.quote is not None:
            return self.read(self.layout.names[:1]).height
        buffer = read_bytes(self.path, self.start, self.end, self.storage_options)
        from penstock.kernels.cpu_text import count_lines

        return count_lines(buffer)

    # The general path: polars, after the records have been checked for their number of fields.

    def _read_general(self, buffer: np.ndarray, wanted: list[str], records: RecordLines) -> pl.DataFrame:
        buffer = self._with_newlines(self._only_text(buffer, records))
        even = self._looks_even(buffer)
        if not even:
            buffer = self._checked(buffer, records)
        text = buffer.tobytes()
        try:
            return self._cast(self._parse(text, self._polars_dtypes(), wanted), wanted)
        except pl.exceptions.PolarsError:
            # Some field does not parse, or lines too long made up for others: read it all as text to find out.
            text = self._checked(buffer, records).tobytes() if even else text
            return self._careful(text, wanted, records)

    def _with_newlines(self, buffer: np.ndarray) -> np.ndarray:
        """Lines that end in a newline alone: in a line that is too short, polars would keep the carriage return."""
        from penstock.kernels.cpu_lines import count_byte, without_returns

        quote = ord(self.layout.quote) if self.layout.quote else -1
        return without_returns(buffer, quote) if count_byte(buffer, 13) else buffer

    def _only_text(self, buffer: np.ndarray, records: RecordLines) -> np.ndarray:
        """The bytes, if they are UTF-8; else without the records (or fields) that are not, after saying which."""
        from penstock.kernels.cpu_lines import is_ascii

        if is_ascii(buffer) or is_utf8(buffer.tobytes()):
            return buffer
        kept, errors = utf8_records(buffer.tobytes(), self.layout.separator, self.layout.quote, self.layout.on_error)
        self._report([(row, _NO_UTF8) for row in errors[:_MOST_REPORTED]], len(errors), records)
        if self.layout.on_error == "skip":
            records.remove(errors)
        return np.frombuffer(kept, np.uint8)

    def _looks_even(self, buffer: np.ndarray) -> bool:
        """Whether there are as many separators as there should be: cheap, and polars refuses lines that are too long,
        so a line that is too short cannot hide behind one."""
        from penstock.kernels.cpu_lines import count_byte
        from penstock.kernels.cpu_text import count_lines

        if self.layout.quote is not None or self.layout.on_error != "raise":
            return False
        even: bool = count_byte(buffer, ord(self.layout.separator)) == count_lines(buffer) * (
            len(self.layout.names) - 1
        )
        return even

    def _checked(self, buffer: np.ndarray, records: RecordLines) -> np.ndarray:
        """The records that have the right number of fields, after saying which have not."""
        from penstock.kernels.cpu_lines import ragged_records

        separator, expected = ord(self.layout.separator), len(self.layout.names)
        quote = ord(self.layout.quote) if self.layout.quote else -1
        _, bad, num_bad = ragged_records(buffer, separator, quote, expected, _MOST_REPORTED)
        if not num_bad:
            return buffer
        self._report([(int(r), _ragged(int(f), expected)) for r, _, _, f in bad], num_bad, records)
        if self.layout.on_error != "skip":
            return buffer
        kept = self._without(buffer, bad, num_bad)
        records.remove([int(r) for r, _, _, _ in bad])
        return kept

    def _parse(self, text: bytes, schema: dict[str, pl.DataType], wanted: list[str]) -> pl.DataFrame:
        if not text:
            return pl.DataFrame(schema={n: schema[n] for n in wanted})
        return pl.read_csv(
            io.BytesIO(as_it_is(text)),
            has_header=False,
            columns=[self.layout.names.index(n) for n in wanted],
            schema=schema,
            separator=self.layout.separator,
            quote_char=self.layout.quote,
            truncate_ragged_lines=self.layout.on_error == "null",
            raise_if_empty=False,
        ).select(named(wanted))

    def _polars_dtypes(self) -> dict[str, pl.DataType]:
        """What polars parses: hex columns and those with words for nothing come as text and are converted after."""
        return {
            n: pl.String()
            if self.layout.dtypes[n] in dt.HEX or n in self.layout.missing
            else dt.to_polars(self.layout.dtypes[n])
            for n in self.layout.names
        }

    def _without_words(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Null in the place of words that stand for no value."""
        found = [(n, words) for n, words in self.layout.missing.items() if n in frame.columns]
        return frame.with_columns(pl.when(~pl.col(n).is_in(words)).then(pl.col(n)).alias(n) for n, words in found)

    def _cast(self, frame: pl.DataFrame, wanted: list[str]) -> pl.DataFrame:
        frame = self._without_words(frame)
        plain = [n for n in wanted if n in self.layout.missing and self.layout.dtypes[n] not in (*dt.HEX, "bool")]
        if any(self.layout.dtypes[n] == "bool" for n in wanted if n in self.layout.missing):
            raise pl.exceptions.ComputeError("text for booleans")  # which the careful reading knows
        frame = frame.with_columns(pl.col(n).cast(dt.to_polars(self.layout.dtypes[n])) for n in plain)
        hexed = [n for n in wanted if self.layout.dtypes[n] in dt.HEX]
        if hexed and not all(frame.select(pl.col(n).str.contains(_HEXADECIMAL).all() for n in hexed).row(0)):
            raise pl.exceptions.ComputeError("not hexadecimal")  # where, the careful reading says
        return frame.with_columns(_hex_numbers(n, self.layout.dtypes[n]) for n in hexed) if hexed else frame

    def _careful(self, text: bytes, wanted: list[str], records: RecordLines) -> pl.DataFrame:
        try:
            raw = self._parse(text, dict.fromkeys(self.layout.names, pl.String()), wanted)
        except pl.exceptions.PolarsError as error:
            raise unreadable_quotes(self.path, text, self.layout.separator, self.lines_before(), error) from None
        raw = self._without_words(raw)
        columns, errors, bad_rows = [], [], np.zeros(raw.height, bool)
        for name in wanted:
            series, dtype = raw[name], self.layout.dtypes[name]
            if dtype in dt.HEX:
                spelled = pl.when(pl.col(name).str.contains(_HEXADECIMAL)).then(pl.col(name)).alias(name)
                parsed = raw.select(spelled).select(_hex_numbers(name, dtype, strict=False)).to_series()
            elif dtype == "bool":
                parsed = series.str.to_lowercase().replace_strict(
                    {"true": True, "false": False, "1": True, "0": False}, default=None, return_dtype=pl.Boolean
                )
            elif dtype in dt.NUMERIC:  # blanks around a number are no part of it, as in the kernel
                series = series.str.strip_chars(" \t").replace("", None)
                if dtype.startswith("uint"):
                    series = series.str.replace(r"^-(0+)$", "$1")  # zero has no sign among integers
                parsed = series.cast(dt.to_polars(dtype), strict=False)
            else:
                parsed = series.cast(dt.to_polars(dtype), strict=False)
            broken = (parsed.is_null() & series.is_not_null()).to_numpy()
            for row in np.flatnonzero(broken)[:_MOST_REPORTED]:
                errors.append((int(row), f"column {name!r}: {series[int(row)]!r} is not a valid {dtype}"))
            bad_rows |= broken
            columns.append(parsed)
        if errors:
            self._report(sorted(errors), int(bad_rows.sum()), records)
        frame = pl.DataFrame(columns)
        return frame.filter(pl.Series(~bad_rows)) if self.layout.on_error == "skip" else frame

    def _without(self, buffer: np.ndarray, bad: np.ndarray, num_bad: int) -> np.ndarray:
        if num_bad > len(bad):
            raise DataError(
                f"{self.path}: more than {_MOST_REPORTED} ragged lines in {self.num_bytes} bytes; "
                f"is separator {self.layout.separator!r} with {len(self.layout.names)} columns right?"
            )
        keep, last = [], 0
        for _, start, end, _ in bad:
            keep.append(buffer[last:start])
            last = min(end + 1, len(buffer))
        keep.append(buffer[last:])
        return np.concatenate(keep)

    def _report(self, errors: list[tuple[int, str]], count: int, records: RecordLines) -> None:
        """Raise on the first malformed line, or count them all."""
        row, text = errors[0]
        where = f"line {self.lines_before() + records.line(row) + 1}: {text}"
        if self.layout.on_error == "raise":
            more = f" ({count - 1} more in this part)" if count > 1 else ""
            if text == _NO_UTF8 and count > 2:  # a damaged line is alone
                raise DataError(
                    f"{self.path}, {where}{more}; pass encoding= with its own, such as 'cp1252' of Western Europe, or "
                    f"on_error='skip' (drop such lines) or 'null'"
                )
            if count > 2 and 2 * count > self.estimated_rows:
                raise DataError(
                    f"{self.path}, {where}{more}; most lines are like that: it was read with separator "
                    f"{self.layout.separator!r} as {len(self.layout.names)} columns; pass separator= and names= as "
                    f"they are, or dtypes= of the column"
                )
            raise DataError(
                f"{self.path}, {where}{more}; mend the line, or pass on_error='skip' (drop such lines) or 'null'"
            )
        bad_lines.note(self.path, count, where)

    def lines_before(self) -> int:
        """Lines of the file above this part."""
        before = windows(self.path, 0, self.start, self.storage_options)
        return sum(int(np.count_nonzero(window == 10)) for _, window in before)


def line_of(part: Partition, row: int) -> int | None:
    """The line of a text file that a row of one of its parts stands in, from 1; None where it cannot be told.

    Args:
        part: of a data set as it was opened.
        row: from 0.
    """
    part = part.source if isinstance(part, WrappedPartition) and part.keeps_rows else part
    if not isinstance(part, TextPartition) or part.layout.on_error == "skip":
        return None
    before = part.lines_before()
    buffer = read_bytes(part.path, part.start, part.end, part.storage_options)
    return before + RecordLines(buffer, part.layout.quote).line(row) + 1


def _hex_numbers(name: str, dtype: str, strict: bool = True) -> pl.Expr:
    return pl.col(name).str.to_integer(base=16, dtype=dt.to_polars(dtype), strict=strict)  # type: ignore[arg-type]


def _ragged(found: int, expected: int) -> str:
    """What is wrong with a record; one with enough fields has a quote in the wrong place."""
    if found != expected:
        return f"{found} fields, {expected} expected"
    return 'a quote that is not closed, or that a field without quotes holds (write "5"" pipe")'
