"""CSV and TSV, compressed or not."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, TextIO

import polars as pl

from penstock.core import dtypes as dt
from penstock.core.errors import ColumnNotFoundError, DataError, ParameterError, SchemaError, known_as
from penstock.core.runtime.forks import require_polars
from penstock.core.schema import ColumnSchema, Schema
from penstock.data.bad_lines import BadLines, collecting, pass_on
from penstock.data.formats.base import Format, FrameWriter, OpenOptions, disagreement
from penstock.data.formats.text_bytes import (
    bytes_per_row,
    file_size,
    read_bytes,
    record_bounds,
    windows,
    without_blank_end,
)
from penstock.data.formats.text_layout import TextLayout, infer_layout
from penstock.data.formats.text_partition import TextPartition
from penstock.data.formats.text_sample import first_lines
from penstock.data.formats.text_separators import STAND_IN, long_separator, with_stand_in
from penstock.data.formats.text_sniffing import sniff_encoding
from penstock.data.formats.unpacking import unpacked
from penstock.data.partition import Partition, WrappedPartition
from penstock.data.scratch import Scratch, ScratchCopy

_SNIFFED = 1 << 20  # bytes by which an encoding is told


class Text(Format):
    """Delimited text, in partitions of byte ranges that hold whole records."""

    is_text = True
    can_write = True
    separator: ClassVar[str]
    quote: ClassVar[str | None]

    def open(self, files: list[str], options: OpenOptions) -> tuple[list[Partition], Schema]:
        layout: TextLayout | None = None
        parts: list[Partition] = []
        for path in files:
            scratch, local = unpacked(path, options)
            scratch, local, encoding = _as_utf8(path, local, scratch, options)
            long, told = self._long_separator(local, layout, options), options
            if long is not None:
                scratch, local, told = with_stand_in(path, local, long, scratch, options)
            if layout is None:
                layout = self._layout(path, local, told, long)
                assumed = layout.assumed if options.encoding or encoding == "utf-8" else (encoding, *layout.assumed)
                assumed = assumed if long is None or options.separator else (f"separator {long!r}", *assumed)
                layout = replace(layout, assumed=assumed, encoding=encoding, long_separator=long)
            elif layout.has_header:
                found = self._layout(path, local, _as_first(options, layout), long)
                layout = _same_layout(layout, found, path, files[0])
            with known_as(path, local):
                ranges = _byte_ranges(local, layout, options)
            parts += ranges if scratch is None else [SpooledPartition(part, path, scratch) for part in ranges]
        assert layout is not None
        columns = [
            ColumnSchema(n, layout.dtypes[n], properties={"text": "hex"} if layout.dtypes[n] in dt.HEX else {})
            for n in layout.names
        ]
        return parts, Schema(columns)

    def _layout(self, path: str, local: str, options: OpenOptions, long: str | None) -> TextLayout:
        """The layout of a file, or of its copy in scratch, of which nobody has heard."""
        with known_as(path, local, {repr(STAND_IN): repr(long)}):
            return infer_layout(local, self.separator, self.quote, options, path)

    def _long_separator(self, local: str, first: TextLayout | None, options: OpenOptions) -> str | None:
        """The file's separator, where it has several characters; further files are read as the first was."""
        if first is not None:
            return first.long_separator
        return long_separator(first_lines(local, options.storage_options), options)

    @contextmanager
    def writer(self, path: Path) -> Iterator[FrameWriter]:
        with path.open("w", encoding="utf-8", newline="") as file:
            yield TextWriter(file, self.separator)


class Csv(Text):
    """Comma-separated text, in which a quoted field may hold separators and line ends."""

    name = "csv"
    suffixes = (".csv",)
    separator = ","
    quote = '"'


class Tsv(Text):
    """Tab-separated text without quotes, as click logs are written."""

    name = "tsv"
    suffixes = (".tsv", ".txt")
    separator = "\t"
    quote = None


class TextWriter:
    """Frames as delimited text to an open file, the header before the first.

    Text with a separator, a quote or a line end in it is quoted. Readers of tabs take quotes for text where the first
    lines have none, so there the names are quoted whenever text may follow.
    """

    def __init__(self, file: TextIO, separator: str) -> None:
        self._file, self._separator, self._begun = file, separator, False

    def write(self, frame: pl.DataFrame) -> None:
        """Add a frame's rows.

        Raises:
            SchemaError: a column is of a dtype that text has no form for.
        """
        if not self._begun:
            self._begin(frame)
        self._file.write(frame.write_csv(separator=self._separator, include_header=False))

    def _begin(self, frame: pl.DataFrame) -> None:
        for name, dtype in frame.schema.items():
            if dtype.is_nested() or dtype in (pl.Binary, pl.Object):
                raise SchemaError(f"column {name!r} is {dtype}, which text cannot hold; leave it out, or write parquet")
        has_text = any(dtype in (pl.String, pl.Categorical, pl.Enum) for dtype in frame.dtypes)
        is_quoted = has_text and self._separator == "\t"
        header = csv.writer(
            self._file,
            delimiter=self._separator,
            quoting=csv.QUOTE_ALL if is_quoted else csv.QUOTE_MINIMAL,
            lineterminator="\n",
        )
        header.writerow(frame.columns)
        self._begun = True


@dataclass(frozen=True)
class SpooledPartition(WrappedPartition):
    """A byte range of a file's copy in scratch: what cannot be cut as it is, or is read with another separator."""

    source: TextPartition
    packed: str
    scratch: Scratch = field(compare=False)
    keeps_rows: bool = True
    is_as_read = True

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.packed

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        require_polars(f"reading {self.packed}")
        copy, separator = self.source.path, self.source.layout.file_separator
        with known_as(self.packed, copy, {repr(STAND_IN): repr(separator)}), collecting() as bad:
            frame = self.source.read(columns)
        if bad.count:
            pass_on(BadLines(bad.count, bad.first.replace(copy, self.packed)))
        return frame

    def count(self) -> int:
        layout = self.source.layout
        if layout.on_error == "skip" or layout.quote is not None:
            return self.read(layout.names[:1]).height
        with known_as(self.packed, self.source.path):
            return self.source.count()


def _as_first(options: OpenOptions, layout: TextLayout) -> OpenOptions:
    """Further files are read as the first was."""
    return replace(options, separator=layout.separator, quote=layout.quote or "", header=layout.has_header)


def _byte_ranges(path: str, layout: TextLayout, options: OpenOptions) -> list[TextPartition]:
    """One file cut into ranges of about `part_size` bytes."""
    storage = options.storage_options
    bounds = record_bounds(path, layout.has_header, layout.quote, options.part_size, storage)
    if len(layout.names) > 1:  # where a row has one field, an empty line is one without a value
        bounds = without_blank_end(path, bounds, storage)
    width = bytes_per_row(path, bounds[0], storage)
    return [TextPartition(path, a, b, layout, storage, width) for a, b in pairwise(bounds)]


def _same_layout(first: TextLayout, found: TextLayout, path: str, first_path: str) -> TextLayout:
    for name in first.names:
        if name not in found.names:
            raise ColumnNotFoundError(name, found.names, f"{path} ({first_path} has it)")
    if first.names != found.names:
        raise DataError(f"{path} orders its columns differently from {first_path}; write them in one order")
    for name in first.names:
        if first.dtypes[name] != found.dtypes[name]:
            raise disagreement(path, name, found.dtypes[name], first_path, first.dtypes[name])
    missing = {
        name: tuple(dict.fromkeys((*first.missing.get(name, ()), *found.missing.get(name, ()))))
        for name in (*first.missing, *found.missing)
    }
    return replace(first, missing=missing)


def _as_utf8(path: str, local: str, scratch: Scratch | None, options: OpenOptions) -> tuple[Scratch | None, str, str]:
    """The file, or a copy of it in UTF-8 where it is written in something else; and what that is."""
    storage = options.storage_options
    if options.encoding is None:
        encoding = sniff_encoding(read_bytes(local, 0, min(file_size(local, storage), _SNIFFED), storage).tobytes())
    else:
        encoding = _codec(options.encoding)
    if encoding in ("utf-8", "utf-8-sig", "ascii"):
        return scratch, local, "utf-8"
    decoder, line = codecs.getincrementaldecoder(encoding)(), 1
    try:
        with ScratchCopy(path, f"{Path(local).name}.utf-8", scratch) as copy, known_as(path, local):
            for _, window in windows(local, 0, file_size(local, storage), storage):
                text = decoder.decode(window.tobytes())
                copy.write(text.encode())
                line += text.count("\n")
            copy.write(decoder.decode(b"", final=True).encode())
    except UnicodeError as error:
        if isinstance(error, UnicodeDecodeError):
            line += error.object[: error.start].decode(encoding, errors="ignore").count("\n")
        told = f"{path} is not {encoding} throughout (line {line}: {error})"
        raise DataError(f"{told}; pass encoding= with its own") from None
    return copy.scratch, str(copy.target), encoding


def _codec(encoding: str) -> str:
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=encoding)  # takes those of text only
        return codecs.lookup(encoding).name
    except (LookupError, TypeError, ValueError):
        raise ParameterError(f"encoding is {encoding!r}, which Python does not know; try utf-8 or cp1252") from None
