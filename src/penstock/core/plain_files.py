"""Opening what must be a plain file: a pipe in its place would keep its reader waiting for ever."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

READ_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""To open a file to be read, without waiting for whoever may write to a pipe."""


def open_plain(path: str | Path) -> BufferedReader:
    """A plain file, to be read as bytes.

    Args:
        path: of the file; links are followed.

    Returns:
        The open file.

    Raises:
        OSError: it is not there, or is a folder, a pipe, a socket or a device.

    >>> open_plain("/dev/null")
    Traceback (most recent call last):
    ...
    OSError: [Errno 22] a pipe or a device, not a file: '/dev/null'
    """
    handle = os.open(path, READ_FLAGS)
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "a pipe or a device, not a file", str(path))
