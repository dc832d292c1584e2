"""Columns of local parquet files without a frame in between: the loader's fast road (see `kernels.cpu_parquet`)."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core import dtypes
from penstock.core.batch import Ragged
from penstock.core.errors import DataError
from penstock.data.codecs import Codec, codec_in_footer
from penstock.data.files import is_remote
from penstock.data.formats.parquet import ParquetPartition
from penstock.data.partition import Partition
from penstock.kernels import cpu_parquet as kernels
from penstock.kernels import cpu_parquet_pages as page_kernels

if hasattr(os, "pread"):
    from penstock.kernels import cpu_parquet_column as _whole
else:  # Windows: columns are read step by step
    _whole = None  # type: ignore[assignment]

_TYPES: dict[str, np.dtype] = {"INT32": np.dtype(np.int32), "INT64": np.dtype(np.int64), "FLOAT": np.dtype(np.float32)}
_TYPES["DOUBLE"] = np.dtype(np.float64)
_BITS: dict[int, np.dtype] = {4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}  # one compilation for ints and floats
_ENCODINGS = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
_PAGES = 4096


@dataclass(frozen=True)
class ColumnChunk:
    """Where one column of one row group lies, and how it is written."""

    offset: int
    size: int
    num_rows: int
    codec: Codec
    dtype: np.dtype  # on disk: narrow integers are stored as int32
    logical: np.dtype  # what the numbers are: unsigned ones are stored as signed
    optional: bool
    num_values: int = 0
    full_size: int = 0  # uncompressed
    levels: tuple[int, int] | None = None  # of a list column: the definition levels of an empty list and of an item

    @property
    def is_snappy(self) -> bool:
        """Whether the kernels must uncompress its pages: the one codec that they know."""
        return self.codec.name == "snappy"


class Workspace:
    """The buffers one worker decodes with; they grow to what the largest page needs and stay warm in the cache."""

    def __init__(self) -> None:
        self.pages = np.empty((_PAGES, page_kernels.PAGE_FIELDS), np.int64)
        self._buffers: dict[str, np.ndarray] = {}
        self.read_seconds = 0.0

    def bytes(self, name: str, size: int) -> np.ndarray:
        """At least `size` bytes and some slack."""
        need = size + page_kernels.SLACK
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < need:
            buffer = self._buffers[name] = np.zeros(need + need // 4, np.uint8)
        return buffer

    def owns(self, array: np.ndarray) -> bool:
        """Whether an array lies in these buffers."""
        return any(array.base is buffer for buffer in self._buffers.values())

    def array(self, name: str, size: int, dtype: np.dtype) -> np.ndarray:
        """`size` values of a dtype."""
        return self.bytes(name, size * dtype.itemsize)[: size * dtype.itemsize].view(dtype)


class OpenFile:
    """A parquet file held open while a chunk of it is read; it must be the file whose footer was read before."""

    def __init__(self, path: str, stamp: tuple[int, int]) -> None:
        try:
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise DataError(f"{path} cannot be opened any more: {error.strerror}") from error
        self.handle = handle
        if _stamp(os.fstat(handle)) != stamp:
            raise DataError(f"{path} was changed after the loader had opened it; make a new loader")

    def read(self, into: np.ndarray, size: int, offset: int, path: str) -> None:
        done = 0
        view = memoryview(into)  # type: ignore[arg-type]
        while done < size:
            if hasattr(os, "preadv"):
                got = os.preadv(self.handle, [view[done:size]], offset + done)
            else:  # Windows has neither pread nor preadv
                with Path(path).open("rb") as file:
                    file.seek(offset + done)
                    got = file.readinto(view[done:size])
            if got == 0:
                raise DataError(
                    f"{path} ends at byte {offset + done}, inside its data; it was truncated, write it again"
                )
            done += got

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            os.close(self.handle)


class ParquetColumns:
    """Which columns of which partitions can be read the fast way, and reading them."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[tuple[int, int], dict[tuple[int, str], ColumnChunk]]] = {}
        self._lock = threading.Lock()

    def chunks(self, partition: Partition, column: str) -> list[ColumnChunk] | None:
        """The column's chunks in a partition, or None where only the general reader can read them."""
        if not isinstance(partition, ParquetPartition) or is_remote(partition.path):
            return None
        _, known = self._footer(partition.path)
        found = [known.get((group, column)) for group in partition.row_groups]
        chunks = [c for c in found if c is not None]
        expected = (partition.dtypes or {}).get(column)
        if len(chunks) != len(found) or any(c.dtype != chunks[0].dtype for c in chunks):
            return None
        if expected is not None and chunks[0].logical.name != dtypes.canonical(dtypes.split_list(expected)[0]):
            return None  # to be converted, which only the general reader does
        return chunks

    def open(self, path: str) -> OpenFile:
        return OpenFile(path, self._footer(path)[0])

    def _footer(self, path: str) -> tuple[tuple[int, int], dict[tuple[int, str], ColumnChunk]]:
        with self._lock:
            if path not in self._files:
                try:
                    stamp = _stamp(Path(path).stat())
                    self._files[path] = stamp, _column_chunks(pq.read_metadata(path))
                except (pa.ArrowException, OSError) as error:
                    raise DataError(f"{path} cannot be read any more ({error})") from error
            return self._files[path]

    def read(
        self,
        chunks: list[ColumnChunk],
        file: OpenFile,
        path: str,
        space: Workspace,
        out: np.ndarray,
        fill: float | None,
    ) -> int | None:
        """Decode into `out` (of the chunks' dtype); the number of nulls, or None where the general reader must try."""
        at = nulls = 0
        for chunk in chunks:
            target = out[at : at + chunk.num_rows]
            try:
                found = _decode(chunk, file, path, space, target, 0 if fill is None else fill)
            except (pa.ArrowException, OSError):  # a page that does not uncompress
                return None
            if found < 0:
                return None
            nulls += found
            at += chunk.num_rows
        return nulls

    def read_at_once(
        self, chunks: list[tuple[ColumnChunk, OpenFile]], space: Workspace, out: np.ndarray, fill: float | None
    ) -> int | None:
        """All chunks in one call that never takes the interpreter's lock; None where `read` must try."""
        if _whole is None or not all(c.codec.in_kernel for c, _ in chunks):
            return None
        kinds = [c for c, _ in chunks]
        table = np.array(
            [(f.handle, c.offset, c.size, c.num_rows, c.optional, c.is_snappy) for c, f in chunks],
            np.int64,
        )
        rows, bits = max(c.num_rows for c in kinds), _BITS[kinds[0].dtype.itemsize]
        read_time = np.zeros(1, np.int64)
        found = _whole.decode_column(
            table,
            space.bytes("data", max(c.size for c in kinds)),
            space.pages,
            space.bytes("work", max(c.full_size for c in kinds)),
            space.array("dictionary", 1 << max(1, (rows - 1).bit_length()), bits),
            space.array("levels", rows, np.dtype(np.uint8)),
            out.view(bits),
            np.array(0 if fill is None else fill, kinds[0].dtype).view(bits)[()],
            read_time,
        )
        space.read_seconds += read_time[0] / 1e9
        return int(found) if found >= 0 else None

    def read_lists(
        self,
        chunks: list[ColumnChunk],
        file: OpenFile,
        path: str,
        space: Workspace,
        out: Ragged,
        first_row: int,
        count: int,
    ) -> int | None:
        """Decode lists behind `first_row` rows and `count` values of `out`; the number of values then, or None."""
        for chunk in chunks:
            try:
                count = _decode_lists(chunk, file, path, space, out, first_row, count)
            except (pa.ArrowException, OSError):
                return None
            if count < 0:
                return None
            first_row += chunk.num_rows
        return count


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _logical(kind: pa.DataType) -> np.dtype | None:
    """The numbers that a column, or a list's items, are; None for anything that only looks like numbers on disk."""
    kind = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else kind
    if pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind):
        dtype: np.dtype = np.dtype(kind.to_pandas_dtype())
        return dtype
    return None


def _column_chunks(metadata: pq.FileMetaData) -> dict[tuple[int, str], ColumnChunk]:
    """Every column chunk of the file that the kernels understand, by row group and column."""
    fields = [field for field in metadata.schema.to_arrow_schema() for _ in range(_num_leaves(field.type))]
    if len(fields) != metadata.num_columns:  # a type whose leaves nobody told us of: names could be mistaken
        return {}
    leaves = {}
    for c, field in enumerate(fields):
        levels = _levels(metadata.schema.column(c), field)
        logical = _logical(field.type)
        if levels is not False and logical is not None:
            leaves[c] = field.name, levels, logical
    chunks = {}
    for group_index in range(metadata.num_row_groups):
        group = metadata.row_group(group_index)
        for c, (name, levels, logical) in leaves.items():
            column = group.column(c)
            known = column.physical_type in _TYPES and set(column.encodings) <= _ENCODINGS
            codec = codec_in_footer(column.compression)
            if not known or codec is None or not codec.known_to_loader:
                continue
            start = column.data_page_offset
            if column.has_dictionary_page and column.dictionary_page_offset is not None:
                start = min(start, column.dictionary_page_offset)
            chunks[group_index, name] = ColumnChunk(
                start,
                column.total_compressed_size,
                group.num_rows,
                codec,
                _TYPES[column.physical_type],
                logical,
                metadata.schema.column(c).max_definition_level > 0,
                column.num_values,
                column.total_uncompressed_size,
                levels,
            )
    return chunks


def _num_leaves(kind: pa.DataType) -> int:
    """How many columns of the file a field of this type takes.

    A column's name is that of its field: the path of its leaf joins names by dots, which names may contain.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return _num_leaves(kind.storage_type)
    if pa.types.is_nested(kind):  # a map has one child here, of its entries
        return sum(_num_leaves(kind.field(i).type) for i in range(kind.num_fields))
    return 1


def _levels(leaf: pq.ColumnSchema, field: pa.Field) -> tuple[int, int] | Literal[False] | None:
    """None for a flat column, the levels of a list of numbers, False for anything deeper."""
    if not pa.types.is_nested(field.type):
        return None if leaf.max_repetition_level == 0 and leaf.max_definition_level <= 1 else False
    if leaf.max_repetition_level != 1 or not (pa.types.is_list(field.type) or pa.types.is_large_list(field.type)):
        return False
    empty = int(field.nullable)
    item = empty + 1 + int(field.type.value_field.nullable)
    return (empty, item) if item == leaf.max_definition_level else False


def _decode(chunk: ColumnChunk, file: OpenFile, path: str, space: Workspace, out: np.ndarray, fill: float) -> int:
    """One flat column chunk; the number of nulls or a negative status of the kernels."""
    found = _load(chunk, file, path, space)
    if isinstance(found, int):
        return found
    data, pages, work, dictionary = found
    levels = space.array("levels", chunk.num_rows, np.dtype(np.uint8))
    bits = _BITS[chunk.dtype.itemsize]
    filling = np.array(fill, chunk.dtype).view(bits)[()]
    status = kernels.decode_flat(
        data, pages, work, dictionary, levels, chunk.optional, chunk.is_snappy, out.view(bits), filling
    )
    return int(status)


def _decode_lists(
    chunk: ColumnChunk, file: OpenFile, path: str, space: Workspace, out: Ragged, first_row: int, count: int
) -> int:
    """One column chunk of lists behind `count` values that are there; their number after it, or a negative status."""
    found = _load(chunk, file, path, space)
    if isinstance(found, int):
        return found
    data, pages, work, dictionary = found
    largest = int(pages[:, page_kernels.NUM_VALUES].max(initial=1))
    levels = space.array("levels", 2 * largest, np.dtype(np.uint8)).reshape(2, largest)
    assert chunk.levels is not None
    bits = _BITS[chunk.dtype.itemsize]
    offsets = out.offsets[first_row : first_row + chunk.num_rows + 1]
    values = out.values.view(bits)
    status = kernels.decode_lists(
        data, pages, work, dictionary, levels, *chunk.levels, chunk.is_snappy, values, offsets, count
    )
    return int(status)


def _load(chunk: ColumnChunk, file: OpenFile, path: str, space: Workspace) -> Any:
    """`(bytes, page table, room for a page, room for a dictionary)` of a column chunk, or a negative status."""
    data = space.bytes("data", chunk.size)
    start = time.perf_counter()
    file.read(data, chunk.size, chunk.offset, path)
    space.read_seconds += time.perf_counter() - start
    count = page_kernels.scan_pages(data, chunk.size, space.pages)
    if count < 0:
        return int(count)
    pages = space.pages[:count]
    if not chunk.codec.in_kernel:
        data, pages = _inflate(chunk.codec, data, pages, space)
    is_dictionary = pages[:, page_kernels.KIND] == page_kernels.DICTIONARY
    largest = int(pages[is_dictionary, page_kernels.NUM_VALUES].max(initial=0))
    codes = 1 << max(1, (largest - 1).bit_length())  # room for every code of the width that the writer needs
    work = space.bytes("work", int(pages[:, page_kernels.FULL_SIZE].max(initial=0)))
    return data, pages, work, space.array("dictionary", codes, _BITS[chunk.dtype.itemsize])


def _inflate(codec: Codec, data: np.ndarray, pages: np.ndarray, space: Workspace) -> tuple[np.ndarray, np.ndarray]:
    """Pages of other codecs uncompressed by Arrow, as if they had been stored that way."""
    total = int(pages[:, page_kernels.FULL_SIZE].sum())
    plain, at = space.bytes("plain", total), 0
    arrow = pa.Codec(codec.arrow)
    for page in pages:
        start, size, full_size = (
            int(page[page_kernels.START]),
            int(page[page_kernels.SIZE]),
            int(page[page_kernels.FULL_SIZE]),
        )
        skip = int(page[page_kernels.LEVEL_BYTES]) if page[page_kernels.KIND] == page_kernels.DATA_V2 else 0
        plain[at : at + skip] = data[start : start + skip]
        if not page[page_kernels.COMPRESSED]:
            plain[at + skip : at + size] = data[start + skip : start + size]
        elif full_size > skip:
            body = arrow.decompress(pa.py_buffer(data[start + skip : start + size]), full_size - skip)
            plain[at + skip : at + full_size] = np.frombuffer(body, np.uint8)
        page[page_kernels.START], page[page_kernels.SIZE] = at, full_size
        at += full_size
    return plain, pages
