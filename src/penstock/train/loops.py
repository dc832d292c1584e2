"""The loops of a context: one that trains and those that evaluate beside it, each with a thread that must end well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.core.errors import PenstockError
from penstock.train.store_thread import StoreThread


class Loops:
    """Runs store threads, at most one of them for training, and ends them however the loop over them ends.

    A loop that is finished or left keeps everything that was trained; one whose thread failed leaves the rest undone.

    >>> loops = Loops(exit_timeout=60.0)
    >>> list(loops.run(StoreThread([1, 2], prepare=lambda n: n * n, refresh=lambda n: n, ahead=2), training=True))
    [1, 4]
    >>> loops.training is None
    True
    """

    def __init__(self, exit_timeout: float) -> None:
        """`exit_timeout` is how many seconds ending a loop may take at most."""
        self.training: StoreThread | None = None
        self._exit_timeout = exit_timeout
        self._evaluations: set[StoreThread] = set()
        self._late_error: Exception | None = None
        self._waited = 0.0

    @property
    def waited(self) -> float:
        """Seconds that loops waited for batches."""
        return self._waited + (self.training.waited if self.training is not None else 0.0)

    def run(self, thread: StoreThread, training: bool) -> Iterator[Any]:
        """The batches of a store thread, which ends with them.

        Raises:
            PenstockError: when `training`, and another training loop is under way.
        """
        if training:
            self.check_free()
            self.training = thread
        else:
            self._evaluations.add(thread)
        failed, closing = True, False
        try:
            while (batch := thread.next_batch()) is not None:
                yield batch
                del batch
            failed = False
        except GeneratorExit:  # the loop was left, by break or an error: what was trained still counts
            failed, closing = False, True
            raise
        finally:
            self._finish(thread, failed, closing)

    def check_free(self) -> None:
        """Refuse a second training loop."""
        if self.training is not None:
            raise PenstockError("a training loop is under way already; finish or leave it before starting another")

    def _finish(self, thread: StoreThread, failed: bool, closing: bool) -> None:
        """End a loop's thread, unless `close` has done so already."""
        if thread is self.training:
            self.training = None
            self._waited += thread.waited
            try:
                thread.stop(discard=failed, timeout=self._exit_timeout)
            except Exception as error:
                if not closing:
                    raise
                self._late_error = error  # nobody would hear it from a generator that is being closed
        elif thread in self._evaluations:
            self._evaluations.remove(thread)
            self._waited += thread.waited
            thread.stop(discard=True, timeout=self._exit_timeout)

    def drain(self) -> None:
        """Wait until the updates of all batches trained so far have been done."""
        if self.training is not None:
            self.training.drain()

    def look_up_again(self) -> None:
        """Look up anew what was looked up ahead: after a checkpoint, as after a resumption."""
        if self.training is not None:
            self.training.look_up_again()

    def close(self, failed: bool) -> None:
        """End all loops: with every update done, or at once after an error.

        Raises:
            Exception: what went wrong in a thread and could not be told before, unless `failed`.
        """
        evaluations, self._evaluations = self._evaluations, set()
        for thread in evaluations:
            thread.stop(discard=True, timeout=self._exit_timeout)
        training, self.training = self.training, None
        late, self._late_error = self._late_error, None
        if training is not None:
            self._waited += training.waited
            try:
                if not failed:
                    training.drain(self._exit_timeout)
            except BaseException:
                failed = True
                raise
            finally:
                training.stop(discard=failed, timeout=self._exit_timeout)
        if late is not None and not failed:
            raise late
