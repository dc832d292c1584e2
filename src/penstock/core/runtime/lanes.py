"""Work that is done behind the caller, in its order, by one thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from penstock.core.runtime.threads import thread_pool


class Lane:
    """One thread that does what it is handed, one after another. A few pieces wait at most; then the caller does.

    An error in a piece is raised where a later one is handed over, or at the end of the `with` block.

    >>> found = []
    >>> with Lane("example") as lane:
    ...     for number in range(3):
    ...         lane.hand(found.append, number)
    >>> found
    [0, 1, 2]
    """

    def __init__(self, name: str, ahead: int = 2) -> None:
        self._pool, self._ahead = thread_pool(1, name), ahead
        self._waiting: deque[Future[Any]] = deque()

    def hand(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have the function called behind the caller."""
        self._waiting.append(self._pool.submit(function, *arguments))
        while len(self._waiting) > self._ahead:
            self._waiting.popleft().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            while self._waiting and error is None:
                self._waiting.popleft().result()
        finally:
            self._pool.shutdown(wait=True, cancel_futures=True)
