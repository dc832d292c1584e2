"""How long a thread may keep Python's lock while others wait for it: shorter where one of them must not wait long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

QUICK = 2e-4  # seconds: short beside what a thread does between two calls that need the lock


class _Asked:
    """Who asks for how much at present, and what it was before anybody did."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seconds: list[float] = []
        self.before = 0.0

    def settle(self) -> None:
        sys.setswitchinterval(min([self.before, *self.seconds]))


_asked = _Asked()


@contextmanager
def quick_switches(seconds: float = QUICK) -> Iterator[None]:
    """A block in which no thread keeps the lock for longer while another one waits.

    Blocks of several threads may overlap: the shortest of what is asked for at a time holds, and what it was before
    comes back when the last of them ends.

    Args:
        seconds: that a thread may keep it.

    >>> before = sys.getswitchinterval()
    >>> with quick_switches():
    ...     sys.getswitchinterval() <= QUICK
    True
    >>> sys.getswitchinterval() == before
    True
    """
    with _asked.lock:
        if not _asked.seconds:
            _asked.before = sys.getswitchinterval()
        _asked.seconds.append(seconds)
        _asked.settle()
    try:
        yield
    finally:
        with _asked.lock:
            _asked.seconds.remove(seconds)
            _asked.settle()
