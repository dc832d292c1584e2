"""CSV and TSV: byte ranges cut at records, read by the fast kernel where the columns allow, by polars otherwise."""

from __future__ import annotations

import io
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from penstock.core import dtypes as dt
from penstock.core.errors import ColumnNotFoundError, DataError, ParameterError
from penstock.data import bad_lines
from penstock.data.files import filesystem, is_remote
from penstock.data.partition import Partition

ON_ERROR = ("raise", "skip", "null")
_MOST_REPORTED = 1000
_INFER_BYTES = 1 << 20


@dataclass(frozen=True)
class TextFormat:
    """How a delimited file is laid out; `dtypes` may say `hex32`/`hex64` for hexadecimal ids."""

    names: tuple[str, ...]
    dtypes: Mapping[str, str]
    separator: str
    has_header: bool
    quote: str | None
    on_error: str = "raise"

    @property
    def fast(self) -> bool:
        """Whether the kernel can read every column: numbers, hexadecimal ids and text."""
        known = (*dt.INTEGERS, *dt.FLOATS, *dt.HEX, "string")
        return all(self.dtypes[n] in known for n in self.names)

    def suits(self, buffer: np.ndarray) -> bool:
        """Whether the kernel can read these bytes: nothing quoted, and text that needs no check of its encoding."""
        from penstock.kernels.cpu_lines import count_byte, is_ascii

        if not self.fast or (self.quote is not None and count_byte(buffer, ord(self.quote))):
            return False
        return "string" not in self.dtypes.values() or (len(buffer) < 2**31 and is_ascii(buffer))

    @property
    def polars_schema(self) -> dict[str, pl.DataType]:
        return {n: dt.to_polars(self.dtypes[n]) for n in self.names}


@dataclass(frozen=True)
class TextPartition(Partition):
    """Whole records in bytes `[start, end)` of one file."""

    path: str
    start: int
    end: int
    format: TextFormat
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
        for name in columns or ():
            if name not in self.format.dtypes:
                raise ColumnNotFoundError(name, self.format.names, self.path)
        wanted = list(columns) if columns is not None else list(self.format.names)
        buffer = read_bytes(self.path, self.start, self.end, self.storage_options)
        if self.format.suits(buffer):
            from penstock.data.text_fast import parse

            frame, errors, rows_before_skip = parse(buffer, self.format, wanted)
            if errors:
                self._report(errors, rows_before_skip)
            return frame
        return self._read_general(buffer, wanted)

    def count(self) -> int:
        if self.format.on_error == "skip" or self.format.quote is not None:
            return self.read(self.format.names[:1]).height
        buffer = read_bytes(self.path, self.start, self.end, self.storage_options)
        from penstock.kernels.cpu_text import count_lines

        return count_lines(buffer)

    # The general path: polars, after the records have been checked for their number of fields.

    def _read_general(self, buffer: np.ndarray, wanted: list[str]) -> pl.DataFrame:
        even = self._looks_even(buffer)
        if not even:
            buffer = self._checked(buffer)
        text = buffer.tobytes()
        try:
            return self._cast(self._parse(text, self._polars_dtypes(), wanted), wanted)
        except pl.exceptions.PolarsError:
            # Some field does not parse, or lines too long made up for others: read it all as text to find out.
            text = self._checked(buffer).tobytes() if even else text
            return self._careful(text, wanted)

    def _looks_even(self, buffer: np.ndarray) -> bool:
        """Whether there are as many separators as there should be: cheap, and polars refuses lines that are too long,
        so a line that is too short cannot hide behind one."""
        from penstock.kernels.cpu_lines import count_byte
        from penstock.kernels.cpu_text import count_lines

        if self.format.quote is not None or self.format.on_error != "raise":
            return False
        return count_byte(buffer, ord(self.format.separator)) == count_lines(buffer) * (len(self.format.names) - 1)

    def _checked(self, buffer: np.ndarray) -> np.ndarray:
        """The records that have the right number of fields, after saying which have not."""
        from penstock.kernels.cpu_lines import ragged_records

        separator, expected = ord(self.format.separator), len(self.format.names)
        quote = ord(self.format.quote) if self.format.quote else -1
        _, bad, num_bad = ragged_records(buffer, separator, quote, expected, _MOST_REPORTED)
        if not num_bad:
            return buffer
        self._report([(int(r), f"{f} fields, {expected} expected") for r, _, _, f in bad], num_bad)
        return self._without(buffer, bad, num_bad) if self.format.on_error == "skip" else buffer

    def _parse(self, text: bytes, schema: dict[str, pl.DataType], wanted: list[str]) -> pl.DataFrame:
        if not text:
            return pl.DataFrame(schema={n: schema[n] for n in wanted})
        return pl.read_csv(
            io.BytesIO(text),
            has_header=False,
            columns=[self.format.names.index(n) for n in wanted],
            schema=schema,
            separator=self.format.separator,
            quote_char=self.format.quote,
            truncate_ragged_lines=self.format.on_error == "null",
            raise_if_empty=False,
        ).select(wanted)

    def _polars_dtypes(self) -> dict[str, pl.DataType]:
        """What polars parses: hex columns come as text and are converted after."""
        return {
            n: pl.String() if self.format.dtypes[n] in dt.HEX else dt.to_polars(self.format.dtypes[n])
            for n in self.format.names
        }

    def _cast(self, frame: pl.DataFrame, wanted: list[str]) -> pl.DataFrame:
        hexed = [
            pl.col(n).str.to_integer(base=16, dtype=dt.to_polars(self.format.dtypes[n]))  # type: ignore[arg-type]
            for n in wanted
            if self.format.dtypes[n] in dt.HEX
        ]
        return frame.with_columns(hexed) if hexed else frame

    def _careful(self, text: bytes, wanted: list[str]) -> pl.DataFrame:
        raw = self._parse(text, dict.fromkeys(self.format.names, pl.String()), wanted)
        columns, errors, bad_rows = [], [], np.zeros(raw.height, bool)
        for name in wanted:
            series, dtype = raw[name], self.format.dtypes[name]
            if dtype in dt.HEX:
                parsed = series.str.to_integer(base=16, dtype=dt.to_polars(dtype), strict=False)  # type: ignore[arg-type]
            elif dtype == "bool":
                parsed = series.str.to_lowercase().replace_strict(
                    {"true": True, "false": False, "1": True, "0": False}, default=None, return_dtype=pl.Boolean
                )
            else:
                parsed = series.cast(dt.to_polars(dtype), strict=False)
            broken = (parsed.is_null() & series.is_not_null()).to_numpy()
            for row in np.flatnonzero(broken)[:_MOST_REPORTED]:
                errors.append((int(row), f"column {name!r}: {series[int(row)]!r} is not a valid {dtype}"))
            bad_rows |= broken
            columns.append(parsed)
        if errors:
            self._report(sorted(errors), int(bad_rows.sum()))
        frame = pl.DataFrame(columns)
        return frame.filter(pl.Series(~bad_rows)) if self.format.on_error == "skip" else frame

    def _without(self, buffer: np.ndarray, bad: np.ndarray, num_bad: int) -> np.ndarray:
        if num_bad > len(bad):
            raise DataError(
                f"{self.path}: more than {_MOST_REPORTED} ragged lines in {self.num_bytes} bytes; "
                f"is separator {self.format.separator!r} with {len(self.format.names)} columns right?"
            )
        keep, last = [], 0
        for _, start, end, _ in bad:
            keep.append(buffer[last:start])
            last = min(end + 1, len(buffer))
        keep.append(buffer[last:])
        return np.concatenate(keep)

    def _report(self, errors: list[tuple[int, str]], count: int) -> None:
        """Raise on the first malformed line, or count them all."""
        row, text = errors[0]
        where = f"line {self._lines_before() + row + 1}: {text}"
        if self.format.on_error == "raise":
            more = f" ({count - 1} more in this part)" if count > 1 else ""
            raise DataError(
                f"{self.path}, {where}{more}; mend the line, or pass on_error='skip' (drop such lines) or 'null'"
            )
        bad_lines.note(self.path, count, where)

    def _lines_before(self) -> int:
        if self.start == 0:
            return 0
        return int(np.count_nonzero(read_bytes(self.path, 0, self.start, self.storage_options) == 10))


def read_bytes(path: str, start: int, end: int, storage_options: dict[str, Any] | None = None) -> np.ndarray:
    """Bytes `[start, end)` of a file as uint8; a local file is memory-mapped, not copied."""
    if start == end:
        return np.empty(0, np.uint8)
    if is_remote(path):
        return np.frombuffer(filesystem(path, storage_options).cat_file(path, start=start, end=end), np.uint8)
    try:
        with Path(path).open("rb") as file:
            if file.seek(0, io.SEEK_END) < end:
                raise DataError(f"{path} is shorter than when the data set was opened; open the data set again")
            aligned = start - start % mmap.ALLOCATIONGRANULARITY
            mapped = mmap.mmap(file.fileno(), end - aligned, access=mmap.ACCESS_READ, offset=aligned)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    return np.frombuffer(mapped, np.uint8)[start - aligned :]


def file_size(path: str, storage_options: dict[str, Any] | None = None) -> int:
    return int(filesystem(path, storage_options).size(path)) if is_remote(path) else Path(path).stat().st_size


def partitions(
    path: str, layout: TextFormat, part_size: int, storage_options: dict[str, Any] | None = None
) -> list[TextPartition]:
    """Cut one file into byte ranges of about `part_size` that hold whole records."""
    size = file_size(path, storage_options)
    start = _after_line(path, 0, size, storage_options) if layout.has_header and size else 0
    if layout.quote is not None:
        cuts = _quoted_cuts(path, start, size, ord(layout.quote), part_size, storage_options)
    else:
        cuts = [start]
        while size - cuts[-1] > part_size:
            cuts.append(_after_line(path, cuts[-1] + part_size, size, storage_options))
    bounds = [*cuts, size] if cuts[-1] < size else cuts
    width = _bytes_per_row(path, start, size, storage_options)
    return [TextPartition(path, a, b, layout, storage_options, width) for a, b in pairwise(bounds)]


def _bytes_per_row(path: str, start: int, size: int, storage_options: dict[str, Any] | None) -> float:
    head = read_bytes(path, start, min(size, start + (1 << 16)), storage_options)
    return max(1.0, len(head) / max(1, int(np.count_nonzero(head == 10))))


def _after_line(path: str, position: int, size: int, storage_options: dict[str, Any] | None) -> int:
    """The first offset after the newline at or behind `position`."""
    while position < size:
        window = read_bytes(path, position, min(size, position + (1 << 16)), storage_options)
        newline = window.tobytes().find(b"\n")
        if newline >= 0:
            return position + newline + 1
        position += len(window)
    return size


def _quoted_cuts(
    path: str, start: int, size: int, quote: int, part_size: int, storage_options: dict[str, Any] | None
) -> list[int]:
    """A newline may stand inside quotes, so the cuts come from one scan over the whole file."""
    from penstock.kernels.cpu_lines import record_cuts

    if size - start <= part_size:
        return [start]
    buffer = read_bytes(path, 0, size, storage_options)
    cuts = [c for c in record_cuts(buffer, start, quote, part_size).tolist() if c < size]
    return [start, *cuts]


def infer_layout(
    path: str,
    kind: str,
    names: Sequence[str] | None,
    dtypes: Mapping[str, Any] | None,
    separator: str | None,
    header: bool | None,
    on_error: str,
    storage_options: dict[str, Any] | None = None,
) -> TextFormat:
    """Fill in what the caller left open from the format's habits and the first rows of one file."""
    if on_error not in ON_ERROR:
        raise ParameterError(f"on_error must be one of {', '.join(map(repr, ON_ERROR))}, got {on_error!r}")
    separator = separator or ("\t" if kind == "tsv" else ",")
    if len(separator.encode()) != 1:
        raise ParameterError(f"separator must be one ASCII character, got {separator!r}")
    quote = '"' if kind == "csv" else None
    has_header = names is None if header is None else header
    given = {n: d if isinstance(d, str) and d in dt.HEX else dt.canonical(d) for n, d in (dtypes or {}).items()}
    if names is not None and all(n in given for n in names):
        return TextFormat(tuple(names), given, separator, has_header, quote, on_error)
    head = read_bytes(path, 0, min(file_size(path, storage_options), _INFER_BYTES), storage_options).tobytes()
    if len(head) == _INFER_BYTES:  # do not judge by half a line
        head = head[: head.rfind(b"\n") + 1]
    if not head.strip():
        raise DataError(f"{path} is empty; columns and dtypes cannot be inferred from it: pass names= and dtypes=")
    sample = pl.read_csv(
        io.BytesIO(head),
        has_header=has_header,
        separator=separator,
        quote_char=quote,
        infer_schema_length=10_000,
        truncate_ragged_lines=True,
        ignore_errors=True,
    )
    found = list(names) if names is not None else sample.columns
    if names is not None and len(found) != len(sample.columns):
        raise DataError(
            f"{path} has {len(sample.columns)} columns (separator {separator!r}), names= lists {len(found)}"
        )
    for name in given:
        if name not in found:
            raise ColumnNotFoundError(name, found, f"{path} (named in dtypes=)")
    inferred = {n: dt.canonical(d) for n, d in zip(found, sample.dtypes, strict=True)}
    return TextFormat(tuple(found), {**inferred, **given}, separator, has_header, quote, on_error)
