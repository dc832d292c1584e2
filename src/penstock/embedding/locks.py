"""One writer at a time: a lock beside the folder that is written, held by the operating system, not by a file's age."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.core.errors import ArtefactError, PenstockError
from penstock.core.file_names import check_path
from penstock.core.runtime.forks import Process


class SecondWriterError(PenstockError, RuntimeError):
    """Another process or thread is writing to the same place."""


class WriteLock:
    """Taken at once or refused; released when closed, and by the system when the process dies.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "feed"
    >>> lock = WriteLock(place)
    >>> WriteLock(place)
    Traceback (most recent call last):
    ...
    penstock.embedding.locks.SecondWriterError: ...feed is being written by process ...
    >>> lock.close()
    """

    def __init__(self, place: Path) -> None:
        self._path = place.parent / f".{place.name}.lock"
        self._take(place)
        while not self._is_current():  # removed by its last holder between opening and locking: take the new one
            os.close(self._file)
            self._take(place)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, str(Process().number).encode(), 0)

    def _is_current(self) -> bool:
        try:
            return os.fstat(self._file).st_ino == self._path.stat().st_ino
        except FileNotFoundError:
            return False

    def _take(self, place: Path) -> None:
        check_path(self._path, ArtefactError)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            import fcntl

            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # no such locks on this system: renaming into place is still atomic
            pass
        except OSError:
            owner = os.pread(self._file, 32, 0).decode(errors="replace") or "another process"
            os.close(self._file)
            raise SecondWriterError(
                f"{place} is being written by process {owner}; a store has one writer, wait for it or stop it"
            ) from None

    def close(self) -> None:
        """Let the next writer in."""
        if self._file >= 0:
            try:
                self._path.unlink(missing_ok=True)
            finally:
                os.close(self._file)
                self._file = -1


@contextmanager
def write_lock(place: Path) -> Iterator[None]:
    """Hold a `WriteLock` for a block."""
    lock = WriteLock(place)
    try:
        yield
    finally:
        lock.close()
