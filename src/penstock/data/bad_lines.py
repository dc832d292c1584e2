"""Counting malformed lines that a reader was told to skip or to null, wherever the reading happens.

>>> with collecting() as found:
...     note("train.tsv", 2, "line 17: 39 fields, 40 expected")
>>> found.count, found.first
(2, 'train.tsv, line 17: 39 fields, 40 expected')
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_active = threading.local()


class BadLineWarning(UserWarning):
    """Lines were skipped or nulled as `on_error` asked."""


@dataclass
class BadLines:
    """How many malformed lines were passed over, and where the first one stands."""

    count: int = 0
    first: str = ""

    def add(self, other: BadLines) -> None:
        self.first = self.first or other.first
        self.count += other.count

    def warn(self) -> None:
        """Tell the user, once, in the process that asked for the work."""
        if self.count:
            text = f"{self.count} malformed line(s) passed over as on_error asked; the first: {self.first}"
            warnings.warn(text, BadLineWarning, stacklevel=3)


@contextmanager
def collecting() -> Iterator[BadLines]:
    """Collect what `note` reports in this thread: a task returns it with its result."""
    outer = getattr(_active, "found", None)
    found = _active.found = BadLines()
    try:
        yield found
    finally:
        _active.found = outer


def note(path: str, count: int, first: str) -> None:
    """Called by readers."""
    pass_on(BadLines(count, f"{path}, {first}"))


def pass_on(found: BadLines) -> None:
    """Hand what a task found to whoever collects in this thread, or warn."""
    collector = getattr(_active, "found", None)
    if collector is None:
        found.warn()
    else:
        collector.add(found)
