"""What the threads of one pass over the data share: made once by who needs it first, gone when all have had it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from penstock.core.runtime.forks import Process

Value = TypeVar("Value")


class _Shared:
    """A value on its way to those who need it."""

    def __init__(self) -> None:
        self.making = threading.Lock()
        self.value: Any = None
        self.handed_out = 0


class _Passes:
    """The passes under way in this process, and what they share."""

    def __init__(self) -> None:
        self.made_in, self.lock = Process(), threading.Lock()
        self.num_passes = 0
        self.shared: dict[Hashable, _Shared] = {}


_passes = _Passes()


def _of_this_process() -> _Passes:
    """A forked child has no pass under way, and perhaps a lock that nobody will release."""
    global _passes
    if not _passes.made_in.is_this():
        _passes = _Passes()
    return _passes


@contextmanager
def one_pass() -> Iterator[None]:
    """While this lasts every part of the data is going to be read, by threads of this process.

    >>> with one_pass():
    ...     handed = [shared_in_pass("rows", 1, 2, lambda: [1, 2]) for _ in range(2)]
    >>> handed[0] is handed[1], shared_in_pass("rows", 1, 2, lambda: [1, 2]) is None
    (True, True)
    """
    passes = _of_this_process()
    with passes.lock:
        passes.num_passes += 1
    try:
        yield
    finally:
        with passes.lock:
            passes.num_passes -= 1
            if not passes.num_passes:
                passes.shared.clear()


def shared_in_pass(key: Hashable, share: int, whole: int, make: Callable[[], Value]) -> Value | None:
    """What `make` makes, called once for all threads of a pass; None outside of one.

    Args:
        key: the same for all who need the same.
        share: how much of it this one needs.
        whole: how much there is; once so much was handed out it is forgotten.
        make: what the first who asks calls, while the others wait; if it fails, the next one tries.

    Returns:
        The value.
    """
    passes = _of_this_process()
    with passes.lock:
        if not passes.num_passes:
            return None
        found = passes.shared.setdefault(key, _Shared())
    with found.making:
        if found.value is None:
            found.value = make()
        value: Value = found.value
        found.handed_out += share
        is_last = found.handed_out >= whole
    if is_last:
        with passes.lock:
            if passes.shared.get(key) is found:
                del passes.shared[key]
    return value
