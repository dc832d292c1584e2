"""Look-ups and updates of a store on Ray that shards are at work on, while their client does something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.embedding.lookup import Lookup
from penstock.embedding.ray_client import RoutedBatch
from penstock.embedding.ray_in_flight import InFlight

if TYPE_CHECKING:
    from penstock.embedding.ray_store import RayStore


class _Begun:
    """A command of a store, sent and not finished yet."""

    def __init__(self, store: RayStore, call: InFlight, routed: RoutedBatch, lookup: Lookup) -> None:
        self._store, self._call, self._routed, self._lookup = store, call, routed, lookup

    def is_ready(self) -> bool:
        """Whether `finish` would not wait for a shard.

        Returns:
            Whether all of them have answered.
        """
        with self._store._lock:
            return self._store._calls.is_answered(self._call)


class BegunLookup(_Begun):
    """A look-up whose rows are on their way (`RayStore.begin_lookup`)."""

    def finish(self) -> Lookup:
        """Wait for the rows, and for the answers to whatever was begun before.

        Returns:
            What `RayStore.lookup` gives.

        Raises:
            StoreTimeoutError: a shard did not answer in time.
        """
        store, train = self._store, self._lookup.train
        with store._lock:
            try:
                with store.seconds["lookup"].timing():
                    rows = store._calls.wait(self._call)
                self._routed.pool_rows(rows)
            finally:
                store._calls.settle(self._call.number)
            self._lookup._work = self._routed if train else None
            store._counters.lookups += train
        return self._lookup


class BegunUpdate(_Begun):
    """An update on its way (`RayStore.begin_update`)."""

    def __init__(
        self, store: RayStore, call: InFlight, routed: RoutedBatch, lookup: Lookup, dropped: np.ndarray
    ) -> None:
        super().__init__(store, call, routed, lookup)
        self._dropped = dropped

    def finish(self) -> None:
        """Wait until all shards have applied it, and whatever was begun before.

        Raises:
            StoreTimeoutError: a shard did not answer in time; `update` with the same look-up applies it once.
        """
        store = self._store
        with store._lock:
            with store.seconds["update"].timing():
                applied = store._calls.wait(self._call)
            store._calls.count_updates(applied)
            store._calls.settle(self._call.number)
            store._counters.dropped += self._dropped
            store._counters.updates += 1
        self._lookup._work = None  # its memory can serve the next batch
