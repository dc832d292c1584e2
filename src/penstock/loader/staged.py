"""Batches of an epoch as slices of chunks on a device; the next epoch's reading may begin before this one ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from penstock.core.batch import Batch, Ragged
from penstock.loader.base import BaseLoader
from penstock.loader.device_chunks import DeviceChunk, Stager
from penstock.loader.plan import EpochPlan
from penstock.loader.runtime import Runtime


class StagedBatches:
    """Batches `[start, stop)` of an epoch. Reading begins when it is made, and ends when it is closed."""

    def __init__(self, loader: BaseLoader, runtime: Runtime, plan: EpochPlan, start: int, stop: int) -> None:
        self._plan, self._batch, self._start, self._stop = plan, start, start, stop
        self._blocks = loader._layout.blocks
        self._stager = Stager(loader, runtime, plan, start, stop)
        self._chunk: DeviceChunk | None = None
        self._near_end: Callable[[], None] | None = None

    def is_of(self, plan: EpochPlan, start: int, stop: int) -> bool:
        """Whether these are the batches of a plan, none of them taken yet."""
        return self._plan is plan and (self._start, self._stop) == (start, stop) and self._batch == start

    def call_near_end(self, function: Callable[[], None]) -> None:
        """Call the function once, when the last chunk but one is taken: there is next to nothing left to read."""
        self._near_end = function

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        if self._batch >= self._stop:
            self._chunk = None
            raise StopIteration
        low, high = self._plan.bounds(self._batch)
        chunk = self._chunk
        while chunk is None or high > chunk.first + chunk.num_rows:
            self._chunk = None  # memory is free before more of it is taken
            chunk = self._chunk = self._next_chunk()
        self._batch += 1
        low, high = low - chunk.first, high - chunk.first
        ragged = {name: _cut(lists, chunk.places[name], low, high) for name, lists in chunk.ragged.items()}
        return Batch(self._blocks, [block[:, low:high] for block in chunk.blocks], ragged, high - low)

    def _next_chunk(self) -> DeviceChunk:
        chunk = self._stager.next_chunk()
        if chunk is None:
            raise StopIteration
        self._stager.side.join(chunk)
        chunks = self._plan.chunks
        if self._near_end is not None and chunk.first + chunk.num_rows >= chunks[max(len(chunks) - 2, 0)].end:
            self._near_end()
            self._near_end = None
        return chunk

    @property
    def is_over(self) -> bool:
        """Whether all batches were taken."""
        return self._batch >= self._stop

    def close(self) -> None:
        """End the threads."""
        self._chunk = self._near_end = None
        self._stager.close()


def _cut(lists: Ragged, places: dict[int, int], low: int, high: int) -> Ragged:
    return Ragged(lists.values[places[low] : places[high]], lists.offsets[low : high + 1] - places[low])
