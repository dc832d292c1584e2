"""A file whose footer has been read, held open while chunks of it are."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TypeAlias

import numpy as np

from penstock.core.errors import DataError
from penstock.core.plain_files import READ_FLAGS
from penstock.loader.parquet_chunks import ColumnChunk
from penstock.loader.remote_file import RemoteFile, RemoteStamp, joined

_ANNOUNCED = 1 << 20  # bytes at a time


def stamp_of(status: os.stat_result) -> tuple[int, int]:
    """What tells a local file from one that takes its place: size and time."""
    return status.st_size, status.st_mtime_ns


class OpenFile:
    """A parquet file held open while a chunk of it is read; it must be the file whose footer was read before."""

    def __init__(self, path: str, stamp: tuple[int, int]) -> None:
        try:
            handle = os.open(path, READ_FLAGS)
        except OSError as error:
            raise DataError(f"{path} cannot be opened any more: {error.strerror}") from error
        self.handle, self._path, self._stamp = handle, path, stamp
        self.check_unchanged()

    def check_unchanged(self) -> None:
        """Refuse a file that is no longer the one whose footer was read."""
        if stamp_of(os.fstat(self.handle)) != self._stamp:
            raise DataError(f"{self._path} was changed after the loader had opened it; make a new loader")

    def require(self, chunks: list[ColumnChunk]) -> None:
        """Have the bytes of column chunks at hand."""

    def announce(self, chunks: list[ColumnChunk]) -> None:
        """Say what will be read soon, so that the system has several reads of a cold file under way.

        It takes no more than a few pages at a time; for what is in memory already this costs next to nothing.
        """
        if not hasattr(os, "posix_fadvise"):
            return
        end = os.fstat(self.handle).st_size  # a footer may say anything
        ranges = ((max(c.offset, 0), min(c.offset + c.size, end)) for c in chunks)
        with contextlib.suppress(OSError):  # a file system need not know of it
            for low, high in joined(r for r in ranges if r[0] < r[1]):
                for start in range(low, high, _ANNOUNCED):
                    os.posix_fadvise(self.handle, start, min(_ANNOUNCED, high - start), os.POSIX_FADV_WILLNEED)

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


class FetchedFile(OpenFile):
    """A file of another file system; chunks are fetched before they are read."""

    def __init__(self, stamp: RemoteStamp) -> None:
        self._remote = RemoteFile(stamp)
        self.handle = os.dup(self._remote.handle)

    def require(self, chunks: list[ColumnChunk]) -> None:
        self._remote.require(chunks)

    def announce(self, chunks: list[ColumnChunk]) -> None:
        self._remote.require(chunks)


Stamp: TypeAlias = tuple[int, int] | RemoteStamp  # size and time of a local file
