"""Parquet files of other file systems (`s3://…`), read by the kernels that read local ones.

What a chunk needs of a file is fetched in a few requests side by side, and written at its own place into a file that
lies in memory alone and has holes everywhere else: from there on it is a local file with a handle.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterable
from typing import Any

from penstock.core.errors import DataError
from penstock.data.files import filesystem
from penstock.loader.parquet_chunks import ColumnChunk

PIECE = 2 << 20  # bytes a request: several are in flight for a partition (`benchmarks/loader_remote.py --pieces`)
GAP = 256 << 10  # bytes nobody asked for that are fetched rather than asked around

Range = tuple[int, int]  # first byte, and the one behind the last


class RemoteStamp:
    """What tells a remote file from another that has taken its place."""

    def __init__(self, path: str, storage_options: dict[str, Any] | None) -> None:
        self.path, self.storage_options = path, storage_options
        self.size, self.version = self._ask()

    def _ask(self) -> tuple[int, str]:
        try:
            system = filesystem(self.path, self.storage_options)
            system.invalidate_cache(self.path)  # what it knew of the file is what we want to know anew
            found = system.info(self.path)
        except Exception as error:  # every file system has errors of its own
            raise DataError(f"{self.path} cannot be opened any more: {error}") from error
        names = ("ETag", "etag", "md5Hash", "LastModified", "last_modified", "mtime", "created")
        return int(found["size"]), repr([found.get(name) for name in names])

    def require_same(self) -> None:
        """Refuse a file that was written again.

        Raises:
            DataError: it was, or it is gone.
        """
        if self._ask() != (self.size, self.version):
            raise DataError(f"{self.path} was changed after the loader had opened it; make a new loader")


class RemoteFile:
    """A remote file's bytes at their own places in memory, as far as they were asked for."""

    def __init__(self, stamp: RemoteStamp) -> None:
        self.path, self._stamp = stamp.path, stamp
        self.handle = _memory_file(self.path)
        os.ftruncate(self.handle, stamp.size)
        self._there: list[Range] = []
        self._lock = threading.Lock()

    def require(self, chunks: Iterable[ColumnChunk]) -> None:
        """Have the bytes of column chunks here; those that are missing are fetched, and others wait meanwhile.

        Raises:
            DataError: they cannot be had, or the file is no longer the one whose footer was read.
        """
        with self._lock:
            wanted = [(c.offset, c.offset + c.size) for c in chunks if c.size]  # an empty one may lie anywhere
            self._require_inside(wanted)
            missing = joined(r for r in wanted if not any(low <= r[0] and r[1] <= high for low, high in self._there))
            if missing:
                self._fetch([piece for one in missing for piece in pieces(one)])
                self._there += missing

    def _require_inside(self, ranges: list[Range]) -> None:
        """Refuse bytes that the file cannot have, before anybody asks for them or takes memory for them."""
        for low, high in ranges:
            if not 0 <= low <= high <= self._stamp.size:
                self._stamp.require_same()
                raise DataError(
                    f"{self.path} is damaged: its footer speaks of bytes {low} to {high}, and it has "
                    f"{self._stamp.size}; write it again"
                )

    def _fetch(self, ranges: list[Range]) -> None:
        try:
            self._fetch_any(ranges)
        finally:  # bytes of another version may have come, or none: that is what is wrong then
            self._stamp.require_same()

    def _fetch_any(self, ranges: list[Range]) -> None:
        system = filesystem(self.path, self._stamp.storage_options)
        starts, ends = ([r[side] for r in ranges] for side in (0, 1))
        try:
            found = system.cat_ranges([self.path] * len(ranges), starts, ends, on_error="return")
        except Exception as error:  # every file system has errors of its own
            raise DataError(f"{self.path} could not be read ({error})") from error
        for (start, end), content in zip(ranges, found, strict=True):
            if isinstance(content, BaseException):
                raise DataError(f"{self.path}: bytes {start} to {end} could not be read ({content})") from content
            if len(content) != end - start:
                raise DataError(
                    f"{self.path} ends at byte {start + len(content)}, inside its data; it was truncated, "
                    f"write it again"
                )
            done, view = 0, memoryview(content)
            while done < len(view):
                done += os.pwrite(self.handle, view[done:], start + done)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            os.close(self.handle)


def joined(ranges: Iterable[Range]) -> list[Range]:
    """Ranges in order, neighbours as one.

    >>> joined([(4, 9), (0, 4), (10**6, 10**6 + 1)])
    [(0, 9), (1000000, 1000001)]
    """
    out: list[Range] = []
    for low, high in sorted(ranges):
        if out and low - out[-1][1] <= GAP:
            out[-1] = out[-1][0], max(out[-1][1], high)
        else:
            out.append((low, high))
    return out


def pieces(one: Range) -> list[Range]:
    """A range in requests of about equal size, none larger than `PIECE`.

    >>> [high - low for low, high in pieces((5, 5 + 2 * PIECE + 1))]
    [1398102, 1398102, 1398101]
    """
    low, high = one
    count = max(1, -(-(high - low) // PIECE))
    step = -(-(high - low) // count)
    return [(start, min(start + step, high)) for start in range(low, high, step)]


def _memory_file(path: str) -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("penstock-remote", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile(prefix="penstock-remote-") as file:
        return os.dup(file.fileno())
