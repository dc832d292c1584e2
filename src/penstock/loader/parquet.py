"""Columns of parquet files without a frame in between: the loader's fast road (see `kernels.cpu_parquet`)."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.core import dtypes
from penstock.core.batch import Ragged
from penstock.core.errors import DataError
from penstock.data.codecs import Codec
from penstock.data.files import is_remote
from penstock.data.formats.parquet import ParquetPartition, replaced
from penstock.data.formats.parquet_footer import Footer
from penstock.data.partition import Partition
from penstock.kernels import cpu_parquet as kernels
from penstock.kernels import cpu_parquet_pages as page_kernels
from penstock.kernels.cpu_gather import BITS, NO_CODES
from penstock.kernels.parquet_runs_contract import PAGE_FIELDS, RUN_FIELDS
from penstock.loader.open_file import FetchedFile, OpenFile, Stamp, stamp_of
from penstock.loader.parquet_chunks import ColumnChunk, column_chunks
from penstock.loader.remote_file import RemoteStamp

if hasattr(os, "pread"):
    from penstock.kernels import cpu_parquet_column as _whole
else:  # Windows: columns are read step by step
    _whole = None  # type: ignore[assignment]

_PAGES = 4096
_VALUES_A_RUN = 16  # on average at least, or a device is not given the pages


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


class DecodedColumn(NamedTuple):
    """A column's values; where there are codes, row `i` has the value `values[codes[i]]`."""

    values: np.ndarray
    codes: np.ndarray


_Known: TypeAlias = tuple[Stamp, dict[tuple[int, str], ColumnChunk]]


class ParquetColumns:
    """Which columns of which partitions can be read the fast way, and reading them."""

    def __init__(self) -> None:
        self._files: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def chunks(self, partition: Partition, column: str) -> list[ColumnChunk] | None:
        """The column's chunks in a partition, or None where only the general reader can read them."""
        if not isinstance(partition, ParquetPartition) or partition.is_cut:
            return None
        if is_remote(partition.path) and not hasattr(os, "pread"):
            return None
        stamp, known = self._footer(partition.path, partition.storage_options)
        if partition.opened is not None and stamp != partition.opened:
            raise replaced(partition.path)
        found = [known.get((group, column)) for group in partition.row_groups]
        chunks = [c for c in found if c is not None]
        expected = (partition.dtypes or {}).get(column)
        if len(chunks) != len(found) or any(c.dtype != chunks[0].dtype for c in chunks):
            return None
        if expected is not None and chunks[0].logical.name != dtypes.canonical(dtypes.split_list(expected)[0]):
            return None  # to be converted, which only the general reader does
        return chunks

    def open(self, path: str) -> OpenFile:
        stamp = self._footer(path)[0]
        return OpenFile(path, stamp) if isinstance(stamp, tuple) else FetchedFile(stamp)

    def _footer(self, path: str, storage_options: dict[str, Any] | None = None) -> _Known:
        with self._lock:
            if path not in self._files:
                try:
                    stamp: Stamp
                    stamp = RemoteStamp(path, storage_options) if is_remote(path) else stamp_of(Path(path).stat())
                    self._files[path] = stamp, column_chunks(Footer.read(path, storage_options))
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
            found = _decode(chunk, file, path, space, target, 0 if fill is None else fill)
            if not _understood(found, chunk, path):
                return None
            nulls += found
            at += chunk.num_rows
        return nulls

    def read_at_once(
        self,
        chunks: list[tuple[ColumnChunk, OpenFile]],
        space: Workspace,
        out: np.ndarray,
        fill: float | None,
        may_be_codes: bool = False,
    ) -> tuple[int, DecodedColumn] | None:
        """All chunks in one call that never takes the interpreter's lock; None where `read` must try.

        How many nulls there are, and the values: in `out`, or as codes where they may be and that is less to read.
        """
        if _whole is None or not all(c.codec.in_kernel for c, _ in chunks):
            return None
        kinds = [c for c, _ in chunks]
        table = _table(chunks)
        rows, bits = max(c.num_rows for c in kinds), BITS[kinds[0].dtype.itemsize]
        codes = space.array("codes", len(out), NO_CODES.dtype) if may_be_codes else NO_CODES
        values = space.array("values_of_codes", 2 * kernels.MOST_CODES if may_be_codes else 0, bits)
        told = np.zeros(2, np.int64)
        nulls = _whole.decode_column(
            table,
            space.bytes("data", max(c.size for c in kinds)),
            space.pages,
            space.bytes("work", max(c.full_size for c in kinds)),
            space.array("dictionary", 1 << max(1, (rows - 1).bit_length()), bits),
            space.array("levels", rows, np.dtype(np.uint8)),
            out.view(bits),
            np.array(0 if fill is None else fill, kinds[0].dtype).view(bits)[()],
            values,
            codes,
            told,
        )
        space.read_seconds += told[_whole.READING] / 1e9
        if nulls < 0:
            return None
        known = int(told[_whole.KNOWN])
        return int(nulls), DecodedColumn(values[:known].view(out.dtype), codes) if known else DecodedColumn(
            out, NO_CODES
        )

    def find_runs(
        self, chunks: list[tuple[ColumnChunk, OpenFile]], space: Workspace, raw: np.ndarray, first_byte: int
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Read chunks to `raw` for a device that decodes them: their runs and pages; None where the host must decode.

        Runs of a few values each would be more to send than what they save.
        """
        if _whole is None:
            return None
        from penstock.kernels.cpu_parquet_find import find_runs

        table, rows = _table(chunks), sum(c.num_rows for c, _ in chunks)
        int32 = np.dtype(np.int32)
        runs = space.array("runs", RUN_FIELDS * (rows // _VALUES_A_RUN + _PAGES), int32).reshape(-1, RUN_FIELDS)
        pages = space.array("found_pages", PAGE_FIELDS * _PAGES, int32).reshape(-1, PAGE_FIELDS)
        levels = space.array("levels", max(c.num_rows for c, _ in chunks), np.dtype(np.uint8))
        width = chunks[0][0].dtype.itemsize
        found, num_pages = find_runs(table, raw, first_byte, width, space.pages, runs, pages, levels)
        return (runs[:found].copy(), pages[:num_pages].copy()) if found >= 0 else None

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
            count = _decode_lists(chunk, file, path, space, out, first_row, count)
            if not _understood(count, chunk, path):
                return None
            first_row += chunk.num_rows
        return count


def _table(chunks: list[tuple[ColumnChunk, OpenFile]]) -> np.ndarray:
    """Chunks as `cpu_parquet_column` reads them."""
    return np.array([(f.handle, c.offset, c.size, c.num_rows, c.optional, c.is_snappy) for c, f in chunks], np.int64)


def _understood(status: int, chunk: ColumnChunk, path: str) -> bool:
    """Whether a kernel decoded the chunk; False where the general reader must try, an error where nobody should."""
    page = page_kernels.damaged_page(status)
    if page is not None:
        raise chunk.damaged(path, page)
    return status >= 0


def _decode(chunk: ColumnChunk, file: OpenFile, path: str, space: Workspace, out: np.ndarray, fill: float) -> int:
    """One flat column chunk; the number of nulls or a negative status of the kernels."""
    found = _load(chunk, file, path, space)
    if isinstance(found, int):
        return found
    data, pages, work, dictionary = found
    levels = space.array("levels", chunk.num_rows, np.dtype(np.uint8))
    bits = BITS[chunk.dtype.itemsize]
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
    bits = BITS[chunk.dtype.itemsize]
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
    _require_possible_pages(chunk, pages, path)
    if not chunk.codec.in_kernel:
        data, pages = _inflate(chunk, data, pages, space, path)
    is_dictionary = pages[:, page_kernels.KIND] == page_kernels.DICTIONARY
    largest = int(pages[is_dictionary, page_kernels.NUM_VALUES].max(initial=0))
    codes = 1 << max(1, (largest - 1).bit_length())  # room for every code of the width that the writer needs
    work = space.bytes("work", int(pages[:, page_kernels.FULL_SIZE].max(initial=0)) if chunk.is_snappy else 0)
    return data, pages, work, space.array("dictionary", codes, BITS[chunk.dtype.itemsize])


def _require_possible_pages(chunk: ColumnChunk, pages: np.ndarray, path: str) -> None:
    """Refuse pages that promise more than they can hold, before memory is taken for it."""
    size, full_size = pages[:, page_kernels.SIZE], pages[:, page_kernels.FULL_SIZE]
    most = size * chunk.codec.most_gain + page_kernels.SLACK
    values = np.where(pages[:, page_kernels.KIND] == page_kernels.DICTIONARY, pages[:, page_kernels.NUM_VALUES], 0)
    uncompressed = size if chunk.codec.name == "none" else full_size
    wrong = (full_size > most) | (values * chunk.dtype.itemsize > uncompressed)
    wrong |= pages[:, page_kernels.NUM_VALUES] > max(chunk.num_values, chunk.num_rows, int(values.max(initial=0)))
    if chunk.levels is not None and pages[:, page_kernels.NUM_VALUES].sum() - values.sum() != chunk.num_values:
        raise chunk.damaged(path, len(pages), f"its pages do not have the {chunk.num_values} values of the footer")
    if wrong.any():
        raise chunk.damaged(path, int(wrong.argmax()), "its sizes are impossible")


def _inflate(
    chunk: ColumnChunk, data: np.ndarray, pages: np.ndarray, space: Workspace, path: str
) -> tuple[np.ndarray, np.ndarray]:
    """Pages of other codecs uncompressed by Arrow, as if they had been stored that way."""
    plain, at = space.bytes("plain", int(pages[:, page_kernels.FULL_SIZE].sum())), 0
    for number, page in enumerate(pages):
        start, size, full_size = (
            int(page[page_kernels.START]),
            int(page[page_kernels.SIZE]),
            int(page[page_kernels.FULL_SIZE]),
        )
        skip = 0
        if page[page_kernels.KIND] == page_kernels.DATA_V2:
            skip = int(page[page_kernels.LEVEL_BYTES] + page[page_kernels.REPEAT_BYTES])
        plain[at : at + skip] = data[start : start + skip]
        if not page[page_kernels.COMPRESSED]:
            full_size = min(size, full_size)
            plain[at + skip : at + full_size] = data[start + skip : start + full_size]
        elif full_size > skip:
            try:
                body = _uncompressed(chunk.codec, data[start + skip : start + size], full_size - skip)
            except (pa.ArrowException, OSError, MemoryError) as error:
                raise chunk.damaged(path, number, str(error)) from error
            plain[at + skip : at + full_size] = np.frombuffer(body, np.uint8)
        page[page_kernels.START], page[page_kernels.SIZE] = at, full_size
        at += full_size
    return plain, pages


def _uncompressed(codec: Codec, body: np.ndarray, size: int) -> pa.Buffer:
    """Exactly `size` bytes; anything else is an error."""
    if codec.name == "zstd":
        return pa.Codec(codec.arrow).decompress(pa.py_buffer(body), size)
    # In one go these two would take a size that is too large, and leave the rest as the memory was.
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(body)), codec.arrow) as stream:
        found = stream.read_buffer(size + 1)
    if len(found) != size:
        raise OSError(f"it uncompresses to another size than {size} bytes")
    return found
