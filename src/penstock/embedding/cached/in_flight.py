"""Batches on their way into a row cache: announced, brought in behind the model's back, looked up, trained on."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from penstock.core.runtime.threads import ThreadPool, thread_pool
from penstock.embedding.cached.row_cache import NoRoomError
from penstock.embedding.fused.ids import Ids


class IncomingBatch:
    """One batch of ids. Its rows stay in the cache until `closed`, or until nobody knows the batch any more."""

    def __init__(self, ids: Ids, given: Any = None, training: bool = True) -> None:
        self.closed, self.training = False, training
        self.group: IncomingGroup
        self.ids: Any = ids
        self.given, self.print = given, fingerprint(given)  # held, so that no other tensor takes its place

    def is_as_announced(self) -> bool:
        """Whether nobody has written into what was given since."""
        return bool(self.print == fingerprint(self.given))

    def release(self) -> None:
        """Its ids are not needed any more."""
        self.ids = self.given = self.print = None


class IncomingGroup:
    """Batches whose rows are brought in together, and how far that has come. Those looked up are not listed any more.

    What it takes to bring rows in, launches and waits and threads that are woken, is the same for few rows as for many.
    """

    def __init__(self, number: int, batches: list[IncomingBatch]) -> None:
        self.number, self.batches = number, batches
        self.device = batches[0].ids.singles.device
        self.ready = threading.Event()  # the host has done its part
        self.brought_in: Any = None  # the GPU's event; None on the CPU
        self.error: BaseException | None = None
        self.training = any(batch.training for batch in batches)
        for batch in batches:
            batch.group = self


def fingerprint(given: Any) -> Any:
    """Equal for the same tensors with the same contents, told without looking at them."""
    if isinstance(given, Tensor):
        version = None if given.is_inference() else given._version
        return given.data_ptr(), given.shape, given.stride(), given.dtype, given.device, version
    if isinstance(given, Mapping):
        return tuple((name, fingerprint(given[name])) for name in given)
    return tuple(map(fingerprint, given)) if isinstance(given, (tuple, list)) else id(given)


def same_content(given: Any, other: Any) -> bool:
    """Whether both are the same ids in the same form; of tensors on a GPU this waits for it.

    >>> same_content({"user": torch.tensor([1, 2])}, {"user": torch.tensor([1, 2])})
    True
    """
    if isinstance(given, Tensor) and isinstance(other, Tensor):
        alike = (given.shape, given.dtype, given.device) == (other.shape, other.dtype, other.device)
        return alike and torch.equal(given, other)
    if isinstance(given, Mapping) and isinstance(other, Mapping):
        return list(given) == list(other) and all(same_content(given[name], other[name]) for name in given)
    if isinstance(given, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(given) == len(other) and all(map(same_content, given, other))
    return given is other


class BatchesInFlight:
    """The batches whose rows must stay, and the thread that brings rows in, one group after the other.

    `bring_in(group, oldest)` brings a group's rows into slots that no group from number `oldest` on has used. At any
    time the last two groups announced may still be trained on: a captured step does not say when it runs. Before,
    `make_room(group)` is called by whoever announces or looks up.
    """

    def __init__(
        self,
        bring_in: Callable[[IncomingGroup, int], None],
        make_room: Callable[[IncomingGroup], None],
        background: Callable[[], bool],
    ) -> None:
        self._bring_in, self._make_room, self._background = bring_in, make_room, background
        self.coming: list[IncomingGroup] = []
        self._open: weakref.WeakSet[IncomingBatch] = weakref.WeakSet()
        self._numbers = 0
        self._last: Future[None] | None = None
        self._thread: ThreadPool | None = None
        self._stream: Any = None

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def oldest(self, *more: IncomingGroup) -> int:
        """The number of the oldest group whose rows must stay."""
        kept = (group for group in self.coming if group.error is None)
        trained = (batch.group for batch in self._open if not batch.closed)
        return min((group.number for group in (*kept, *trained, *more)), default=self._numbers + 1)

    def announce(self, batches: list[IncomingBatch]) -> None:
        """Begin to bring in batches that come after those that were announced last."""
        group = IncomingGroup(self._next(), batches)
        self.coming = [*self.coming[-1:], group]
        self._start(group)

    def batch_for(self, ids: Ids, given: Any, training: bool) -> IncomingBatch:
        """The batch of these ids, brought in: as announced, or now.

        A copy of what was announced counts as that: brought in once more, its rows would have been used twice, and
        after those of the batches behind it.
        """
        wanted = fingerprint(given)
        announced = [b for group in self.coming for b in group.batches if b.group.training or not training]
        batch = next((b for b in announced if b.print == wanted), None)
        batch = batch or next((b for b in announced if b.is_as_announced() and same_content(b.given, given)), None)
        if batch is None:
            batch = IncomingBatch(ids, training=training)
            self._start(IncomingGroup(self._next(), [batch]))
        self.settle(batch.group)
        batch.group.batches.remove(batch)
        self.coming = [group for group in self.coming if group.batches]
        return batch

    def keep(self, batch: IncomingBatch) -> None:
        """A backward pass will follow."""
        self._open.add(batch)

    def settle(self, group: IncomingGroup) -> None:
        """Wait until the host's part is done, and let the current stream wait for the GPU's."""
        group.ready.wait()
        if isinstance(group.error, NoRoomError):  # what stood in its way may have been trained on by now
            self._start_again(group)
        if isinstance(group.error, NoRoomError) and (others := [g for g in self.coming if g is not group]):
            for other in others:  # they can wait, and will be brought in again
                other.ready.wait()
                other.error = group.error
            self._start_again(group)
        if group.error is not None:
            self.coming = [g for g in self.coming if g is not group]
            raise group.error
        if group.brought_in is not None:
            torch.cuda.current_stream(group.device).wait_event(group.brought_in)

    def settle_last(self) -> None:
        for group in self.coming[-1:]:
            self.settle(group)

    def rest(self) -> None:
        """Wait until nothing is under way."""
        if self._last is not None:
            self._last.result()
        if self._stream is not None:
            self._stream.synchronize()

    def bring_in_again(self) -> None:
        """The cache was emptied: what was announced has to be brought in once more."""
        self.rest()
        for group in self.coming:
            group.error = NoRoomError("the rows of an announced batch are in the cache no more")

    def forget_device(self) -> None:
        """The cache has moved: what was announced is there no more."""
        self.coming, self._stream = [], None

    def _start_again(self, group: IncomingGroup) -> None:
        group.number = self._next()
        self._start(group)
        group.ready.wait()

    def _start(self, group: IncomingGroup) -> None:
        group.ready.clear()
        group.error = None
        try:
            self._make_room(group)
        except BaseException as error:  # raised where the batch is looked up
            group.error = error
            group.ready.set()
            return
        oldest, begun = self.oldest(group), None
        if group.device.type == "cuda":
            begun = torch.cuda.Event()
            begun.record(torch.cuda.current_stream(group.device))
            if self._stream is None:
                self._stream = torch.cuda.Stream(group.device, priority=-1)  # its small kernels come before the model's
        if not self._background():
            self._run(group, oldest, begun)
            return
        if self._thread is None:
            self._thread = thread_pool(1, "cache")
        self._last = self._thread.submit(self._run, group, oldest, begun)

    def _run(self, group: IncomingGroup, oldest: int, begun: Any) -> None:
        try:
            if begun is None:
                self._bring_in(group, oldest)
                return
            with torch.cuda.device(group.device), torch.cuda.stream(self._stream):
                self._stream.wait_event(begun)
                self._bring_in(group, oldest)
                group.brought_in = torch.cuda.Event()
                group.brought_in.record(self._stream)
        except BaseException as error:  # raised where the batch is looked up
            group.error = error
        finally:
            group.ready.set()


def prefetched(
    batches: Iterable[Any], *tables: Any, ids: Callable[[Any], Any] = lambda batch: batch[0]
) -> Iterator[Any]:
    """The batches, announced to the tables while those before them are trained on: for loops written by hand.

    `ids(batch)` is what the tables will be given; by default a batch's first part. As many batches are announced
    together as the tables ask for (`CachedEmbeddings.batches_to_prefetch`), one if they do not say, and up to twice as
    many are held. Behind the last, None is announced.

    Args:
        batches: an iterable.
        ids: takes the ids out of a batch.
        tables: that are to be told.

    Returns:
        The batches, as they came.

    >>> from penstock.embedding import CachedEmbeddings
    >>> tables = CachedEmbeddings([100], dim=4, cache_rows=8)
    >>> batches = [(torch.tensor([[i], [i + 1]]), torch.ones(2)) for i in range(4)]
    >>> for users, labels in prefetched(batches, tables):
    ...     tables(users).sum().backward()
    >>> tables.stats()["brought_in"]
    5
    """
    if not tables:
        yield from batches
        return
    source, current = iter(batches), list[Any]()
    while True:
        coming = list(islice(source, 1))
        if coming:
            asked = [getattr(table, "batches_to_prefetch", _one)(ids(coming[0])) for table in tables]
            coming += islice(source, min(asked) - 1)
        for table in tables:
            table.prefetch(*(map(ids, coming) if coming else [None]))
        yield from current
        current = coming
        if not current:
            return


def _one(_: Any) -> int:
    return 1
