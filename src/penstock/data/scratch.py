"""Temporary folders that live as long as whatever reads from them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from penstock.core.claims import Claim
from penstock.core.errors import DataError, ParameterError
from penstock.core.runtime.forks import Process

_PREFIX = "penstock-scratch-"
_swept: set[str] = set()


class Scratch:
    """A folder removed when its last owner is gone. Copies sent to other processes know the path but own nothing.

    Nobody else can read it: it holds rows of the data. What a process that was killed has left is removed by the next
    one that takes a scratch folder in the same place. Set `PENSTOCK_SCRATCH` to a folder that all workers share when
    Dask or Ray runs on several machines.

    Args:
        parent: where it goes; `PENSTOCK_SCRATCH`, or the system's temporary folder, by default.

    >>> scratch = Scratch(); folder = scratch.path
    >>> folder.is_dir(), oct(folder.stat().st_mode & 0o777)
    (True, '0o700')
    >>> del scratch; folder.exists()
    False
    """

    def __init__(self, parent: Path | None = None) -> None:
        parent = _parent() if parent is None else parent
        self.path, claim = _claimed(parent)
        if str(parent) not in _swept:
            _swept.add(str(parent))
            _sweep(parent)
        weakref.finalize(self, _remove, str(self.path), Process(), claim)

    def __reduce__(self) -> tuple[Callable[[str], Scratch], tuple[str]]:
        return _borrowed, (str(self.path),)


class ScratchCopy:
    """A copy of a file in scratch, for as long as it is written; a block that ends badly still closes it.

    Args:
        path: of the file, for errors.
        name: of the copy.
        scratch: where it goes; a new one where there is none.

    Raises:
        DataError: there is no room for it, or no folder; then and whenever something is written.

    >>> with ScratchCopy("clicks.csv.gz", "clicks.csv") as copy:
    ...     copy.write(b"click,user")
    >>> copy.target.read_bytes()
    b'click,user'
    """

    def __init__(self, path: str, name: str, scratch: Scratch | None = None) -> None:
        self._path = path
        with self._explaining():
            self.scratch = scratch or Scratch()
            self.target = self.scratch.path / name
            self._file = self.target.open("wb")

    def write(self, piece: bytes) -> None:
        """Add bytes."""
        with self._explaining():
            self._file.write(piece)

    def __enter__(self) -> ScratchCopy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            with self._explaining():
                self._file.close()
        else:
            with contextlib.suppress(OSError):
                self._file.close()

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataError(
                f"{self._path} is read from a copy in scratch, which cannot be written ({error.strerror or error}): "
                f"set PENSTOCK_SCRATCH to a folder with room"
            ) from error


def _claimed(parent: Path) -> tuple[Path, Claim]:
    """A folder for its owner alone (0700), and the claim that tells others that it is in use.

    A process that sweeps may come between: it holds the folder for a moment, and may have removed it then.
    """
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        with contextlib.suppress(FileNotFoundError):
            claim = Claim(path, wait=True)
            if claim.is_current():
                return path, claim
            claim.close()


def _parent() -> Path:
    """Where scratch folders go; one that is named and not there yet is made for the user alone."""
    named = os.environ.get("PENSTOCK_SCRATCH")
    if named:
        parent = Path(named)
        with contextlib.suppress(FileExistsError):
            parent.mkdir(parents=True, mode=0o700)
        if not parent.is_dir():
            raise ParameterError(f"PENSTOCK_SCRATCH is {parent}, which is not a folder; name one")
        return parent
    return Path(tempfile.gettempdir())


def _sweep(parent: Path) -> None:
    """Remove the folders of processes that are dead: a live one holds a claim on each of its own."""
    with contextlib.suppress(OSError), os.scandir(parent) as found:
        for entry in found:
            with contextlib.suppress(OSError):
                if entry.name.startswith(_PREFIX) and _is_own(entry):
                    with Claim(Path(entry.path)) as claim:
                        if claim.held:
                            shutil.rmtree(entry.path, ignore_errors=True)


def _is_own(entry: os.DirEntry[str]) -> bool:
    is_folder = entry.is_dir(follow_symlinks=False)
    return is_folder and (not hasattr(os, "getuid") or entry.stat(follow_symlinks=False).st_uid == os.getuid())


def _remove(path: str, owner: Process, claim: Claim) -> None:
    if owner.is_this():  # a forked child must not remove what its parent still reads
        shutil.rmtree(path, ignore_errors=True)
    claim.close()


def _borrowed(path: str) -> Scratch:
    scratch = object.__new__(Scratch)
    scratch.path = Path(path)
    return scratch
