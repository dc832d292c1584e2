"""Compiled kernels are kept from one process to the next for as long as no kernel has changed.

numba keeps machine code beside the file of a function and throws it away when that file changes. It does not look at
the files of the functions that were compiled into it: after a change there, old and new arithmetic would be mixed
without a word. Here all kernels share one stamp, the checksum of all files of this folder.
"""

from __future__ import annotations

import hashlib
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba
from numba.core import caching

_HERE = Path(__file__).parent


@cache
def stamp_of(folder: Path) -> str:
    """The checksum of all modules of a folder.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "a.py").write_text("x = 1")
    5
    >>> before = stamp_of(folder)
    >>> (folder / "a.py").write_text("x = 2")
    5
    >>> stamp_of.cache_clear()
    >>> stamp_of(folder) == before
    False
    """
    total = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.glob("*.py")):
        content = path.read_bytes()
        total.update(f"{path.name} {len(content)} ".encode() + content)
    return total.hexdigest()


class KernelLocator:
    """Where numba would keep the code of a kernel, with the stamp of all kernels instead of its own file's."""

    folder = _HERE
    others: tuple[Any, ...] = ()  # numba's own locators, of which the first that can serves

    def __init__(self, place: Any) -> None:
        self._place = place

    @classmethod
    def from_function(cls, function: Any, file: str) -> KernelLocator | None:
        """For a function of this folder; None leaves any other to numba."""
        if Path(file).parent != cls.folder:
            return None
        found = (other.from_function(function, file) for other in cls.others)
        return next((cls(place) for place in found if place is not None), None)

    def get_source_stamp(self) -> str:
        """What must be the same for the code to be used."""
        return stamp_of(self.folder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)


def install(locator: type[KernelLocator]) -> None:
    """Let numba ask this locator first."""
    classes: list[Any] = caching.CacheImpl._locator_classes
    locator.others = tuple(classes)
    classes.insert(0, locator)


install(KernelLocator)
# Taken from here, so that the locator is in its place before a kernel is decorated. Nobody calls kernels from C, and
# an entry for that would be compiled for each (a seventh of the time).
njit: Any = partial(numba.njit, no_cfunc_wrapper=True)
