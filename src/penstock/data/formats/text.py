"""CSV and TSV, compressed or not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, TextIO

import polars as pl
import pyarrow as pa

from penstock.core import dtypes as dt
from penstock.core.errors import ColumnNotFoundError, DataError
from penstock.core.schema import ColumnSchema, Schema
from penstock.data.files import filesystem, is_remote
from penstock.data.formats.base import Format, FrameWriter, OpenOptions, disagreement
from penstock.data.formats.names import stream_codec
from penstock.data.formats.text_bytes import bytes_per_row, record_bounds
from penstock.data.formats.text_layout import TextLayout, infer_layout
from penstock.data.formats.text_partition import TextPartition
from penstock.data.partition import Partition, WrappedPartition
from penstock.data.scratch import Scratch


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
            scratch, local = _decompressed(path, options)
            if layout is None or layout.has_header:
                found = infer_layout(local, self.separator, self.quote, options)
                layout = found if layout is None else _same_layout(layout, found, path, files[0])
            for part in _byte_ranges(local, layout, options):
                parts.append(part if scratch is None else SpooledPartition(part, path, scratch))
        assert layout is not None
        columns = [
            ColumnSchema(n, layout.dtypes[n], properties={"text": "hex"} if layout.dtypes[n] in dt.HEX else {})
            for n in layout.names
        ]
        return parts, Schema(columns)

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
    """Frames as delimited text to an open file, the header before the first."""

    def __init__(self, file: TextIO, separator: str) -> None:
        self._file, self._separator, self._begun = file, separator, False

    def write(self, frame: pl.DataFrame) -> None:
        """Add a frame's rows."""
        self._file.write(frame.write_csv(separator=self._separator, include_header=not self._begun))
        self._begun = True


@dataclass(frozen=True)
class SpooledPartition(WrappedPartition):
    """A byte range of a compressed file that was unpacked to scratch, because nobody can seek in a gzip stream."""

    source: TextPartition
    packed: str
    scratch: Scratch = field(compare=False)
    keeps_rows: bool = True

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.packed

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        try:
            return self.source.read(columns)
        except DataError as error:
            raise DataError(str(error).replace(self.source.path, self.packed)) from None


def _byte_ranges(path: str, layout: TextLayout, options: OpenOptions) -> list[TextPartition]:
    """One file cut into ranges of about `part_size` bytes."""
    storage = options.storage_options
    bounds = record_bounds(path, layout.has_header, layout.quote, options.part_size, storage)
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
    return first


def _decompressed(path: str, options: OpenOptions) -> tuple[Scratch | None, str]:
    codec = stream_codec(path)
    if codec is None:
        return None, path
    scratch = Scratch()
    target = scratch.path / Path(path).stem
    try:
        source = filesystem(path, options.storage_options).open(path, "rb") if is_remote(path) else path
        with pa.input_stream(source, compression=codec) as packed, target.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 22)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be unpacked ({error}); the {codec} stream is damaged or truncated") from error
    return scratch, str(target)
