"""How rows travel between a cache on the device and the store on the host.

`Mapped` lets the GPU read and write the store's own memory over the bus, which has to be pinned for that; the host does
nothing but insert ids that are new. `Copied` gathers rows on the host into staging memory, and takes those that leave
the same way: what the CPU does, what is left where memory cannot be pinned, and what tells a store that someone follows
which rows change.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from penstock.embedding.numbered import NumberedRows
from penstock.kernels.cpu_intrinsics import address_of
from penstock.kernels.reference_cache import UNSEEN, stored

_LEAST_STAGING = 1 << 12


class Exchange(NamedTuple):
    """Rows for some slots: the keys that come, in order, with their entries of the index, and what is there now."""

    slots: Tensor
    keys: Tensor
    was: Tensor
    old_keys: Tensor
    old_rows: Tensor


class Copied:
    """Rows through staging memory on the host."""

    def __init__(self, store: NumberedRows, device: torch.device) -> None:
        self.store, self.device = store, device
        self._staging: dict[str, Tensor] = {}

    def run(self, exchange: Exchange, columns: Mapping[str, Tensor]) -> tuple[Tensor, int, Callable[[], None]]:
        """The numbers of the rows that come, how many ids were new, and what is left to do once they are looked up."""
        order = torch.argsort(exchange.old_keys)  # the store takes keys in order; slots that are free come first
        lists = [exchange.keys, exchange.was, exchange.old_keys[order], exchange.old_rows[order]]
        keys, was, old_keys, old_rows = self._to_host(lists)
        free = int(np.searchsorted(old_keys, 0))
        arrived, leaving = self._copy_out(exchange.slots[order[free:]], columns)
        coming = self._memories("in", len(keys), columns)
        rows, new = stored(was), np.flatnonzero(was == UNSEEN)
        if len(new):
            rows[new] = self.store.find(keys[new])
        self.store.read(keys, rows, as_arrays(coming))
        for name, column in columns.items():
            column.index_copy_(0, exchange.slots, coming[name].to(self.device, non_blocking=True))
        numbers = self._memory("numbers", (len(rows),), torch.int32)
        numbers.numpy()[:] = rows

        def write_back() -> None:
            arrived()
            self.store.write(old_keys[free:], old_rows[free:], as_arrays(leaving))

        return numbers.to(self.device, non_blocking=True), len(new), write_back

    def _to_host(self, lists: list[Tensor]) -> np.ndarray:
        """Lists of the same length as rows of one array. Waits for the stream."""
        held = self._memory("lists", (len(lists), len(lists[0])), torch.int64)
        for target, source in zip(held, lists, strict=True):
            target.copy_(source, non_blocking=True)
        self._after()()
        return held.numpy()

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
        """Host memory, pinned where a GPU copies it, and used again by the next batch."""
        size = math.prod(shape)
        if name not in self._staging or len(self._staging[name]) < size:
            pinned = self.device.type == "cuda"
            self._staging[name] = torch.empty(max(_LEAST_STAGING, size * 5 // 4), dtype=dtype, pin_memory=pinned)
        return self._staging[name][:size].view(shape)


class Mapped:
    """Rows exchanged by the GPU itself. `refused` once memory could not be pinned."""

    def __init__(self, store: NumberedRows, device: torch.device) -> None:
        self.store, self.device, self.refused = store, device, False
        self._starts = torch.from_numpy(store.starts[1:].copy()).to(device)
        self._pinned: list[np.ndarray] = []
        self._sizes: list[int] = []
        self._chunks: tuple[Tensor, Tensor] = (self._starts[:0], self._starts[:0])
        weakref.finalize(self, _let_go, self._pinned, device).atexit = False  # the driver does it then

    def run(
        self, kernels: Any, exchange: Exchange, columns: Mapping[str, Tensor]
    ) -> tuple[Tensor, int, Callable[[], None]] | None:
        """As `Copied.run`; None if memory cannot be pinned."""
        rows, new = stored(exchange.was), exchange.was == UNSEEN
        strange = exchange.keys[new]  # waits for their number
        if len(strange):
            numbers = self.store.find(strange.long().cpu().numpy())
            rows.masked_scatter_(new, torch.from_numpy(numbers.astype(np.int32)).to(self.device))
        if not self._follow():
            return None
        coming = self._table(exchange.keys), rows
        leaving = self._table(exchange.old_keys), exchange.old_rows
        for name, column in columns.items():
            kernels.swap(exchange.slots, coming, leaving, self._chunks, column, self.store.place(name))
        return rows, len(strange), lambda: None

    def _table(self, keys: Tensor) -> Tensor:
        return torch.bucketize(keys, self._starts, out_int32=True, right=True).clamp_(max=len(self._starts) - 1)

    def _follow(self) -> bool:
        """Pin what the store has added since, and tell the device where it is."""
        tables = self.store.tables()
        sizes = [len(table.chunks) for table in tables]
        if sizes == self._sizes:
            return True
        held = {address_of(block) for block in self._pinned}
        for block in (block for table in tables for block in table.blocks):
            if address_of(block) in held:
                continue
            if self.device.type == "cuda" and int(
                torch.cuda.cudart().cudaHostRegister(address_of(block), block.nbytes, 0)
            ):
                self.refused = True
                return False
            self._pinned.append(block)
        starts = np.cumsum([0, *sizes[:-1]])
        every = np.concatenate([table.chunks for table in tables]).astype(np.int64)
        self._chunks = torch.from_numpy(starts).to(self.device), torch.from_numpy(every).to(self.device)
        self._sizes = sizes
        return True


def _let_go(pinned: list[np.ndarray], device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        for block in pinned:
            torch.cuda.cudart().cudaHostUnregister(address_of(block))
    pinned.clear()


def as_arrays(columns: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Columns as the store takes them: bfloat16 as its bits."""
    return {n: (c.view(torch.uint16) if c.dtype == torch.bfloat16 else c).numpy() for n, c in columns.items()}
