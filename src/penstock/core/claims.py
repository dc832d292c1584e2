"""Claims on files and folders: locks that the system holds, and gives back when the process dies."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing is ever known to be free, so nothing is swept
    fcntl = None  # type: ignore[assignment]


class Claim:
    """An exclusive lock on a file or folder that is there.

    `held` says whether it was free; a system or file system without such locks never gives one.

    Args:
        path: the file or folder.
        wait: until it is free.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with Claim(folder) as first, Claim(folder) as second:
    ...     print(first.held, second.held, first.is_current())
    True False True
    """

    def __init__(self, path: Path, wait: bool = False) -> None:
        self.path, self.held = path, False
        self._file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # whatever it is, do not wait for it
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            self.held = True
        except OSError:  # somebody has it, or this file system has no locks
            return

    def is_current(self) -> bool:
        """Whether what was opened still has the name it was opened by."""
        try:
            return os.path.samestat(os.fstat(self._file), self.path.lstat())
        except OSError:
            return False

    def close(self) -> None:
        """Give it back."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
