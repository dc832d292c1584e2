"""Do something to a package as soon as it has been imported, and not before: old code decides whether it is."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


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
