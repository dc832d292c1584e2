"""Modules of the old libraries: a file where old behaviour needs one, and in all else what the table of names lists.

A module that has no file is made from the table. One that has a file is completed from it: names that live elsewhere
come when they are first asked for, submodules too, and a name that is not here says why.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import opcode
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from penstock.compat import names
from penstock.compat.missing import PREFIX, missing, old_name

_HERE = Path(__file__).parent
_IMPORT_FROM = opcode.opmap["IMPORT_FROM"]


class TableFinder(importlib.abc.MetaPathFinder):
    """Finds `penstock.compat.nvtabular`, `merlin` and `persia`, and what lies in them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        old = old_name(fullname)
        if old == fullname or names.library_of(old) not in names.LIBRARIES:
            return None
        folder = _HERE.joinpath(*old.split(".")[:-1])  # and not `path`, which is empty below a module without a file
        spec = importlib.machinery.PathFinder.find_spec(fullname, [str(folder)])
        if spec is not None and spec.loader is not None and spec.origin is not None:
            spec.loader = LoadThenCall(spec.loader, complete)
            return spec
        if not names.known_module(old):
            return None
        library = names.library_of(old)
        is_package = old not in names.table(library).modules or bool(names.submodules(old))
        return ModuleSpec(fullname, _FromTable(), origin=f"{library}.yaml", is_package=is_package)


class _FromTable(importlib.abc.Loader):
    """A module without a file: all of it is in the table."""

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = f"`{old_name(module.__name__)}`: names that live elsewhere, as the table of names says."
        complete(module)


def complete(module: ModuleType) -> None:
    """Give a module the names that the table lists for it.

    >>> module = ModuleType("penstock.compat.nvtabular.column_selector")
    >>> complete(module)
    >>> module.__all__, module.ColumnSelector.__module__
    (['ColumnSelector'], 'penstock.compat.merlin.dag.selector')
    """
    old = old_name(module.__name__)
    module.__getattr__ = _getattr(module, old, module.__dict__.get("__getattr__"))  # type: ignore[method-assign]
    entries = names.table(names.library_of(old)).modules.get(old, {})
    listed = [name for name, entry in entries.items() if entry.status != names.ABSENT and not name.startswith("_")]
    module.__all__ = sorted({*listed, *getattr(module, "__all__", ())})  # type: ignore[attr-defined]
    module.__dir__ = lambda: sorted({*module.__dict__, *module.__all__, *names.submodules(old)})  # type: ignore


def _getattr(module: ModuleType, old: str, own: Callable[[str], Any] | None) -> Callable[[str], Any]:
    def get(name: str) -> Any:
        value = _found(old, name)
        if value is None and own is not None:
            return own(name)
        if value is None:
            raise missing(old, name, dir(module), _imports_from(sys._getframe(1)))
        setattr(module, name, value)
        return value

    return get


def _found(old: str, name: str) -> Any:
    """What the table says that a name is; None where it says no such thing."""
    entry = names.table(names.library_of(old)).modules.get(old, {}).get(name)
    if entry is not None and entry.home:
        where, _, attribute = entry.home.rpartition(".")
        home = where if entry.home.startswith(names.NATIVE) else PREFIX + where
        return getattr(importlib.import_module(home), attribute)
    if names.known_module(f"{old}.{name}"):
        return importlib.import_module(f"{PREFIX}{old}.{name}")
    if name.startswith("_") and not name.startswith("__"):
        return _private(old, name)
    return None


def _private(old: str, name: str) -> Any:
    """A private name of a module without a file: it lies where the public ones do."""
    entries = names.table(names.library_of(old)).modules.get(old, {}).values()
    homes = dict.fromkeys(entry.home.rpartition(".")[0] for entry in entries if entry.home)
    places = (importlib.import_module(h if h.startswith(names.NATIVE) else PREFIX + h) for h in homes if h != old)
    return next((vars(place)[name] for place in places if name in vars(place)), None)


def _imports_from(frame: FrameType) -> bool:
    # `from module import name` turns every AttributeError into a text of its own; an ImportError it lets through.
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM


def install() -> None:
    """Let Python find these modules; `penstock.compat` does so when it is imported."""
    if not any(isinstance(finder, TableFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, TableFinder())


# Do something to a package as soon as it has been imported, and not before: old code decides whether it is.


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function once the module it waits for has been executed.

    >>> seen = []
    >>> waiting = AfterImport("this_is_not_there", seen.append)
    >>> waiting.start(), seen, waiting.stop()
    (None, [], None)
    """

    def __init__(self, name: str, then: Callable[[ModuleType], Any]) -> None:
        self.name, self.then = name, then

    def start(self) -> None:
        """Wait; a module that is there already is not waited for."""
        if self.name in sys.modules:
            self.then(sys.modules[self.name])
        else:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Wait no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def _loaded(self, module: ModuleType) -> None:
        self.stop()
        self.then(module)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        spec = find_elsewhere(fullname, path, without=self)
        if spec is not None and spec.loader is not None:
            spec.loader = LoadThenCall(spec.loader, self._loaded)
        return spec


class LoadThenCall(importlib.abc.Loader):
    """Loads a module as its own loader does, then calls a function with it."""

    def __init__(self, loader: Any, then: Callable[[ModuleType], Any]) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then(module)

    def __getattr__(self, name: str) -> Any:  # whoever asks for source or file names gets the file's
        return getattr(self.__dict__["_loader"], name)


def find_elsewhere(name: str, path: Sequence[str] | None, without: Any) -> ModuleSpec | None:
    """The spec that all finders but one would give."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if finder is without or find is None:
            continue
        if (spec := find(name, path)) is not None:
            return spec
    return None
