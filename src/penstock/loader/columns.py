"""One column of one partition as arrays: from the cache, the fast parquet road, or a frame; checked on the way."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import polars as pl

from penstock.core.batch import Ragged
from penstock.core.dtypes import narrowest_int
from penstock.core.schema import Schema
from penstock.data.files import is_remote
from penstock.data.partition import Partition
from penstock.kernels.cpu_parquet_column import copy_pieces
from penstock.loader.cache import Cache
from penstock.loader.checks import ColumnCheck
from penstock.loader.device_columns import DeviceColumns
from penstock.loader.frames import Fill, checked_height, dense_array, list_array, null_error, read_frame, where
from penstock.loader.open_file import OpenFile
from penstock.loader.parquet import DecodedColumn, ParquetColumns, Workspace
from penstock.loader.parquet_chunks import ColumnChunk, stored_dtype
from penstock.loader.plan import Piece
from penstock.loader.records import ChunkRecords, Records
from penstock.loader.stats import Stats

_LARGE = 4 << 20  # bytes of a local partition, from which on the system is told that it will be read


class ColumnSource:
    """Reads columns of partitions. One per loader, used by all its threads."""

    def __init__(
        self,
        partitions: Sequence[Partition],
        rows: Sequence[int],
        schema: Schema,
        delivered: Mapping[str, np.dtype],
        fill: Fill,
        cache: Cache | None,
    ) -> None:
        self.partitions, self.rows, self.schema, self.fill = list(partitions), list(rows), schema, fill
        self.checks = {c.name: ColumnCheck(c, delivered.get(c.name)) for c in schema}
        self._narrow = {c.name: np.dtype(narrowest_int(c.cardinality)) for c in schema if c.cardinality is not None}
        self.cache = cache
        dense = [column.name for column in schema if not column.is_list]
        self._records = Records(cache, dense) if type(cache) is Cache else None  # what is on disk stays there
        self.stats = Stats()
        self.parquet = ParquetColumns()
        self._chunks: dict[tuple[int, str], list[ColumnChunk] | None] = {}
        self.for_device = DeviceColumns(self)
        self._spaces: deque[Workspace] = deque()

    @contextmanager
    def workspace(self) -> Iterator[Workspace]:
        """Buffers for a thread, those of one that has ended if there are any: fresh memory is slow at first."""
        try:
            space = self._spaces.pop()
        except IndexError:
            space = Workspace()
        try:
            yield space
        finally:
            self._spaces.append(space)

    def native(self, partition: int, column: str) -> list[ColumnChunk] | None:
        """The chunks of a column that kernels read; None where it comes through a frame."""
        key = partition, column
        if key not in self._chunks:
            chunks = self.parquet.chunks(self.partitions[partition], column)
            said = self.schema[column]
            # What the file holds must be what the schema says; lists of narrow numbers would need a cast on the way.
            if chunks and (chunks[0].logical != np.dtype(said.dtype) or (chunks[0].levels is not None) != said.is_list):
                chunks = None
            if chunks and chunks[0].levels is not None and chunks[0].dtype.itemsize != chunks[0].logical.itemsize:
                chunks = None
            self._chunks[key] = chunks
        return self._chunks[key]

    def _cached(self, partition: int, column: str) -> Any:
        return None if self.cache is None else self.cache.get(partition, column)

    def frame_columns(self, partition: int) -> list[str]:
        """The columns that have to come through a frame this time."""
        missing = [c.name for c in self.schema if self._cached(partition, c.name) is None]
        return [name for name in missing if self.native(partition, name) is None]

    def read_frame(self, partition: int, columns: Sequence[str]) -> pl.DataFrame:
        source = self.partitions[partition]
        start = time.perf_counter()
        frame = checked_height(read_frame(source, columns), source, self.rows[partition])
        self.stats.add("decode", time.perf_counter() - start, int(frame.estimated_size()))
        return frame

    def dtype(self, partition: int, column: str, frame: pl.DataFrame | None) -> np.dtype:
        """The dtype in which the column is stored."""
        if (cached := self._cached(partition, column)) is not None:
            return cast("np.dtype", cached.dtype)
        if chunks := self.native(partition, column):
            return stored_dtype(chunks[0], self.schema[column])
        if frame is not None and column in frame.columns:
            return dense_array(frame.get_column(column).head(0), self.fill, self.partitions[partition]).dtype
        return np.dtype(self.schema[column].dtype)

    def dense(
        self,
        partition: int,
        column: str,
        frame: pl.DataFrame | None,
        files: Files,
        space: Workspace,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """All rows of a column. The result is `out` where decoding could go there, else some array to read from."""
        if (cached := self._cached(partition, column)) is not None:
            return cast("np.ndarray", cached)
        values = self._decode(partition, column, frame, files, space, None if self.cache else out)
        self._check(values, column, partition)
        if self.cache is not None:
            values = self.cache.put(partition, column, self._narrowed(column, values))  # type: ignore[assignment]
        return values

    def decode_at_once(
        self,
        partitions: Sequence[int],
        column: str,
        files: Files,
        space: Workspace,
        out: np.ndarray,
        may_be_codes: bool = False,
    ) -> DecodedColumn | None:
        """A column of whole partitions end to end, in `out` or as codes; None where that cannot be done."""
        chunks: list[tuple[ColumnChunk, OpenFile]] = []
        for partition in partitions:
            native = self.native(partition, column)
            if native is None or stored_dtype(native[0], self.schema[column]) != out.dtype:
                return None
            file = files.get(str(self.partitions[partition].path), native)
            chunks += [(chunk, file) for chunk in native]
        start, read_before, fill = time.perf_counter(), space.read_seconds, self.fill.of(column)
        may_be_codes = may_be_codes and self.cache is None
        found = self.parquet.read_at_once(chunks, space, out.view(chunks[0][0].dtype), fill, may_be_codes)
        if found is None or (found[0] and fill is None):  # step by step it will be said where
            return None
        decoded = DecodedColumn(found[1].values.view(out.dtype), found[1].codes)
        read = space.read_seconds - read_before
        self.stats.add("read", read, sum(chunk.size for chunk, _ in chunks))
        self.stats.add("decode", time.perf_counter() - start - read, out.nbytes)
        if not self.checks[column].passes(decoded.values):  # not all of a dictionary need be in any row
            return None
        if self.cache is not None:
            self._keep(partitions, column, out)
        return decoded

    def is_asked_for(self, partition: int) -> bool:
        """Whether a partition is fetched before its columns are read: it is remote, or large enough to be worth it."""
        source = self.partitions[partition]
        return is_remote(str(source.path)) or self.rows[partition] * source.row_bytes >= _LARGE

    def fetch(self, partition: int, files: Files) -> None:
        """Ask for all of a partition that is going to be read: a remote one is at hand then, in few requests."""
        names = [column.name for column in self.schema if not self.for_device.is_pinned(partition, column.name)]
        wanted = [name for name in names if self._cached(partition, name) is None]
        natives = [self.native(partition, name) for name in wanted]
        chunks = [chunk for native in natives for chunk in native or ()]
        if not chunks:
            return
        start = time.perf_counter()
        files.get(str(self.partitions[partition].path), []).announce(chunks)
        self.stats.add("read", time.perf_counter() - start)

    def whole_column(self, partitions: Sequence[int], column: str) -> np.ndarray:
        """A column of whole partitions, decoded and checked here and now."""
        files, space = self.open_files(), Workspace()
        return np.concatenate([self.dense(p, column, None, files, space).copy() for p in partitions])

    def _keep(self, partitions: Sequence[int], column: str, values: np.ndarray) -> None:
        """Put checked values of whole partitions into the cache."""
        kept = self._narrowed(column, values)
        kept = kept.copy() if kept is values else kept  # `values` lies in a buffer that is used again
        at = 0
        for partition in partitions:
            self.cache.put(partition, column, kept[at : at + self.rows[partition]])  # type: ignore[union-attr]
            at += self.rows[partition]

    def _narrowed(self, column: str, values: np.ndarray) -> np.ndarray:
        """Checked ids fit the narrowest type of their cardinality, which is less to keep and to read again."""
        narrow = self._narrow.get(column, values.dtype) if values.dtype.kind in "iu" else values.dtype
        return values.astype(narrow, copy=False)

    def cached_at_once(self, pieces: Sequence[tuple[int, int, int]], column: str, out: np.ndarray) -> bool:
        """Rows `(partition, start, stop)` of a cached column end to end in `out`; False where that cannot be done."""
        arrays = [self._cached(partition, column) for partition, _, _ in pieces]
        if any(a is None or a.dtype != out.dtype or not a.flags.c_contiguous for a in arrays):
            return False
        width = out.itemsize
        addresses = [a.ctypes.data + start * width for a, (_, start, _) in zip(arrays, pieces, strict=True)]
        sizes = [(stop - start) * width for _, start, stop in pieces]
        copy_pieces(np.array(addresses, np.uint64), np.array(sizes, np.int64), out.view(np.uint8))
        return True

    def join_columns(self, partition: int) -> None:
        """Move the cached columns of a partition together, where rows will be read at random."""
        if self._records is not None:
            self._records.join(partition)

    def chunk_records(self, pieces: Sequence[Piece]) -> ChunkRecords | None:
        """The rows of a chunk as they lie together in the cache; None where they do not."""
        return None if self._records is None else ChunkRecords.of(self._records, pieces)

    def _decode(
        self,
        partition: int,
        column: str,
        frame: pl.DataFrame | None,
        files: Files,
        space: Workspace,
        out: np.ndarray | None,
    ) -> np.ndarray:
        source, fill = self.partitions[partition], self.fill.of(column)
        chunks = self.native(partition, column)
        if chunks is None:
            assert frame is not None
            return dense_array(frame.get_column(column), self.fill, source)
        dtype = stored_dtype(chunks[0], self.schema[column])
        if out is None or out.dtype != dtype or len(out) != self.rows[partition]:
            # A buffer that is to be kept in the cache must be new; any other may be used again for the next column.
            rows = self.rows[partition]
            out = np.empty(rows, dtype) if self.cache else space.array("values", rows, dtype)
        path = str(source.path)
        start, read_before = time.perf_counter(), space.read_seconds
        nulls = self.parquet.read(chunks, files.get(path, chunks), path, space, out.view(chunks[0].dtype), fill)
        read = space.read_seconds - read_before
        self.stats.add("read", read, sum(c.size for c in chunks))
        self.stats.add("decode", time.perf_counter() - start - read, out.nbytes)
        if nulls is None:  # the general reader understands more, and says what is wrong where it does not
            return dense_array(self.read_frame(partition, [column]).get_column(column), self.fill, source)
        if nulls and fill is None:
            raise null_error(self.fill, column, nulls, source)
        return out

    def num_values(self, partition: int, column: str, frame: pl.DataFrame | None) -> int:
        """At most so many values are in the lists of a partition."""
        if (cached := self._cached(partition, column)) is not None:
            return len(cached.values)
        if (chunks := self.native(partition, column)) is not None:
            return sum(c.num_values for c in chunks)
        assert frame is not None
        return int(frame.get_column(column).list.len().sum())

    def lists(
        self, partition: int, column: str, frame: pl.DataFrame | None, files: Files, space: Workspace, out: Ragged
    ) -> Ragged:
        """All lists of a column: in `out` (values at its front, offsets from 0) where they could be decoded there."""
        if (cached := self._cached(partition, column)) is not None:
            return cast("Ragged", cached)
        values = self._decode_lists(partition, column, frame, files, space, out)
        self._check(values.values, column, partition)
        if self.cache is not None:
            kept = Ragged(values.values.copy(), values.offsets.copy())
            values = self.cache.put(partition, column, kept)  # type: ignore[assignment]
        return values

    def _decode_lists(
        self, partition: int, column: str, frame: pl.DataFrame | None, files: Files, space: Workspace, out: Ragged
    ) -> Ragged:
        source = self.partitions[partition]
        chunks = self.native(partition, column)
        if chunks is not None:
            start, read_before, path = time.perf_counter(), space.read_seconds, str(source.path)
            out.offsets[0] = 0
            count = self.parquet.read_lists(chunks, files.get(path, chunks), path, space, out, 0, 0)
            read = space.read_seconds - read_before
            self.stats.add("read", read, sum(c.size for c in chunks))
            self.stats.add("decode", time.perf_counter() - start - read, out.values.nbytes)
            if count is not None:
                return Ragged(out.values[:count], out.offsets)
            frame = self.read_frame(partition, [column])
        assert frame is not None
        return list_array(frame.get_column(column), self.fill, source)

    def _check(self, values: np.ndarray, column: str, partition: int) -> None:
        self.checks[column].require(values, where(self.partitions[partition]))

    def open_files(self) -> Files:
        return Files(self.parquet)


class Files:
    """The files of one chunk, opened when first needed and closed when the chunk is done."""

    def __init__(self, parquet: ParquetColumns) -> None:
        self.parquet = parquet
        self._open: dict[str, OpenFile] = {}
        self._lock = threading.Lock()

    def get(self, path: str, chunks: list[ColumnChunk]) -> OpenFile:
        """A file with the bytes of these chunks at hand."""
        with self._lock:
            if path not in self._open:
                self._open[path] = self.parquet.open(path)
            file = self._open[path]
        file.require(chunks)
        return file
