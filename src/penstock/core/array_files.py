"""NumPy's files, read within bounds and without running anything."""

from __future__ import annotations

import tokenize
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from penstock.core.bounded import FREE_BYTES
from penstock.core.errors import DataError
from penstock.core.plain_files import open_plain

_MOST_GAIN = 200  # what a byte of an archive may become; deflate reaches a thousand


def load_arrays(
    path: str | Path, names: Sequence[str] | None = None, mmap: bool = False
) -> np.ndarray | dict[str, np.ndarray]:
    """The array in a `.npy` file, or those in an `.npz` file.

    Args:
        path: of the file.
        names: of the arrays that are wanted from an `.npz` file; None takes all.
        mmap: leave the array of a `.npy` file on the disk.

    Returns:
        An array, or arrays by name.

    Raises:
        DataError: it cannot be read, lacks an array, holds Python objects, or would unfold without measure.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.npz"
    >>> np.savez(path, ids=np.arange(3))
    >>> load_arrays(path)["ids"].tolist()
    [0, 1, 2]
    >>> load_arrays(path, ["rows"])
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: ...a.npz holds no arrays that can be read: it lacks 'rows'
    """
    try:
        with open_plain(path) as file:
            if file.read(4)[:2] == b"PK":
                return _unpacked(path, names)
        found: np.ndarray = np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)
        return found
    except (OSError, EOFError, ValueError, TypeError, SyntaxError, OverflowError, MemoryError, RecursionError,
            tokenize.TokenError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:  # fmt: skip
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DataError(f"{path} holds no arrays that can be read: {reason}") from error


def load_array(path: str | Path, mmap: bool = False) -> np.ndarray:
    """The one array in a file, as `load_arrays` reads it.

    Args:
        path: of the file.
        mmap: leave it on the disk.

    Returns:
        The array.

    Raises:
        DataError: it cannot be read, or there are several.
    """
    found = load_arrays(path, mmap=mmap)
    if isinstance(found, np.ndarray):
        return found
    if len(found) != 1:
        raise DataError(f"{path} holds {len(found)} arrays; write the one that is meant with numpy.save")
    return next(iter(found.values()))


def _unpacked(path: str | Path, names: Sequence[str] | None) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as packed:
        unfolded = sum(member.file_size for member in packed.infolist())
    size = Path(path).stat().st_size
    if unfolded > _MOST_GAIN * size + FREE_BYTES:
        raise ValueError(f"it would unfold from {size} to {unfolded} bytes")
    with np.load(path, allow_pickle=False) as stored:
        wanted = stored.files if names is None else names
        if missing := [name for name in wanted if name not in stored.files]:
            raise ValueError(f"it lacks {missing[0]!r}")
        return {name: stored[name] for name in wanted}
