"""Where the rows of hashed ids are, as far as they are cached: an index on the device, as hashed tables have it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from penstock.embedding.cached.keys import in_order
from penstock.embedding.cached.signed_rows import SignedRows
from penstock.embedding.cached.transport import Exchange
from penstock.embedding.fused.ids import Ids
from penstock.embedding.hashed.hash_index import HashIndex, ids_by_table
from penstock.kernels.cache_contract import UNSEEN, stored
from penstock.kernels.gpu_triton import is_interpreted
from penstock.kernels.hashed_contract import NO_ROW

_ENTRIES = 2  # of the index, for each slot


class Uses(NamedTuple):
    """What a group of batches uses: the keys that no slot has, once each and in order, and the slots of each batch."""

    keys: Tensor
    last: Tensor  # which batch is the last that names each key
    slots: list[Tensor]


class SlotIndex(nn.Module):
    """The slots of cached ids by their signs. A key is a table's number and an id; the store knows the other ids.

    An id that leaves keeps its entry, which has no slot, until the index is built anew. That happens between steps, in
    the same memory where it suffices (`make_room`).
    """

    absent: Tensor

    def __init__(self, num_tables: int, capacity: int, device: Any) -> None:
        super().__init__()
        self.capacity = capacity
        self.index = HashIndex([0] * num_tables, 0, device, region=_ENTRIES * -(-capacity // num_tables))
        # One more than the number of a table of which a captured step was given an id that was not announced.
        self.register_buffer("absent", torch.zeros(1, dtype=torch.int64, device=device), persistent=False)
        self._signs = np.zeros(num_tables, np.int64)  # in the index, of each table
        self._asked = dict[int, np.ndarray]()  # by groups of batches under way, how many they may add
        self._lock, self._has_moved = threading.Lock(), False

    def no_keys(self) -> Tensor:
        """What slots hold that hold nothing."""
        return torch.full((self.capacity, 2), -1, dtype=torch.int64, device=self.absent.device)

    def clear(self, known: None) -> None:
        """Forget every slot."""
        before = self.index.sizes
        self.index.clear()
        self._signs, self._asked = np.zeros_like(self._signs), {}
        self._has_moved |= before != self.index.sizes

    # Room.

    def make_room(self, number: int, batches: list[Ids], rest: Callable[[], None]) -> None:
        """Before a group of batches is brought in: entries for all of its ids. `rest` waits for those under way."""
        wanted = np.minimum(sum(ids_by_table(ids, len(self._signs))[:-1] for ids in batches), self.capacity)
        with self._lock:
            fits = self.index.has_place_for(self._signs + sum(self._asked.values()) + wanted)
        if not fits:
            rest()
            self._asked = {}
            if not self.index.has_place_for(self._signs + wanted):
                self._has_moved |= self.index.rebuild(self._kernels, wanted)
                held = torch.bincount(self.index.listed()[1], minlength=len(self._signs))
                self._signs = held.cpu().numpy()
        with self._lock:
            self._asked[number] = wanted

    def has_moved(self) -> bool:
        """Whether the index is elsewhere than when this was last asked."""
        moved, self._has_moved = self._has_moved, False
        return moved

    # A batch.

    def slots(self, ids: Ids, errors: Tensor, training: bool) -> Ids:
        """The ids as slots; those without one are the row of zeros behind them, in training no row at all."""
        nothing = self.capacity + training
        found = self.index.rows_of(self._kernels, ids, nothing)
        if training:
            self._report(ids, found == nothing)
        return ids.replaced(found)

    def _report(self, ids: Ids, lost: Tensor) -> None:
        """Keep the table of one of the ids that were not announced."""
        (rows, singles), count = ids.singles.shape, ids.singles.numel()
        tables = self.index.features(ids.bags)[:, 2] + 1
        if count:
            named = lost[:count].view(singles, rows).any(1) * tables[:singles]
            self.absent.clamp_(min=named.max())
        if len(lost) > count:
            self.absent.clamp_(min=lost[count:].any() * tables[singles])

    def claim(
        self, batches: list[Ids], used: Tensor, number: int, rows: SignedRows, insert: bool
    ) -> tuple[Tensor, Tensor]:
        """The keys that no slot has, once each and in order; the others are used by `number`.

        Without `insert` only keys are named that the store has.
        """
        keys, _, _ = self.uses(batches, used, number)
        was = torch.full((len(keys),), UNSEEN, dtype=torch.int32, device=keys.device)
        if not insert and len(keys):
            numbers = torch.from_numpy(rows.find(keys.cpu().numpy(), insert=False)).to(keys.device)
            there = numbers >= 0
            keys, was = keys[there], stored(numbers[there]).int()
        self.expect(keys)
        self.expected(number)
        return keys, was

    def uses(self, batches: list[Ids], used: Tensor, number: int, in_turn: bool = False) -> Uses:
        """What batches use; the slots of those keys that have one are used by `number`. `in_turn`, also which does."""
        parts = [self._missing(ids, used, number) for ids in batches]
        keys = torch.cat([missing for missing, _ in parts])
        order = in_order(keys)
        keys = keys[order]
        first = torch.ones(len(keys), dtype=torch.bool, device=keys.device)
        first[1:] = (keys[1:] != keys[:-1]).any(1)
        last = torch.zeros(int(first.sum()), dtype=torch.int32, device=keys.device)
        if in_turn and len(batches) > 1:
            counts = torch.tensor([len(missing) for missing, _ in parts], device=keys.device)
            batch = torch.repeat_interleave(torch.arange(len(batches), dtype=torch.int32, device=keys.device), counts)
            last.scatter_reduce_(0, first.cumsum(0) - 1, batch[order], "amax")
        return Uses(keys[first], last, [slots for _, slots in parts])

    def expect(self, keys: Tensor) -> None:
        """These keys come in: they will have entries."""
        counts = torch.bincount(keys[:, 0], minlength=len(self._signs)).cpu().numpy()
        with self._lock:
            self._signs += counts

    def expected(self, number: int) -> None:
        """All keys of a group of batches are known."""
        with self._lock:
            self._asked.pop(number, None)

    def drop(self, keys: Tensor) -> Tensor:
        """Keys that have no row any more, in the order of their tables; the slots that had one."""
        cuts = torch.searchsorted(keys[:, 0].contiguous(), torch.arange(len(self._signs) + 1, device=keys.device))
        lists = keys[:, 1].contiguous(), torch.stack([cuts[:-1], cuts[1:]], 1).flatten(), None
        ids = Ids(keys.new_empty((1, 0)), lists, tuple(range(len(self._signs))))
        slots = self.index.rows_of(self._kernels, ids, self.capacity).long()
        there = slots < self.capacity
        self._enter(keys[there], torch.full((int(there.sum()),), NO_ROW, device=keys.device))
        return slots[there]

    def _missing(self, ids: Ids, used: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """The keys of a batch that have no slot, as often as they come, and the slots of the others."""
        found = self.index.rows_of(self._kernels, ids, self.capacity)
        slots = found[found < self.capacity].long()
        used.index_fill_(0, slots, number)
        at = (found == self.capacity).nonzero().flatten()
        (rows, singles), count = ids.singles.shape, ids.singles.numel()
        feature = torch.div(at, max(rows, 1), rounding_mode="floor").clamp(max=max(singles - 1, 0))
        identity = ids.singles.t().reshape(-1)[at.clamp(max=count - 1)].long() if count else torch.zeros_like(at)
        if ids.lists is not None and len(ids.lists[0]):
            values, offsets, _ = ids.lists
            place = (at - count).clamp(min=0)
            own = torch.searchsorted(offsets[:: rows + 1].contiguous(), place, right=True) - 1
            is_listed = at >= count
            feature = torch.where(is_listed, singles + own, feature)
            identity = torch.where(is_listed, values[place].long(), identity)
        keys = torch.stack([self.index.features(ids.bags)[:, 2][feature], identity], 1)
        return keys[identity != -1], slots  # -1 is reported where it is looked up

    def give_up(self, missing: Tensor, was: Tensor) -> None:
        """What was claimed does not come; nothing was written."""

    def enter(self, exchange: Exchange, rows: Tensor) -> None:
        """What has left has no slot, what has come its own."""
        gone = exchange.old_keys[exchange.old_keys[:, 0] >= 0]
        self._enter(gone, torch.full((len(gone),), NO_ROW, device=gone.device))
        self._enter(exchange.keys, exchange.slots)

    def _enter(self, keys: Tensor, values: Tensor) -> None:
        tables, ids = keys.t().contiguous()
        self.index.enter(self._kernels, ids + 1, tables, values.long())

    @property
    def _kernels(self) -> Any:
        if self.absent.device.type == "cuda" or is_interpreted():
            from penstock.kernels import gpu_hashed

            return gpu_hashed
        from penstock.embedding.hashed import cpu_index

        return cpu_index
