"""A training that publishes what it learns while it goes on, for services to follow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.keys import KeyLike
from penstock.core.params import NONE, Int, Real, Satisfies, check_all
from penstock.embedding.feed import FeedWriter
from penstock.embedding.protocol import is_on_host
from penstock.train import distributed

if TYPE_CHECKING:
    from penstock.train.training_parts import Training

_PATH = Satisfies(lambda v: isinstance(v, (str, Path)) and bool(str(v)), "the path of a folder")


@dataclass(frozen=True)
class Feed:
    """Where and how often a training publishes its embeddings and its dense weights.

    Args:
        directory: where packets go.
        seconds: between two packets, at least; one is written with the next training record.
        whole_every: packets after which one holds everything, and older ones are deleted.
        sign: the file of a key; packets are signed with it.

    >>> Feed("feed").seconds
    30.0
    """

    directory: str | Path
    seconds: float = 30.0
    whole_every: int | None = 100
    sign: KeyLike | None = None

    def __post_init__(self) -> None:
        rules = {"directory": _PATH, "seconds": Real(min=0), "whole_every": NONE | Int(min=1)}
        check_all({name: getattr(self, name) for name in rules}, rules, "Feed")


class Publisher:
    """Writes the packets of one training. With several workers all of them call it, and the first one writes."""

    def __init__(self, feed: Feed, training: Training, clock: Callable[[], float] = time.monotonic) -> None:
        self.feed, self._training, self._clock = feed, training, clock
        self._writer: FeedWriter | None = None
        self._published_at, self._step = clock(), -1
        if distributed.rank() == 0:
            home: Any = training.embeddings if is_on_host(training.embeddings) else training.tables
            self._writer = FeedWriter(home, feed.directory, feed.whole_every, feed.sign, training.module)

    def due(self) -> bool:
        """Whether it is time for the next packet, by the first worker's clock."""
        return bool(distributed.all_gather(self._clock() - self._published_at >= self.feed.seconds)[0])

    def publish(self) -> float:
        """Publish this step, unless that is done; the seconds that it took.

        Updates that were ordered are done first. Batches that were looked up ahead stay as they are: publishing does
        not change what is learned.
        """
        began = time.perf_counter()
        if self._step != self._training.steps:
            drain = getattr(self._training, "drain", None)
            if drain is not None:
                drain()
            distributed.barrier()
            if self._writer is not None:
                self._writer.publish(self._training.steps)
            distributed.barrier()
        self._published_at, self._step = self._clock(), self._training.steps
        return time.perf_counter() - began

    def weights_changed(self) -> None:
        """The weights are those of another step than before."""
        self._step = -1

    def close(self) -> None:
        """Let another writer in."""
        if self._writer is not None:
            self._writer.close()


@contextmanager
def publishing(feed: Feed | str | Path | None, training: Training) -> Iterator[Publisher | None]:
    """What publishes a training while the block runs; None where it is not to be published."""
    if feed is None:
        yield None
        return
    publisher = Publisher(feed if isinstance(feed, Feed) else Feed(feed), training)
    try:
        yield publisher
    finally:
        publisher.close()
