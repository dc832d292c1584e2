"""Where compiled kernels are kept: in the user's cache, under the checksum of what they were compiled from.

Beside the sources, as numba would have it, a second clone, environment or version of Penstock compiles everything once
more, and going back to an older version does, too. Compiled code is read as pickles: so it lies where only the user
can write, and where that cannot be had, numba's own places serve.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from functools import cache
from importlib.metadata import version
from pathlib import Path

_HERE = Path(__file__).parent
_KEPT = 6  # versions of the kernels, those used last
_ALL = "all-compiled"  # a file that says so
_LEFT_OUT = ("gpu_", "reference")  # modules that nothing numba compiles comes from


@cache
def stamp_of(folder: Path) -> str:
    """The checksum of all modules of a folder that numba compiles, and of the settings that it compiles by.

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
    total = hashlib.blake2b(f"numba {version('numba')} ".encode(), digest_size=16)
    for path in sorted(folder.glob("*.py")):
        if not path.name.startswith(_LEFT_OUT):
            content = path.read_bytes()
            total.update(f"{path.name} {len(content)} ".encode() + content)
    for name, value in sorted(os.environ.items()):
        if name.startswith("NUMBA_") and name != "NUMBA_CACHE_DIR":  # bounds checks, levels of optimisation, …
            total.update(f"{name}={value} ".encode())
    return total.hexdigest()


def home_of(folder: Path = _HERE) -> Path | None:
    """The folder for what was compiled from the kernels of a folder, made if it is not there.

    None where `NUMBA_CACHE_DIR` says otherwise, or where there is no place that is the user's alone. `PENSTOCK_CACHE`
    names another place than the user's cache.
    """
    if os.environ.get("NUMBA_CACHE_DIR") or not hasattr(os, "getuid"):
        return None
    try:
        return _made(_cache_folder() / "kernels", stamp_of(folder))
    except (OSError, RuntimeError):  # a home that is not there, or may not be written to
        return None


@cache
def _made(parent: Path, stamp: str) -> Path | None:
    home = parent / stamp
    is_new = not home.is_dir()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not all(_is_private(place) for place in (parent, home)):
        return None
    os.utime(home)  # used now
    if is_new:
        _sweep(parent)
    return home


def is_compiled() -> bool:
    """Whether any kernel has been compiled for this user and version."""
    elsewhere = os.environ.get("NUMBA_CACHE_DIR")
    place = Path(elsewhere) if elsewhere else home_of() or _HERE / "__pycache__"
    return place.is_dir() and next(place.rglob("*.nbi"), None) is not None


def is_kept() -> bool:
    """Whether kernels are compiled here, and kept in a home of their own."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") == "0" and home_of() is not None


def is_all_compiled() -> bool:
    """Whether all that is compiled ahead has been, for this user and version."""
    home = home_of()
    return home is not None and (home / _ALL).exists()


def note_all_compiled() -> None:
    """Remember that all that is compiled ahead has been."""
    with contextlib.suppress(OSError):  # the home may have been swept
        if (home := home_of()) is not None:
            (home / _ALL).touch()


def _cache_folder() -> Path:
    named = os.environ.get("PENSTOCK_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def _is_private(place: Path) -> bool:
    """Whether only this user can put something there."""
    found = place.lstat()
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def _sweep(parent: Path) -> None:
    """Leave the versions that were used last. A process that still runs an older one compiles what it misses again."""
    homes = [place for place in parent.iterdir() if place.is_dir() and not place.is_symlink()]
    for place in sorted(homes, key=lambda place: place.stat().st_mtime, reverse=True)[_KEPT:]:
        with contextlib.suppress(OSError):
            shutil.rmtree(place)
