"""Temporary folders that live as long as whatever reads from them."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

from penstock.core.runtime.forks import Process


class Scratch:
    """A folder removed when its last owner is gone. Copies sent to other processes know the path but own nothing.

    Set `PENSTOCK_SCRATCH` to a folder that all workers share when Dask or Ray runs on several machines.

    >>> scratch = Scratch(); folder = scratch.path
    >>> folder.is_dir()
    True
    >>> del scratch; folder.exists()
    False
    """

    def __init__(self) -> None:
        parent = os.environ.get("PENSTOCK_SCRATCH") or None
        if parent:
            Path(parent).mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix="penstock-", dir=parent))
        weakref.finalize(self, _remove, str(self.path), Process())

    def __reduce__(self) -> tuple[Callable[[str], Scratch], tuple[str]]:
        return _borrowed, (str(self.path),)


def _remove(path: str, owner: Process) -> None:
    if owner.is_this():  # a forked child must not remove what its parent still reads
        shutil.rmtree(path, ignore_errors=True)


def _borrowed(path: str) -> Scratch:
    scratch = object.__new__(Scratch)
    scratch.path = Path(path)
    return scratch
