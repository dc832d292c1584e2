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
from penstock.compat.after_import import LoadThenCall
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
    return None


def _imports_from(frame: FrameType) -> bool:
    # `from module import name` turns every AttributeError into a text of its own; an ImportError it lets through.
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM


def install() -> None:
    """Let Python find these modules; `penstock.compat` does so when it is imported."""
    if not any(isinstance(finder, TableFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, TableFinder())
