"""How a stream of batches serves Keras, which asks for them by number.

`fit` looks at the first two batches for their shapes, begins again, and (`shuffle=True` is its default) asks for batch
numbers in an order drawn from Python's global random state. A stream that was read ahead by threads cannot jump, and
its order is planned already, so each request gets the next batch of the pass, whatever its number. What is left is to
tell where a pass begins, and to hand out the batches that were only looked at once more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

PROBED = 2  # batches that Keras looks at before it begins


class Passes:
    """One pass after the other over what `open_pass()` gives: `(iterator, number of batches)`.

    >>> passes = Passes(lambda: (iter("abc"), 3))
    >>> passes.begin(), [passes.next_batch(), passes.next_batch()]  # Keras looks at two batches
    (None, ['a', 'b'])
    >>> passes.begin(), [passes.next_batch() for _ in range(3)]  # and begins
    (None, ['a', 'b', 'c'])
    """

    def __init__(self, open_pass: Callable[[], tuple[Iterator[Any], int]]) -> None:
        self._open_pass = open_pass
        self._lock = threading.RLock()
        self._in_epoch = False
        self._stream: Iterator[Any] | None = None
        self._held: list[Any] = []
        self._served = self._taken = 0
        self._total: int | None = None

    def begin(self) -> None:
        """A pass begins: a new one, or once more the present one if only batches that are still held were served."""
        with self._lock:
            if self._in_epoch and self._finished:
                self.forget()
                self._in_epoch = False
            elif self._served > len(self._held):
                self.forget()
            self._served = 0

    def on_epoch_begin(self) -> None:
        """An epoch begins: what was served before the first one was only looked at."""
        with self._lock:
            if self._in_epoch and self._finished:
                self.forget()
            elif not self._in_epoch and self._served <= len(self._held):
                self._served = 0
            self._in_epoch = True

    def next_batch(self) -> Any:
        """The next batch of the pass."""
        with self._lock:
            batch = self._held[self._served] if self._served < len(self._held) else self._advance()
            self._served += 1
            return batch

    def forget(self) -> None:
        """Let go of the present pass, with its threads and batches."""
        with self._lock:
            close = getattr(self._stream, "close", None)
            self._stream, self._held, self._total = None, [], None
            self._served = self._taken = 0
            if close is not None:
                close()

    @property
    def num_batches(self) -> int | None:
        """Batches in the present pass; None where none is open."""
        return self._total

    @property
    def _finished(self) -> bool:
        return self._total is not None and self._served >= self._total

    def _advance(self) -> Any:
        if self._taken == self._total:  # more is asked for than there is: the next pass
            self.forget()
        if self._total is None:
            self._stream, self._total = self._open_pass()
        assert self._stream is not None
        batch = next(self._stream)
        self._taken += 1
        if self._taken <= PROBED:
            self._held.append(batch)
        else:
            self._held.clear()
        return batch
