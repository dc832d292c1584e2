"""The thread beside the dense step: look-ups of coming batches and updates of past ones, in a fixed order.

All store work of a training loop is done by one thread that takes commands in turn. When the loop asks for batch t + 1
the look-up of batch t + k is ordered, behind the update of batch t: so at most k batches are in flight, and what each
look-up sees does not depend on how fast anything runs. With k = 1 every look-up sees every update before it.

    asked for batch 0   look up 0, 1, …, k-1
    backward of batch 0 update 0
    asked for batch 1   look up k
    backward of batch 1 update 1          …

Where rows are elsewhere, the thread begins a call and goes on with the next command while others are at work on it: the
order is the same, and calls are finished in it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from penstock.core.errors import PenstockError
from penstock.core.runtime.threads import new_thread
from penstock.train.begun import Later
from penstock.train.sources import Interruptible, LateSource
from penstock.train.timing import Timings

_SLOW = 0.005  # seconds for a batch of the source, from which on nothing that was begun waits for the next one
_TICK = 0.5  # seconds between looks at whether the thread is still alive
_GLANCE = 0.05  # seconds to wait for a late batch before looking whether there is something else to do


class _End:
    """Behind the last batch."""


_ALIVE: weakref.WeakSet[StoreThread] = weakref.WeakSet()  # all of this process, for who watches it


def queue_lengths() -> dict[str, int]:
    """The queues of this process's training, or its evaluation, as they are now; empty where it does neither.

    >>> thread = StoreThread([1, 2], prepare=lambda n: n, refresh=lambda n: n, ahead=2)
    >>> thread.next_batch()
    1
    >>> thread.drain()
    >>> queue_lengths()["batches_ready"]
    1
    >>> thread.stop()
    """
    found = [thread.queues() for thread in list(_ALIVE) if thread.is_running]
    return {name: sum(queues[name] for queues in found) for name in (found[0] if found else ())}


class StoreThread:
    """Prepares batches of `source` with `prepare`, up to `ahead` of them before they are taken.

    `prepare(raw)` makes a batch and looks it up; `refresh(batch)` looks it up again; both, and updates, may give a
    `Later` to be finished. A source whose batches may be late can say so, see `LateSource`.

    >>> thread = StoreThread([1, 2, 3], prepare=lambda n: n * n, refresh=lambda n: n, ahead=2)
    >>> thread.next_batch(), thread.next_batch()
    (1, 4)
    >>> thread.submit(lambda: print("updated"))
    >>> thread.drain()
    updated
    >>> thread.next_batch(), thread.next_batch()
    (9, None)
    >>> thread.stop()
    """

    def __init__(
        self,
        source: Iterable[Any],
        prepare: Callable[[Any], Any],
        refresh: Callable[[Any], Any],
        ahead: int,
        timings: Timings | None = None,
    ) -> None:
        self._late, self._fetching = source if isinstance(source, LateSource) else None, False
        self._timings = timings or Timings()
        self._source, self._prepare, self._refresh, self._ahead = source, prepare, refresh, ahead
        self._commands: deque[tuple[str, Any]] = deque()
        self._ready: deque[Any] = deque()
        self._begun: deque[tuple[Later[Any], bool]] = deque()  # and whether it gives a batch
        self._fetch_seconds = 0.0  # that the source took for its last batch
        self._changed = threading.Condition()
        self._busy, self._started, self._discard, self._ended = False, False, False, False
        self._error: BaseException | None = None
        self._is_told = False  # whether somebody has heard of the error
        self._iterator: Any = None
        self.waited = 0.0  # seconds that the loop waited for a batch
        self._thread = new_thread("train", self._run)
        _ALIVE.add(self)

    @property
    def is_running(self) -> bool:
        """Whether it has begun and not ended."""
        return self._thread.is_alive()

    def queues(self) -> dict[str, int]:
        """How many batches wait for the loop, and how many orders of the loop wait for this thread."""
        orders = [command for command, _ in list(self._commands)]
        return {
            "batches_ready": len(self._ready),
            "lookups_ordered": orders.count("fetch"),
            "updates_ordered": orders.count("update"),
        }

    # What the training loop calls.

    def next_batch(self) -> Any:
        """The next batch, or None behind the last one."""
        count = 1 if self._started else self._ahead
        if not self._started:
            self._started = True
            self._thread.start()
        began = time.perf_counter()
        with self._changed:
            self._commands.extend([("fetch", None)] * count)
            self._changed.notify_all()
            self._wait_for(lambda: self._ready)
            item = None if self._ready[0] is _End else self._ready.popleft()
        waited = time.perf_counter() - began
        self.waited += waited
        self._timings.add("wait", waited)
        return item

    def submit(self, update: Callable[[], Later[None] | None]) -> None:
        """Have an update done, or begun, behind everything ordered before."""
        with self._changed:
            self._raise()
            self._commands.append(("update", update))
            self._changed.notify_all()

    def drain(self, timeout: float | None = None) -> None:
        """Wait until everything ordered so far has been done."""
        with self._changed:
            if self._started:
                self._wait_for(self._done, timeout)

    def _done(self) -> bool:
        if self._begun:
            return False
        if self._late is None:
            return not self._commands and not self._busy
        # Batches that have not arrived may take as long as they like.
        return all(command == "fetch" for command, _ in self._commands) and (self._fetching or not self._busy)

    def look_up_again(self) -> None:
        """Order a fresh look-up of the batches that wait to be taken: after a checkpoint, as after a resumption."""
        with self._changed:
            if self._started:
                self._wait_for(lambda: not self._begun and (self._fetching or not self._busy))
            items = list(self._ready)
            self._ready.clear()
            self._commands.appendleft(("refresh", items))  # before batches that are still to come
            self._changed.notify_all()

    def stop(self, discard: bool = False, timeout: float = 60.0) -> None:
        """End the thread, after what was ordered or leaving it undone; returns within `timeout` seconds in any case."""
        if isinstance(self._source, Interruptible):
            self._source.interrupt()
        if not self._started:
            return
        with self._changed:
            self._discard = discard
            self._commands.append(("stop", None))
            self._changed.notify_all()
        self._thread.join(timeout)
        if self._thread.is_alive():
            warnings.warn(
                f"the training thread did not end within {timeout:g} s: it hangs in the loader or in the store; "
                "it is left behind and ends with the process",
                RuntimeWarning,
                stacklevel=2,
            )
        elif not discard and not self._is_told:
            self._raise()

    def _wait_for(self, condition: Callable[[], Any], timeout: float | None = None) -> None:
        """Wait (holding the lock) for the thread to bring something about; its error is raised here."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not condition():
            self._raise()
            if not self._thread.is_alive():
                raise PenstockError("the training thread has ended; start another loop with ctx.batches(loader)")
            if deadline is not None and time.monotonic() > deadline:
                raise PenstockError(f"the updates of past batches were not done within {timeout:g} s; the store hangs")
            self._changed.wait(_TICK)
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            self._is_told = True
            raise self._error

    # What the thread does.

    def _run(self) -> None:
        _give_way()
        command = ""
        while command != "stop":
            command, argument = self._next_command()
            try:
                if command == "stop":
                    self._close()
                elif self._error is not None or self._discard:
                    self._leave_begun()
                elif command == "finish":
                    self._finish_oldest()
                else:
                    self._do(command, argument)
            except BaseException as error:
                self._error = error
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()
            del argument

    def _next_command(self) -> tuple[str, Any]:
        """What the loop has ordered, or to finish what was begun: when that is answered, or there is nothing else."""
        with self._changed:
            self._changed.wait_for(lambda: self._commands or self._begun)
            first = self._commands[0][0] if self._commands else "nothing"
        if self._begun and (first in ("nothing", "refresh", "stop") or self._is_answered()):
            return "finish", None
        with self._changed:
            self._busy = True
            return self._commands.popleft()

    def _is_answered(self) -> bool:
        return self._error is not None or self._discard or self._begun[0][0].is_ready()

    def _do(self, command: str, argument: Any) -> None:
        if command == "update":
            self._begin(argument(), is_batch=False)
        elif command == "refresh":
            for item in argument:
                self._begin(item if item is _End else self._refresh(item), is_batch=True)
        elif not self._ended and self._arrived():
            item = self._fetch()
            self._ended = item is _End
            self._begin(item, is_batch=True)

    def _begin(self, item: Any, is_batch: bool) -> None:
        """Take what a command gave: something to be finished, or a batch; a batch that is there does not overtake."""
        if isinstance(item, Later):
            self._begun.append((item, is_batch))
        elif is_batch:
            self._finish_all()
            self._deliver(item)

    def _finish_oldest(self) -> None:
        later, is_batch = self._begun[0]
        result = later.finish()
        with self._changed:
            self._begun.popleft()
            if is_batch:
                self._ready.append(result)

    def _finish_all(self) -> None:
        while self._begun:
            self._finish_oldest()

    def _leave_begun(self) -> None:
        """After an error elsewhere, what was begun has been ordered before it; on leaving, it is nobody's business."""
        while self._begun:
            later, _ = self._begun.popleft()
            if not self._discard:
                with suppress(Exception):
                    later.finish()

    def _arrived(self) -> bool:
        """Whether the next batch is there; if not, it is asked for again behind what has been ordered since."""
        if self._late is None:
            return True
        if self._begun and not self._late.available(0.0):
            self._finish_all()  # it may take as long as it likes
        with self._changed:
            self._fetching = True
            others = any(command != "fetch" for command, _ in self._commands)
        there = self._late.available(0.0 if others else _GLANCE)
        with self._changed:
            self._fetching = False
            there = there and not (self._commands and self._commands[0][0] == "refresh")
            if not there:
                self._commands.append(("fetch", None))
        return there

    def _deliver(self, item: Any) -> None:
        with self._changed:
            self._ready.append(item)
            self._changed.notify_all()

    def _fetch(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self._source)
        if self._fetch_seconds > _SLOW:
            self._finish_all()
        began = time.perf_counter()
        try:
            raw = next(self._iterator)
        except StopIteration:
            return _End
        finally:
            self._fetch_seconds = time.perf_counter() - began
            self._timings.add("fetch", self._fetch_seconds)
        return self._prepare(raw)

    def _close(self) -> None:
        """End the loader's threads; a generator must be closed by the thread that runs it."""
        self._leave_begun()
        self._ready.clear()
        if hasattr(self._iterator, "close"):
            with suppress(Exception):
                self._iterator.close()
        self._iterator = None


def _give_way() -> None:
    """Let the dense step go first: it wakes for moments only, and every one it waits for a core delays the device.

    Threads that the loader and the store start from here inherit this.
    """
    if sys.platform == "linux":  # elsewhere priorities belong to processes, not to threads
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
