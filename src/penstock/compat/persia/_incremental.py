"""Incremental updates: what training changed goes to `incremental_dir`, and those who only look up follow it."""

from __future__ import annotations

import time
from pathlib import Path

from penstock.compat.persia._config import GlobalConfig
from penstock.compat.persia._message import rows_of
from penstock.compat.persia._training_batch import PersiaTrainingBatch
from penstock.core.batch import Ragged
from penstock.core.errors import ParameterError
from penstock.embedding.feed import FeedWriter
from penstock.embedding.feed_reader import FeedReader
from penstock.embedding.store import EmbeddingStore, Store

_EVERY = 1.0  # seconds between looks for what is new


class IncrementalWriter:
    """Publishes after every `incremental_buffer_size` ids that were trained, and at the end."""

    def __init__(self, store: EmbeddingStore, config: GlobalConfig) -> None:
        if not isinstance(store, Store):
            raise ParameterError("enable_incremental_update is for embeddings in the trainer's memory, not on Ray")
        self._feed = FeedWriter(store, str(config.incremental_dir), whole_every=100)
        self._limit, self._changed = config.incremental_buffer_size, 0

    def __call__(self, batch: PersiaTrainingBatch) -> None:
        ids = batch.message.ids.values()
        self._changed += sum(len(part.values) if isinstance(part, Ragged) else rows_of(part) for part in ids)
        if self._changed >= self._limit:
            self.publish()

    def publish(self) -> None:
        """Write what has changed since the last time."""
        if self._changed:
            self._feed.publish()
            self._changed = 0

    def close(self) -> None:
        """Publish what is left and let another writer in."""
        try:
            self.publish()
        finally:
            self._feed.close()


class IncrementalReader:
    """Takes over what was published, looking once a second at most."""

    def __init__(self, store: Store, directory: str | Path) -> None:
        self._feed, self._next = FeedReader(directory, store), 0.0

    def poll(self) -> int:
        """Apply what is new."""
        if time.monotonic() < self._next:
            return 0
        self._next = time.monotonic() + _EVERY
        return self._feed.poll() if self._feed.directory.is_dir() else 0
