"""How rows travel between a cache on the device and the store on the host: through pinned staging memory.

The host gathers the rows that come, a copy takes them to the device, and the rows they replace come back the same way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from penstock.core.runtime.threads import thread_pool
from penstock.embedding.cached.keys import in_order
from penstock.embedding.keyed_rows import KeyedRows
from penstock.kernels.cache_contract import UNSEEN, stored

_LEAST_STAGING = 1 << 12


class Exchange(NamedTuple):
    """Rows for some slots: the keys that come, in order, with their entries of the index, and what is there now."""

    slots: Tensor
    keys: Tensor
    was: Tensor
    old_keys: Tensor
    old_rows: Tensor
    touched: Tensor | None  # the steps that used what is there last, where rows have a bound


class Stopwatch:
    """Seconds spent by stage.

    >>> watch = Stopwatch("index", "copy")
    >>> with watch("copy"):
    ...     pass
    >>> watch.seconds["index"], watch.seconds["copy"] < 1
    (0.0, True)
    """

    def __init__(self, *stages: str) -> None:
        self.seconds = dict.fromkeys(stages, 0.0)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds[stage] += time.perf_counter() - begin


class Transport:
    """Exchanges rows of the device with the store. What leaves is put into the store by a thread of its own."""

    def __init__(self, store: KeyedRows, device: torch.device, watch: Stopwatch) -> None:
        self.store, self.device, self.watch = store, device, watch
        self._staging: dict[str, Tensor] = {}
        self._turn = 0
        self._writing: Future[None] | None = None
        self._thread = thread_pool(1, "cache-write")

    def run(self, exchange: Exchange, columns: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        """Begin an exchange, in the order of the current stream: the numbers of the rows that come, and the new ids."""
        with self.watch("lists"):
            order = in_order(exchange.old_keys)  # the store takes keys in order; slots that are free come first
            lists = [exchange.keys, exchange.was, exchange.old_keys[order], exchange.old_rows[order]]
            if exchange.touched is not None:
                lists.append(exchange.touched[order])
            keys, was, old_keys, old_rows, *touched = self._to_host(lists)
            free = int(np.searchsorted(old_keys if old_keys.ndim == 1 else old_keys[:, 0], 0))
        with self.watch("wait"):
            self.rest()  # a row that left with the last batch may come back with this one
        arrived, leaving = self._copy_out(exchange.slots[order[free:]], columns)
        with self.watch("gather"):
            coming, numbers, new = self._gather(keys, was, columns)
        with self.watch("copy"):
            for name, column in columns.items():
                column.index_copy_(0, exchange.slots, coming[name].to(self.device, non_blocking=True))
            rows = numbers.to(self.device, non_blocking=True)

        def write() -> None:
            with self.watch("write_back"):
                arrived()
                stamps = touched[0][free:] if touched else None
                self.store.write(old_keys[free:], old_rows[free:], as_arrays(leaving), stamps)

        self._writing = self._thread.submit(write)
        return rows, new

    def rest(self) -> None:
        """Wait until what has left is in the store."""
        if self._writing is not None:
            self._writing.result()

    def _gather(
        self, keys: np.ndarray, was: np.ndarray, columns: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], Tensor, int]:
        """Rows from the store in staging memory, their numbers, and how many ids were new."""
        rows, new = stored(was), np.flatnonzero(was == UNSEEN)
        before = self.store.count
        if len(new):
            rows[new] = self.store.find(keys[new])
        held = self._memories("in", len(keys), columns)
        self.store.read(keys, rows, as_arrays(held))
        numbers = self._memory("numbers", (len(rows),), torch.int32)
        numbers.numpy()[:] = rows
        return held, numbers, self.store.count - before

    def _to_host(self, lists: list[Tensor]) -> list[np.ndarray]:
        """Lists of the same length, as int64. Waits for the stream."""
        self._turn = 1 - self._turn  # the last lists may still be needed for writing
        widths = [1 if array.dim() == 1 else array.shape[1] for array in lists]
        held = self._memory(f"lists {self._turn}", (sum(widths), len(lists[0])), torch.int64)
        parts = [part.view(array.shape) for part, array in zip(held.split(widths), lists, strict=True)]
        for target, source in zip(parts, lists, strict=True):
            target.copy_(source, non_blocking=True)
        self._after()()
        return [part.numpy() for part in parts]

    def _copy_out(self, slots: Tensor, columns: Mapping[str, Tensor]) -> tuple[Callable[[], None], dict[str, Tensor]]:
        """Begin to copy rows to the host; a function that waits for it, and where they will be."""
        held = self._memories("out", len(slots), columns)
        for name, column in columns.items():
            held[name].copy_(column.index_select(0, slots), non_blocking=True)
        return self._after(), held

    def _after(self) -> Callable[[], None]:
        """A function that waits for what the stream has been given so far."""
        if self.device.type == "cpu":
            return lambda: None
        event = torch.cuda.Event()
        event.record()
        return event.synchronize

    def _memories(self, way: str, rows: int, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {n: self._memory(way + n, (rows, *c.shape[1:]), c.dtype) for n, c in columns.items()}

    def _memory(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Host memory, pinned where a GPU copies it, and used again by the next batch.

        A GPU has read it by then: every batch waits for the stream (`_to_host`) before it touches this memory.
        """
        size = math.prod(shape)
        if name not in self._staging or len(self._staging[name]) < size:
            pinned = self.device.type == "cuda"
            self._staging[name] = torch.empty(max(_LEAST_STAGING, size * 5 // 4), dtype=dtype, pin_memory=pinned)
        return self._staging[name][:size].view(shape)


def as_arrays(columns: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Columns as the store takes them: bfloat16 as its bits."""
    return {n: (c.view(torch.uint16) if c.dtype == torch.bfloat16 else c).numpy() for n, c in columns.items()}
