"""Batches on their way into a row cache: announced, brought in behind the model's back, looked up, trained on."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from penstock.nn.cached_rows import NoRoomError
from penstock.nn.fused_inputs import Ids


class Batch:
    """One batch of ids. Its rows stay in the cache until `closed`, or until nobody knows the batch any more."""

    def __init__(self, number: int, ids: Ids, given: Any = None) -> None:
        self.number, self.closed = number, False
        self.ids: Any = ids
        self.given, self.print = given, fingerprint(given)  # held, so that no other tensor takes its place
        self.ready = threading.Event()  # the host has done its part
        self.brought_in: Any = None  # the GPU's event; None on the CPU
        self.error: BaseException | None = None

    def release(self) -> None:
        """Its ids are not needed any more."""
        self.ids = self.given = self.print = None


def fingerprint(given: Any) -> Any:
    """Equal for the same tensors with the same contents, told without looking at them."""
    if isinstance(given, Tensor):
        version = None if given.is_inference() else given._version
        return given.data_ptr(), given.shape, given.stride(), given.dtype, given.device, version
    if isinstance(given, Mapping):
        return tuple((name, fingerprint(given[name])) for name in given)
    return tuple(map(fingerprint, given)) if isinstance(given, (tuple, list)) else id(given)


class InFlight:
    """The batches whose rows must stay, and the thread that brings rows in, one batch after the other.

    `bring_in(batch, oldest)` brings a batch's rows into slots that no batch from number `oldest` on has used. At any
    time the last two batches announced may still be trained on: a captured step does not say when it runs.
    """

    def __init__(self, bring_in: Callable[[Batch, int], None], background: Callable[[], bool]) -> None:
        self._bring_in, self._background = bring_in, background
        self.coming: list[Batch] = []
        self._open: weakref.WeakSet[Batch] = weakref.WeakSet()
        self._numbers = 0
        self._last: Future | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._stream: Any = None

    def new(self, ids: Ids, given: Any = None) -> Batch:
        return Batch(self._next(), ids, given)

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def oldest(self, *more: Batch) -> int:
        """The number of the oldest batch whose rows must stay."""
        kept = (b for b in (*self.coming, *self._open) if not b.closed and b.error is None)
        return min((b.number for b in (*kept, *more)), default=self._numbers + 1)

    def announce(self, batch: Batch) -> None:
        """Begin to bring in a batch that comes after the one that was announced last."""
        self.coming = [*self.coming[-1:], batch]
        self._start(batch)

    def take(self, ids: Ids, given: Any) -> Batch:
        """The batch of these ids, brought in: as announced, or now."""
        wanted = fingerprint(given)
        batch = next((b for b in self.coming if b.print == wanted), None)
        if batch is None:
            batch = self.new(ids)
            self._start(batch)
        self.settle(batch)
        self.coming = [b for b in self.coming if b is not batch]
        return batch

    def keep(self, batch: Batch) -> None:
        """A backward pass will follow."""
        self._open.add(batch)

    def settle(self, batch: Batch) -> None:
        """Wait until the host's part is done, and let the current stream wait for the GPU's."""
        batch.ready.wait()
        if isinstance(batch.error, NoRoomError):  # what stood in its way may have been trained on by now
            self._start_again(batch)
        if isinstance(batch.error, NoRoomError) and (others := [b for b in self.coming if b is not batch]):
            for other in others:  # they can wait, and will be brought in again
                other.ready.wait()
                other.error = batch.error
            self._start_again(batch)
        if batch.error is not None:
            self.coming = [b for b in self.coming if b is not batch]
            raise batch.error
        if batch.brought_in is not None:
            torch.cuda.current_stream(batch.ids.singles.device).wait_event(batch.brought_in)

    def settle_all(self) -> None:
        for batch in self.coming[-1:]:
            self.settle(batch)

    def rest(self) -> None:
        """Wait until nothing is under way."""
        if self._last is not None:
            self._last.result()
        if self._stream is not None:
            self._stream.synchronize()

    def bring_in_again(self) -> None:
        """The cache was emptied: what was announced has to be brought in once more."""
        self.rest()
        for batch in self.coming:
            batch.error = NoRoomError("the rows of an announced batch are in the cache no more")

    def forget_device(self) -> None:
        """The cache has moved: what was announced is there no more."""
        self.coming, self._stream = [], None

    def _start_again(self, batch: Batch) -> None:
        batch.number = self._next()
        self._start(batch)
        batch.ready.wait()

    def _start(self, batch: Batch) -> None:
        batch.ready.clear()
        batch.error = None
        oldest, device, begun = self.oldest(batch), batch.ids.singles.device, None
        if device.type == "cuda":
            begun = torch.cuda.Event()
            begun.record(torch.cuda.current_stream(device))
            if self._stream is None:
                self._stream = torch.cuda.Stream(device, priority=-1)  # its small kernels come before the model's
        if not self._background():
            self._run(batch, oldest, begun)
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "penstock-cache")
            weakref.finalize(self, self._thread.shutdown, wait=False)
        self._last = self._thread.submit(self._run, batch, oldest, begun)

    def _run(self, batch: Batch, oldest: int, begun: Any) -> None:
        try:
            if begun is None:
                self._bring_in(batch, oldest)
                return
            device = batch.ids.singles.device
            with torch.cuda.device(device), torch.cuda.stream(self._stream):
                self._stream.wait_event(begun)
                self._bring_in(batch, oldest)
                batch.brought_in = torch.cuda.Event()
                batch.brought_in.record(self._stream)
        except BaseException as error:  # raised where the batch is looked up
            batch.error = error
        finally:
            batch.ready.set()


def prefetched(
    batches: Iterable[Any], *tables: Any, ids: Callable[[Any], Any] = lambda batch: batch[0]
) -> Iterator[Any]:
    """The batches, each announced to the tables while the one before it is trained on: for loops written by hand.

    `ids(batch)` is what the tables will be given; by default a batch's first part.

    >>> from penstock.nn import CachedEmbeddings
    >>> tables = CachedEmbeddings([100], dim=4, cache_rows=8)
    >>> batches = [(torch.tensor([[i], [i + 1]]), torch.ones(2)) for i in range(4)]
    >>> for users, labels in prefetched(batches, tables):
    ...     tables(users).sum().backward()
    >>> tables.stats()["brought_in"]
    5
    """
    nothing = object()
    current: Any = nothing
    for following in batches:
        for table in tables:
            table.prefetch(ids(following))
        if current is not nothing:
            yield current
        current = following
    for table in tables:
        table.prefetch(None)
    if current is not nothing:
        yield current
