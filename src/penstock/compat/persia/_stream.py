"""The bounded queue between data loaders and a trainer, whichever process the loaders are in.

Every data loader has a queue of its own with room for `capacity` batches; who is ahead of the trainer waits. The stream
ends when all data loaders have ended. One that failed is named by the error that the trainer gets, once it has taken
what had arrived before.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from penstock.core.errors import PenstockError

_LOOK = 0.2  # seconds between looks at whether the threads of senders are still alive


class StreamError(PenstockError):
    """The other end of a stream failed; the message names it."""


class TrainerLostError(StreamError):
    """The trainer failed or is gone; the data loader that hears it is not to blame."""


class StreamTimeout(PenstockError, TimeoutError):
    """No batch came in time."""


@dataclass
class _Source:
    """One data loader."""

    name: str
    thread: threading.Thread | None = None  # of a sender in this process
    batches: deque[Any] = field(default_factory=deque)
    ended: bool = False
    failure: str | None = None
    unread: bool = False  # the trainer takes no more of it


class Stream:
    """Batches of several data loaders, taken by one trainer.

    >>> stream = Stream(capacity=2)
    >>> stream.open(0, "data loader 0")
    >>> stream.put(0, "batch"), stream.end(0)
    (True, None)
    >>> reader = stream.reader()
    >>> reader.get(1.0), reader.get(1.0)
    ('batch', None)
    """

    def __init__(self, capacity: int = 1000) -> None:
        self.capacity = capacity
        self.has_senders = False  # whether a data loader is, or was, in this process
        self.was_read = False
        self._expected = 1
        self._sources: dict[int, _Source] = {}
        self._turn = 0
        self._changed = threading.Condition()
        self._consumer: threading.Thread | None = None

    # The data loaders' side.

    def open(self, number: int, name: str, loaders: int = 1, thread: threading.Thread | None = None) -> None:
        """A data loader, one of `loaders`, begins; one that had ended may begin again."""
        with self._changed:
            known = self._sources.get(number)
            again = known is not None and thread is not None and known.thread is thread
            if known is not None and not again and not self._over(known):
                raise StreamError(f"{known.name} is connected already; two data loaders have the number {number}")
            kept = known.batches if known is not None else deque()
            self._sources[number] = _Source(name, thread, kept)
            self._expected = max(self._expected, loaders)
            self._changed.notify_all()

    def put(self, number: int, batch: Any) -> bool:
        """Append a batch, waiting for room; False when the trainer reads no more."""
        with self._changed:
            source = self._sources[number]
            while len(source.batches) >= self.capacity and not source.unread:
                self._refuse_deadlock(source)
                self._changed.wait(_LOOK)
            if source.unread:
                return False
            source.batches.append(batch)
            self._changed.notify_all()
            return True

    def end(self, number: int, failure: str | None = None) -> None:
        """A data loader has sent everything, or failed."""
        with self._changed:
            source = self._sources[number]
            source.ended, source.failure = True, failure
            self._changed.notify_all()

    def _refuse_deadlock(self, source: _Source) -> None:
        alone = self._consumer is None and source.thread is threading.main_thread()
        if source.thread is not None and (alone or source.thread is self._consumer):
            raise StreamError(
                f"{len(source.batches)} batches wait, and nothing in this process trains on them: run the data loader "
                "and the trainer with penstock persia-launcher, or send from a thread, or raise "
                "embedding_worker_config.forward_buffer_size"
            )

    @property
    def waiting(self) -> int:
        """Batches that have been sent and not taken."""
        return sum(len(source.batches) for source in self._sources.values())

    def expect(self, loaders: int) -> None:
        """Do not end before so many data loaders have come and gone."""
        with self._changed:
            self._expected = max(1, loaders)

    def fail(self, number: int, name: str, failure: str) -> None:
        """A data loader failed, perhaps before it had begun."""
        with self._changed:
            self._sources.setdefault(number, _Source(name))
        self.end(number, failure)

    def offer(self, capacity: int) -> None:
        """A data loader is in this process: the room for its batches before anyone reads. A reader sets its own."""
        self.has_senders = True
        if self._consumer is None:
            self.capacity = capacity

    # The trainer's side.

    def reader(self, in_turns: bool = False) -> Reader:
        """Someone who takes batches: as they come, or in turns of the data loaders, which is the same on every run."""
        with self._changed:
            self._consumer, self.was_read = threading.current_thread(), True
        return Reader(self, in_turns)

    def close(self) -> None:
        """The trainer has enough: data loaders that are under way are let go. Others may begin later."""
        with self._changed:
            for source in self._sources.values():
                source.unread = not self._over(source)
                if source.unread:
                    source.batches.clear()
                    source.ended = True
            self._consumer, self._expected = None, 1
            self._changed.notify_all()

    def _get(self, reader: Reader, timeout: float, waited: float) -> Any:
        deadline = time.monotonic() + timeout
        with self._changed:
            while not reader.interrupted:
                source = self._next(reader.in_turns)
                if source is not None:
                    self._turn += 1
                    self._changed.notify_all()
                    return source.batches.popleft()
                if self._all_over():
                    return None
                if (remaining := deadline - time.monotonic()) <= 0:
                    raise StreamTimeout(self._silence(timeout + waited))
                self._changed.wait(min(remaining, _LOOK))
        return None

    def _next(self, in_turns: bool) -> _Source | None:
        """The data loader whose batch is next."""
        count = max([self._expected, *(number + 1 for number in self._sources)])
        for _ in range(count):
            self._turn %= count
            source = self._sources.get(self._turn)
            if source is not None and source.batches:
                return source
            if source is not None and source.failure is not None:
                raise StreamError(f"{source.name} failed: {source.failure}")
            if in_turns and (source is None or not self._over(source)):
                return None  # its turn: wait for it
            self._turn += 1
        return None

    def _arrived(self, reader: Reader, timeout: float) -> bool:
        """Whether `get` would return or raise at once, now or within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                try:
                    if reader.interrupted or self._next(reader.in_turns) is not None or self._all_over():
                        return True
                except StreamError:
                    return True
                if (remaining := deadline - time.monotonic()) <= 0:
                    return False
                self._changed.wait(remaining)

    def _over(self, source: _Source) -> bool:
        """Whether no more can come: it said so, its thread has ended, or that thread is the one that reads now."""
        thread = source.thread
        return source.ended or (thread is not None and (thread is self._consumer or not thread.is_alive()))

    def _all_over(self) -> bool:
        known = len(self._sources) >= self._expected
        return known and all(self._over(source) and not source.batches for source in self._sources.values())

    @property
    def connected(self) -> bool:
        """Whether any data loader has ever been there."""
        return bool(self._sources)

    def _silence(self, timeout: float) -> str:
        waiting = [source.name for source in self._sources.values() if not self._over(source)]
        who = ", ".join(waiting) if waiting else "no data loader is connected"
        return f"no batch came within {timeout:g} s ({who})"


class Reader:
    """Takes batches from a stream, until it is interrupted."""

    def __init__(self, stream: Stream, in_turns: bool) -> None:
        self._stream, self.in_turns, self.interrupted = stream, in_turns, False

    def get(self, timeout: float, waited: float = 0.0) -> Any:
        """The next batch; None behind the last one. `waited` seconds went before, and count in what an error says."""
        return self._stream._get(self, timeout, waited)

    def arrived(self, timeout: float = 0.0) -> bool:
        """Whether `get` would not wait, now or within `timeout` seconds."""
        return self._stream._arrived(self, timeout)

    def interrupt(self) -> None:
        """Let a `get` that waits return."""
        with self._stream._changed:
            self.interrupted = True
            self._stream._changed.notify_all()
