"""`import nvtabular` means `penstock.compat.nvtabular`, once someone has asked for it."""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec
from multiprocessing import spawn
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.compat import cpu as _cpu
from penstock.compat import names, other_libraries, settings
from penstock.compat.missing import PREFIX, CompatError, missing_module
from penstock.compat.modules import find_elsewhere
from penstock.core.params import ListOf, OneOf, check


class _Finder(importlib.abc.MetaPathFinder):
    """Finds old names, and hands out the module of the same place in `penstock.compat`."""

    def __init__(self) -> None:
        self.packages: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if names.library_of(fullname) not in self.packages:
            return None
        real = importlib.util.find_spec(PREFIX + fullname)
        if real is None:
            if (error := missing_module(fullname)) is not None:
                raise error
            return None
        spec = ModuleSpec(fullname, _Alias(), origin=real.origin)
        spec.submodule_search_locations = real.submodule_search_locations
        return spec


class _Alias(importlib.abc.Loader):
    """The very module under its own name, so that a class is one class however it was imported."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(PREFIX + spec.name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has just written the alias's over it


_finder = _Finder()


def activate(
    *, packages: Iterable[str] = names.LIBRARIES, force: bool = False, nvtabular: str | None = None, cpu: bool = False
) -> None:
    """Make the imports of old code resolve to Penstock, here and in the processes that multiprocessing starts.

    `packages`: which of nvtabular, merlin and persia. `force`: also where the real package is installed. `nvtabular`:
    whose conventions its loaders follow ("0.5", "1.0" or "latest"). `cpu`: where there is no CUDA, let what asks torch
    for it run on the CPU. From then on `model.save` of Keras writes a SavedModel where the path has no suffix, as it
    did in TensorFlow 2, text in pandas' and Dask's frames is a column of objects, and NumPy has its names of 1.x.
    Calling it again adds to what is active.

    >>> activate(packages=["nvtabular"])
    >>> active()
    ['nvtabular']
    >>> deactivate()
    """
    wanted = list(packages)
    check("packages", wanted, ListOf(OneOf(names.LIBRARIES)))
    for package in wanted:
        if package not in _finder.packages:
            _refuse_the_real_one(package, force)
    if not _finder.packages:
        settings.forget_the_program()
    settings.use(nvtabular=nvtabular)
    _finder.packages.update(wanted)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    other_libraries.as_they_were()
    other_libraries.save_folders()
    if cpu:
        _cpu.map_to_cpu()
    follow(activate, {"packages": active(), "force": True, "cpu": _cpu.mapped()})


def active() -> list[str]:
    """The old packages whose names resolve to Penstock now.

    >>> active()
    []
    """
    return sorted(_finder.packages)


def deactivate() -> None:
    """Undo `activate`: old names no longer resolve. Objects made meanwhile go on working."""
    for name in [n for n in sys.modules if names.library_of(n) in _finder.packages]:
        del sys.modules[name]
    _finder.packages.clear()
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    settings.reset()
    other_libraries.undo()
    _cpu.unmap()
    forget()


def _refuse_the_real_one(package: str, force: bool) -> None:
    if package in sys.modules:
        where = getattr(sys.modules[package], "__file__", None) or "elsewhere"
        raise CompatError(f"{package} is imported already, from {where}; activate Penstock's before the first import")
    spec = find_elsewhere(package, None, without=_finder)
    if spec is not None and not force and (place := _code_of(spec, package)) is not None:
        raise CompatError(
            f"the real {package} is installed ({place}); uninstall it, leave it out of packages=, or put Penstock in "
            f"its place with force=True (penstock run --force)"
        )


def _code_of(spec: ModuleSpec, package: str) -> str | None:
    """Where the package's code lies; None for a folder that only bears its name, such as one of data."""
    if spec.origin is not None:
        return spec.origin
    known = {module.split(".")[1] for module in names.table(package).modules if "." in module}
    folders: list[Any] = list(spec.submodule_search_locations or [])
    parts = (Path(folder) / part for folder in folders for part in sorted(known))
    return next((str(part) for part in parts if (part / "__init__.py").is_file()), None)


# Processes that multiprocessing starts afresh (`spawn`, `forkserver`) do what their parent did first.
#
# Such a child unpickles a dict of preparations before it runs the user's code; an object in it whose unpickling is
# the call does the work. Forked children need nothing: they inherit everything.

_original = spawn.get_preparation_data
_KEY = "penstock"


class _Call:
    def __init__(self, function: Callable, arguments: dict[str, Any]) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple:
        return functools.partial(self.function, **self.arguments), ()


def follow(function: Callable, arguments: dict[str, Any]) -> None:
    """Call `function(**arguments)` first thing in every child that is started from now on."""

    @functools.wraps(_original)
    def get_preparation_data(name: str) -> dict[str, Any]:
        return {_KEY: _Call(function, arguments), **_original(name)}

    spawn.get_preparation_data = get_preparation_data


def forget() -> None:
    """Let children start as usual."""
    spawn.get_preparation_data = _original
