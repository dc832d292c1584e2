"""Columns on their way to a device that decodes them: their bytes as files have them, read now or pinned before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from penstock.data.files import is_remote
from penstock.loader.device_pins import HostPins
from penstock.loader.encoded import EncodedColumns, FoundColumn, FoundPiece, limits_of
from penstock.loader.kept_pages import KeptPages
from penstock.loader.parquet import Workspace
from penstock.loader.parquet_chunks import ColumnChunk, stored_dtype

if TYPE_CHECKING:
    from penstock.loader.columns import ColumnSource, Files

_DECODED = ("int32", "int64", "float32", "float64")  # as they are stored


class DeviceColumns:
    """What a device gets of a source's columns.

    Args:
        source: of the columns.
    """

    def __init__(self, source: ColumnSource) -> None:
        self._source = source
        self._chunks: dict[tuple[int, str], list[ColumnChunk] | None] = {}
        self._kept: KeptPages | None = None

    def sizes_to_read(self, partitions: Sequence[int], column: str) -> list[int] | None:
        """Bytes that a device needs of each of these partitions, none for those that are pinned; None if it cannot."""
        natives = [self._for_device(partition, column) for partition in partitions]
        if any(native is None or native[0].dtype != natives[0][0].dtype for native in natives):  # type: ignore[index]
            return None
        pairs = zip(partitions, natives, strict=True)
        return [sum(c.size for c in native or ()) for p, native in pairs if not self.is_pinned(p, column)]

    def _for_device(self, partition: int, column: str) -> list[ColumnChunk] | None:
        """A partition's column as a device can decode it: plain pages of numbers that it can check."""
        key, source = (partition, column), self._source
        if key not in self._chunks:
            said = source.schema[column]
            chunks = None if source.cache is not None or said.is_list else source.native(partition, column)
            stored = None if not chunks else stored_dtype(chunks[0], said)
            plain = chunks and all(c.codec.name == "none" for c in chunks)
            known = stored is not None and stored.name in _DECODED
            checked = stored is not None and limits_of(source.checks[column], stored) is not None
            self._chunks[key] = chunks if plain and known and checked else None
        return self._chunks[key]

    def find_at_once(
        self, partitions: Sequence[int], column: str, files: Files, space: Workspace, encoded: EncodedColumns
    ) -> bool:
        """Read a column of whole partitions as its files have it; False where the host must decode it after all."""
        if self.sizes_to_read(partitions, column) is None:
            return False
        pieces: list[FoundPiece] = []
        for is_kept, stretch in groupby(partitions, key=lambda partition: self.is_pinned(partition, column)):
            found = (self._pinned if is_kept else self._read)(list(stretch), column, files, space, encoded)
            if found is None:
                return False
            pieces += found
        stored = self._source.dtype(partitions[0], column, None)
        limits = limits_of(self._source.checks[column], stored)
        assert limits is not None
        encoded.add(FoundColumn(column, stored, pieces, limits))
        return True

    def _pinned(
        self, partitions: list[int], column: str, files: Files, space: Workspace, encoded: EncodedColumns
    ) -> list[FoundPiece] | None:
        """What is known of pinned partitions, if their files are still the same."""
        assert self._kept is not None
        pieces: list[FoundPiece] = []
        opened = [files.get(str(self._source.partitions[partition].path), []) for partition in partitions]
        for partition in partitions:
            pieces += self._kept.pieces(partition, column)
        size = sum(piece.source.size for piece in pieces if piece.source is not None)
        return pieces if encoded.claim(size, opened) else None

    def _read(
        self, partitions: list[int], column: str, files: Files, space: Workspace, encoded: EncodedColumns
    ) -> list[FoundPiece] | None:
        """Partitions as they are read: their bytes lie together."""
        start, natives = time.perf_counter(), [self._for_device(partition, column) or [] for partition in partitions]
        paths = [str(self._source.partitions[partition].path) for partition in partitions]
        opened = [files.get(path, native) for path, native in zip(paths, natives, strict=True)]
        read = [(chunk, file) for file, native in zip(opened, natives, strict=True) for chunk in native]
        size = sum(chunk.size for chunk, _ in read)
        first = encoded.reserve(size)
        found = self._source.parquet.find_runs(read, space, encoded.buffer, first)
        self._source.stats.add("read", time.perf_counter() - start, size)
        if found is None:
            return None
        if self._kept is not None and not any(is_remote(path) for path in paths):
            self._kept.note(partitions, paths, column, natives, *found, first)
        return [FoundPiece(*found, sum(chunk.num_rows for chunk, _ in read))]

    def keep_pages(self, pins: HostPins | None, processes: int = 1) -> None:
        """For each epoch whose pages a device decodes: what can be pinned for it is not read again and again."""
        if pins is not None and self._kept is None:
            self._kept = KeptPages(pins, self._source.parquet.open, processes)
        if self._kept is not None:
            self._kept.begin_epoch()

    def is_pinned(self, partition: int, column: str) -> bool:
        """Whether nothing of a column needs to be read."""
        return self._kept is not None and self._kept.is_pinned(partition, column)
