"""Where the rows of tables of known sizes are, row by row: four bytes on the device for each (`cache_contract`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from penstock.embedding.cached.transport import Exchange
from penstock.embedding.fused.ids import Ids
from penstock.embedding.fused.table_group import TableGroup
from penstock.kernels.cache_contract import UNSEEN, stored
from penstock.kernels.gpu_triton import is_interpreted


class SlotList(nn.Module):
    """The slot of every row of the tables, or its number in the store. Keys are rows of the joint table."""

    slot_of: Tensor
    absent: Tensor

    def __init__(self, tables: TableGroup, capacity: int) -> None:
        super().__init__()
        self._tables, self.total, self.capacity = tables, tables.num_rows, capacity
        device = tables.weight.device
        # One entry more than there are rows: ids outside their table have no slot.
        slots = torch.full((self.total + 1,), UNSEEN, dtype=torch.int32, device=device)
        self.register_buffer("slot_of", slots, persistent=False)
        # The code of an id that was looked up and had no slot: of a captured step that was not announced.
        self.register_buffer("absent", torch.zeros(1, dtype=torch.int64, device=device), persistent=False)

    def no_keys(self) -> Tensor:
        """What slots hold that hold nothing."""
        kind = torch.int32 if self.total < 2**31 - 1 else torch.int64
        return torch.full((self.capacity,), UNSEEN, dtype=kind, device=self.slot_of.device)

    def clear(self, known: np.ndarray | None) -> None:
        """Forget every slot; `known` are the rows' numbers in the store, -1 for none."""
        self.slot_of.fill_(UNSEEN)
        if known is not None:
            numbers = torch.from_numpy(known).to(self.slot_of.device)
            self.slot_of[:-1] = torch.where(numbers >= 0, stored(numbers), UNSEEN)

    def slots(self, ids: Ids, errors: Tensor, training: bool) -> Ids:
        """The ids as slots. Runs on the caller's stream and waits for nothing, so it can be captured."""
        out = torch.empty(ids.num_occurrences, dtype=torch.int32, device=self.slot_of.device)
        self._read(ids, out, (self.slot_of, self.capacity, errors, self.absent))
        return ids.replaced(out)

    def claim(self, batches: list[Ids], used: Tensor, number: int, rows: Any, insert: bool) -> tuple[Tensor, Tensor]:
        """The keys that no slot has, once each and in order, with their entries; the others are used by `number`."""
        kind = torch.int32 if self.total < 2**31 - 1 else torch.int64
        keys = [torch.empty(ids.num_occurrences, dtype=kind, device=used.device) for ids in batches]
        for ids, out in zip(batches, keys, strict=True):
            self._read(ids, out)  # `total` for an id outside its table
        missing, was = self._kernels.claim(torch.cat(keys) if len(keys) > 1 else keys[0], self.slot_of, used, number)
        return missing, was

    def give_up(self, missing: Tensor, was: Tensor) -> None:
        """What was claimed does not come."""
        self.slot_of[missing.long()] = was

    def enter(self, exchange: Exchange, rows: Tensor) -> None:
        """What has left has its number in the store, what has come its slot."""
        slots, keys, _, old_keys, old_rows, _ = exchange
        taken = old_keys >= 0
        self.slot_of[torch.where(taken, old_keys, self.total).long()] = torch.where(taken, stored(old_rows), UNSEEN)
        self.slot_of[keys.long()] = slots.int()

    def _read(self, ids: Ids, out: Tensor, slots: Any = None) -> None:
        lists = None if ids.lists is None else ids.lists[:2]
        self._kernels.read(self._tables.table_places(ids.bags), ids.singles, lists, self.total, out, slots)

    @property
    def _kernels(self) -> Any:
        if self.slot_of.device.type == "cuda" or is_interpreted():
            from penstock.kernels import gpu_cache

            return gpu_cache
        from penstock.embedding.cached import cpu_index

        return cpu_index
