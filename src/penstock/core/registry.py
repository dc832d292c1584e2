"""Classes by name: what settings, the command line and saved things call them by."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from penstock.core.extras import require

Made = TypeVar("Made")


class Registry(Mapping[str, type[Made]], Generic[Made]):
    """Classes by name. One is imported when it is asked for, so that the command line knows all names at once.

    Args:
        places: where each class is, as `package.module:Class` by name.
        name_of: what a class that is registered is called.
        extra: the package, and the extra of the same name, that the classes need.

    >>> counters = Registry({"Counter": "collections:Counter"}, name_of=lambda found: found.__name__)
    >>> list(counters), counters["Counter"].__module__
    (['Counter'], 'collections')
    >>> @counters.register
    ... class Own: ...
    >>> list(counters)
    ['Counter', 'Own']
    """

    def __init__(
        self, places: Mapping[str, str], name_of: Callable[[type[Made]], str], extra: str | None = None
    ) -> None:
        self.places = dict(places)
        self._name_of, self._extra = name_of, extra
        self._registered: dict[str, type[Made]] = {}

    def __getitem__(self, name: str) -> type[Made]:
        if name in self._registered:
            return self._registered[name]
        module, _, own = self.places[name].partition(":")
        if self._extra is not None:
            require(self._extra, self._extra)
        found: type[Made] = getattr(importlib.import_module(module), own)
        return found

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self.places, *self._registered])

    def __len__(self) -> int:
        return len({*self.places, *self._registered})

    def register(self, made: type[Made]) -> type[Made]:
        """Make a class of one's own known by its name.

        Args:
            made: a class that has what the others have.

        Returns:
            The class, so that this can decorate it.
        """
        self._registered[self._name_of(made)] = made
        return made
