"""Names of a package that are imported when first asked for: kernels are compiled code, and commands start at once."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.core.extras import require


def lazy_names(
    package: str, public: Sequence[str], homes: Mapping[str, str], extras: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` of a package.

    Args:
        package: its `__name__`.
        public: its `__all__`.
        homes: the module of each name that is imported late, from the package on.
        extras: of names that need one, the extra and the package that it brings, which are called alike.

    >>> getattr_of_core, dir_of_core = lazy_names("penstock.core", ["Schema"], {"Schema": "schema"})
    >>> getattr_of_core("Schema").__name__, dir_of_core()
    ('Schema', ['Schema'])
    """

    def found(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if extras is not None and name in extras:
            require(extras[name], extras[name])
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return found, lambda: list(public)
