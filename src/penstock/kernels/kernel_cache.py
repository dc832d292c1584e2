"""Compiled kernels are kept from one process to the next for as long as no kernel has changed.

numba keeps machine code beside the file of a function and throws it away when that file changes. It does not look at
the files of the functions that were compiled into it: after a change there, old and new arithmetic would be mixed
without a word. Here all kernels share one stamp, the checksum of all their files, and a place that goes by it.

Nor does numba know of other processes: those that start together on a fresh machine would each compile everything.
Here a kernel is compiled by one of them, and the others wait for it and load what it made.
"""

from __future__ import annotations

import fcntl
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numba
from numba.core import caching
from numba.core.compiler_lock import global_compiler_lock

from penstock.kernels.kernel_home import home_of, stamp_of
from penstock.kernels.kernel_linking import linked

_HERE = Path(__file__).parent
_njit: Any = numba.njit  # some of its options are missing from its types
_PATIENCE = 120.0  # seconds to wait for another process: it may have been stopped in the middle
_PAUSE = 0.02


class KernelLocator:
    """Where the code of a kernel is kept: in the home of all kernels, or where numba would keep it."""

    folder = _HERE
    others: tuple[Any, ...] = ()  # numba's own locators, of which the first that can serves

    def __init__(self, place: Any, home: Path | None) -> None:
        self._place = place
        self._home = home

    @classmethod
    def from_function(cls, function: Any, file: str) -> KernelLocator | None:
        """For a function of this folder; None leaves any other to numba."""
        if Path(file).parent != cls.folder:
            return None
        found = (other.from_function(function, file) for other in cls.others)
        place = next((place for place in found if place is not None), None)
        return None if place is None else cls(place, home_of(cls.folder))

    def get_cache_path(self) -> str:
        """The folder of the compiled code."""
        return str(self._home or self._place.get_cache_path())

    def ensure_cache_path(self) -> None:
        """See to it that the folder is there."""
        if self._home is None:
            self._place.ensure_cache_path()
        else:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may have been swept

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


def njit(**options: Any) -> Callable[[Any], Any]:
    """`numba.njit` for kernels: taken from here, so that the locator is in its place before one is decorated.

    Nobody calls kernels from C, and an entry for that would be compiled for each (a seventh of the time). What kernels
    use of numba's own functions is compiled once for each set of options: so few sets as can be.
    `optimised_apart` is for kernels whose callers become slower when their optimisation is left to them.
    """
    apart = options.pop("optimised_apart", False)
    decorate = _njit(**{"no_cfunc_wrapper": True, "boundscheck": False, **options})
    return lambda function: _compiled_once(linked(decorate(function), apart))


def _compiled_once(kernel: Any) -> Any:
    """The kernel, which looks for compiled code again after another process has been at it."""
    compile_here = kernel.compile

    def compile_in_turn(signature: Any) -> Any:
        # In this order: a thread that had its turn but not numba's lock could wait for one that has that lock, which
        # waits for a process that waits for this turn.
        with global_compiler_lock, _turn(kernel._cache), _garbage_left():
            return compile_here(signature)

    kernel.compile = compile_in_turn
    return kernel


@contextmanager
def _garbage_left() -> Iterator[None]:
    """A block in which nobody looks for garbage: compiling makes objects by the million, and hardly any of it."""
    looked_for = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looked_for:
            gc.enable()


@contextmanager
def _turn(kept: Any) -> Iterator[None]:
    """A block that one process at a time is in, for each kernel.

    The lock is the process's own: a fork does not inherit it, and it ends with the process.
    """
    held = _lock_of(kept)
    try:
        yield
    finally:
        if held is not None:
            held.close()


def is_busy(kernel: Any) -> bool:
    """Whether another process has its turn with a kernel."""
    try:
        with _lock_file(kernel._cache) as file:
            return not _locked(file)
    except (AttributeError, OSError):
        return False


def _lock_file(kept: Any) -> IO[str]:
    kept._impl.locator.ensure_cache_path()
    return (Path(kept.cache_path) / f"{kept._impl.filename_base}.lock").open("a")


def _lock_of(kept: Any) -> IO[str] | None:
    """The file that is locked for this process, or None: where code cannot be kept there is nothing to wait for."""
    try:
        file = _lock_file(kept)
        until = time.monotonic() + _PATIENCE
        while not _locked(file) and time.monotonic() < until:
            time.sleep(_PAUSE)
    except (AttributeError, OSError):  # a kernel that is not kept; a folder or a file system that takes no locks
        return None
    return file


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
