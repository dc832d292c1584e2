"""Imports that take seconds, such as torch's, beside threads that work."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core.runtime.switching import quick_switches


@contextmanager
def long_imports() -> Iterator[None]:
    """A block that imports much.

    Threads beside it have Python's lock soon, which an import holds nearly all the time. And what is being imported is
    not searched for garbage again and again, of which it has little: a quarter of the time torch's import takes.

    >>> with long_imports():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with quick_switches():
            yield
    finally:
        if was_enabled:
            gc.enable()
