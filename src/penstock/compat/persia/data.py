"""Where a trainer's batches come from: data loaders elsewhere (`StreamingDataset`), or an iterator of its own."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.compat.persia._message import Message, PersiaTrainingBatch
from penstock.compat.persia._service import service
from penstock.compat.persia._stream import Reader, Stream, StreamTimeout
from penstock.compat.persia.embedding.data import message_of
from penstock.compat.persia.logger import get_default_logger
from penstock.compat.persia.prelude import PersiaBatchDataChannel
from penstock.core.params import BOOL, NONE, Instance, Int, check_all
from penstock.core.runtime.threads import start_thread

__all__ = ["DataLoader", "Dataloder", "IterableDataset", "IterableDatasetBase", "PersiaDataset", "StreamingDataset"]

# Batches in flight where a script does not say: more would hide no more time, and train on older embeddings.
STALENESS = 4


class IterableDatasetBase(ABC):
    """What a `DataLoader` takes. A subclass of your own sends batches to `self.sender` in `consume_dataset`.

    >>> IterableDatasetBase.__abstractmethods__
    frozenset({'consume_dataset'})
    """

    def __init__(self, buffer_size: int = 10) -> None:
        self.buffer_size = buffer_size
        self.persia_batch_channel = PersiaBatchDataChannel(buffer_size)
        self.sender = self.persia_batch_channel.get_sender()
        self.receiver = self.persia_batch_channel.get_receiver()

    @abstractmethod
    def consume_dataset(self) -> Iterator[int]:
        """Send batch after batch, yielding the number of each."""

    def messages(self, timeout: float, reproducible: bool) -> Source:
        """The batches for one loop."""

        def received() -> Iterator[Message]:
            for _ in self.consume_dataset():
                yield self.receiver.recv(timeout)

        return Source(received())


class StreamingDataset(IterableDatasetBase):
    """Batches that data loaders send (`DataCtx().send_data`), at most `buffer_size` of each waiting.

    It ends when all data loaders have ended. One that dies without a word is an error that names it.

    >>> StreamingDataset(15).buffer_size
    15
    """

    def consume_dataset(self) -> Iterator[int]:
        """Only a `DataLoader` can take batches from a stream."""
        raise TypeError("a StreamingDataset is read by a DataLoader: for batch in DataLoader(dataset)")

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a StreamingDataset is read by a DataLoader: for batch in DataLoader(dataset)")

    def messages(self, timeout: float, reproducible: bool) -> Source:
        service().listen(capacity=self.buffer_size)
        stream = service().stream
        return StreamSource(stream.reader(in_turns=reproducible), timeout, lambda: stream.connected)


class IterableDataset(IterableDatasetBase):
    """Batches that a subclass yields from `__iter__`, `buffer_size` of them ahead; it can be read any number of times.

    >>> class Empty(IterableDataset):
    ...     def __iter__(self):
    ...         return iter([])
    >>> list(Empty().consume_dataset())
    []
    """

    def __init__(self, buffer_size: int = 10) -> None:
        self.buffer_size = buffer_size

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"{type(self).__name__} must say in __iter__ which batches it has")

    def consume_dataset(self) -> Iterator[int]:
        """The numbers of the batches."""
        yield from (number for number, _ in enumerate(self))

    def messages(self, timeout: float, reproducible: bool) -> Source:
        return ThreadSource(self, self.buffer_size)


class PersiaDataset(IterableDatasetBase):
    """Batches that a subclass sends in `fetch_data`, and their number in `__len__`: what came before `IterableDataset`.

    >>> class Empty(PersiaDataset):
    ...     def fetch_data(self, sender): ...
    ...     def __len__(self):
    ...         return 0
    >>> list(Empty(buffer_size=10).consume_dataset())
    []
    """

    def __init__(self, buffer_size: int = 10, async_iterator: bool = True) -> None:
        self.buffer_size, self.async_iterator = buffer_size, async_iterator

    def fetch_data(self, persia_sender_channel: Any) -> None:
        """Call `persia_sender_channel.send(batch)` for each batch."""
        raise NotImplementedError(f"{type(self).__name__} must send its batches in fetch_data")

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} must say in __len__ how many batches it has")

    def consume_dataset(self) -> Iterator[int]:
        """The numbers of the batches."""
        yield from range(len(self))

    def messages(self, timeout: float, reproducible: bool) -> Source:
        return ThreadSource(self.fetch_data, self.buffer_size)


class Source:
    """The batches of one loop, which come when they are asked for."""

    def __init__(self, messages: Iterator[Message]) -> None:
        self._messages = messages

    def __iter__(self) -> Iterator[Message]:
        return self._messages

    def interrupt(self) -> None:
        """Nothing waits here."""


class StreamSource(Source):
    """The batches of one loop over a stream, until it ends or falls silent."""

    def __init__(self, reader: Reader, timeout: float, ever: Callable[[], bool]) -> None:
        super().__init__(self)
        self._reader, self._timeout, self._ever = reader, timeout, ever
        self._since = time.monotonic()

    def _left(self) -> float:
        return max(0.0, self._timeout - (time.monotonic() - self._since))

    def __next__(self) -> Message:
        try:
            message = self._reader.get(self._left(), self._timeout - self._left())
        except StreamTimeout as error:
            if not self._ever():
                raise
            get_default_logger().warning(f"{error}; the loop over the stream ends")
            raise StopIteration from None
        if message is None:
            raise StopIteration
        self._since = time.monotonic()
        return message

    def available(self, seconds: float) -> bool:
        """Whether the next batch (or the end) is there, now or within some seconds."""
        return self._reader.arrived(min(seconds, self._left())) or self._left() == 0

    def interrupt(self) -> None:
        self._reader.interrupt()


class FixedOrder(Source):
    """The batches of a source, waited for where they are late: look-ups and updates then have one order in all runs."""

    def __init__(self, source: Source) -> None:
        super().__init__(iter(source))
        self._source = source

    def interrupt(self) -> None:
        self._source.interrupt()


class _EnoughError(Exception):
    """Nobody takes further batches: ends whoever makes them."""


class ThreadSource(StreamSource):
    """Batches made ahead on a thread of its own, whose error is raised where the batch is missed.

    They come from an iterator, or from a function that sends them.
    """

    def __init__(self, batches: Iterable[Any] | Callable[[Any], None], capacity: int) -> None:
        self._stream, self._error = Stream(capacity), None  # type: tuple[Stream, BaseException | None]
        self._stream.open(0, "the data set")
        super().__init__(self._stream.reader(), math.inf, lambda: True)
        start_thread("dataset", self._fill, batches)

    def _fill(self, batches: Iterable[Any] | Callable[[Any], None]) -> None:
        try:
            if callable(batches):
                batches(self)
            else:
                for batch in batches:
                    self.send(batch)
        except _EnoughError:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._stream.end(0)

    def send(self, batch: Any) -> None:
        """Append a batch, waiting for room."""
        if not self._stream.put(0, message_of(batch)):
            raise _EnoughError

    def __next__(self) -> Message:
        try:
            return super().__next__()
        except StopIteration:
            if self._error is not None:
                raise self._error from None
            raise

    def interrupt(self) -> None:
        super().interrupt()
        self._stream.close()


class DataLoader:
    """Batches with their embeddings, looked up ahead of the trainer.

    `embedding_staleness` is the number of batches in flight: with 1 a look-up sees every update before it. Without it
    there are 4 (PERSIA had no bound), or `forward_buffer_size` where that is less. `reproducible=True` takes data
    loaders in turns and keeps look-ups and updates in one fixed order: with any staleness, a run repeats itself bit for
    bit. `num_workers` is taken and not needed.

    >>> DataLoader(StreamingDataset(10), embedding_staleness=1, reproducible=True).staleness
    1
    """

    def __init__(
        self,
        dataset: IterableDatasetBase,
        forward_buffer_size: int = 10,
        timeout_ms: int = 1000 * 60 * 10,
        num_workers: int = 10,
        reproducible: bool = False,
        embedding_staleness: int | None = None,
    ) -> None:
        constraints = {
            "dataset": Instance(IterableDatasetBase, "a StreamingDataset or an IterableDataset"),
            "forward_buffer_size": Int(min=1),
            "timeout_ms": Int(min=0),
            "num_workers": Int(min=1),
            "reproducible": BOOL,
            "embedding_staleness": NONE | Int(min=1),
        }
        check_all(locals(), constraints, "DataLoader")
        self.dataset, self.timeout_ms, self.num_workers = dataset, timeout_ms, num_workers
        self.reproducible = reproducible
        self._asked = embedding_staleness
        self.staleness = embedding_staleness or min(STALENESS, forward_buffer_size)

    def __iter__(self) -> Iterator[PersiaTrainingBatch]:
        from penstock.compat.persia._embedding_ctx import current

        context = current()
        source = self.dataset.messages(self.timeout_ms / 1000, self.reproducible)
        staleness = self._asked or context.embedding_staleness or self.staleness
        return context._batches(FixedOrder(source) if self.reproducible else source, staleness)

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]


class Dataloder(DataLoader):
    """`DataLoader` as it was spelled until the end of 2021; whether a loop trains is the context's to say.

    >>> Dataloder(StreamingDataset(10), is_training=False).num_workers
    10
    """

    def __init__(self, dataset: IterableDatasetBase, *args: Any, is_training: bool = True, **kwargs: Any) -> None:
        super().__init__(dataset, *args, **kwargs)
