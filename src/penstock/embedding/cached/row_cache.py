"""A cache of rows in device memory, and what it takes to bring a batch's rows there.

The index of `penstock.kernels.cache_contract` is on the device: four bytes for every row of every table and twelve for
every slot. A batch's missing rows are found there, and so are slots for them; `transport` exchanges the rows.
A look-up reads the index, so the host need not know which rows are where.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from penstock.core.errors import ParameterError
from penstock.embedding.cached.transport import Exchange, Stopwatch, Transport
from penstock.embedding.fused.ids import Ids
from penstock.embedding.numbered_rows import NumberedRows
from penstock.kernels.cache_contract import UNSEEN, stored

STAGES = ("index", "victims", "lists", "wait", "gather", "copy", "enter", "write_back")
COUNTS = ("batches", "ids", "brought_in", "first_seen", "deferred")
_WINDOW = 4  # slots looked at for each one that is needed
_LEAST_WINDOW = 1 << 16


class NoRoomError(ParameterError):
    """The slots that no batch in flight uses are fewer than a batch's missing rows."""


class RowCache(nn.Module):
    """The index of a cache of `capacity` rows over tables of `total`, and the traffic with the store behind it.

    `described` is the setting that the capacity comes from, for messages.
    """

    slot_of: Tensor
    key_of: Tensor
    row_of: Tensor
    used: Tensor
    absent: Tensor

    def __init__(self, total: int, capacity: int, device: Any, described: str) -> None:
        super().__init__()
        self.total, self.capacity, self.described = total, capacity, described
        key = torch.int32 if total < 2**31 - 1 else torch.int64
        # One entry more than there are rows: ids outside their table have no slot.
        kinds = {"slot_of": (total + 1, torch.int32), "key_of": (capacity, key),
                 "row_of": (capacity, torch.int32), "used": (capacity, torch.int32)}  # fmt: skip
        for name, (size, kind) in kinds.items():
            self.register_buffer(name, torch.full((size,), UNSEEN, dtype=kind, device=device), persistent=False)
        # The code of an id that was looked up and had no slot: of a captured step that was not announced.
        self.register_buffer("absent", torch.zeros(1, dtype=torch.int64, device=device), persistent=False)
        self.clear()

    def clear(self, known: np.ndarray | None = None) -> None:
        """Forget every row; nothing is written back. `known` are the rows' numbers in the store, -1 for none."""
        for array in (self.slot_of, self.key_of, self.row_of, self.used):
            array.fill_(UNSEEN)
        if known is not None:
            numbers = torch.from_numpy(known).to(self.slot_of.device)
            self.slot_of[:-1] = torch.where(numbers >= 0, stored(numbers), UNSEEN)
        self._hand, self._age = 0, 1.0
        self.forget_device()
        self.counts = dict.fromkeys(COUNTS, 0)

    def forget_device(self) -> None:
        """Begin anew with the way rows travel: the cache has moved to another device."""
        self.watch = Stopwatch(*STAGES)
        self._transport: Transport | None = None

    def rest(self) -> None:
        """Wait until every row that has left is in the store."""
        if self._transport is not None:
            self._transport.rest()

    def keys(self, kernels: Any, places: Tensor, ids: Ids) -> Tensor:
        """Rows of the joint table; `total` for an id outside its table."""
        out = torch.empty(ids.num_occurrences, dtype=self.key_of.dtype, device=self.used.device)
        kernels.read(places, ids.singles, None if ids.lists is None else ids.lists[:2], self.total, out)
        return out

    def slots(self, kernels: Any, places: Tensor, ids: Ids, errors: Tensor) -> Ids:
        """The ids as slots. Runs on the caller's stream and waits for nothing, so it can be captured."""
        out = torch.empty(ids.num_occurrences, dtype=torch.int32, device=self.used.device)
        lists = None if ids.lists is None else ids.lists[:2]
        kernels.read(places, ids.singles, lists, self.total, out, (self.slot_of, self.capacity, errors, self.absent))
        (rows, singles), count = ids.singles.shape, ids.singles.numel()
        packed = None if ids.lists is None else (out[count:].long(), *ids.lists[1:])
        return Ids(out[:count].view(singles, rows).t(), packed, ids.bags)

    def admit(
        self,
        kernels: Any,
        keys: Tensor,
        number: int,
        oldest: int,
        columns: Mapping[str, Tensor],
        store: NumberedRows,
        batches: int = 1,
    ) -> None:
        """Bring the rows of a group of batches into the slots of rows that no group from `oldest` on has used."""
        self.counts["batches"] += batches
        self.counts["ids"] += len(keys)
        with self.watch("index"):
            missing, was = kernels.claim(keys, self.slot_of, self.used, number)
        if not len(missing):
            return
        with self.watch("victims"):
            slots = self._idle_slots(len(missing), number, oldest)
        if slots is None:
            self.slot_of[missing.long()] = was
            self.counts["deferred"] += 1
            raise self._no_room(len(missing), number, batches)
        exchange = Exchange(slots, missing, was, self.key_of[slots], self.row_of[slots])
        if self._transport is None:
            self._transport = Transport(store, self.used.device, self.watch)
        try:
            rows, new = self._transport.run(exchange, columns)
        except BaseException:
            self.slot_of[missing.long()] = was  # they have not come
            raise
        with self.watch("enter"):
            self._enter(exchange, rows)
        self.counts["brought_in"] += len(missing)
        self.counts["first_seen"] += new

    def _enter(self, exchange: Exchange, rows: Tensor) -> None:
        """Bring the index up to date."""
        slots, keys, _, old_keys, old_rows = exchange
        taken = old_keys >= 0
        self.slot_of[torch.where(taken, old_keys, self.total).long()] = torch.where(taken, stored(old_rows), UNSEEN)
        self.slot_of[keys.long()] = slots.int()
        self.key_of[slots] = keys
        self.row_of[slots] = rows

    def _no_room(self, missing: int, number: int, batches: int) -> NoRoomError:
        need = missing + int((self.used == number).sum())
        which = "this batch" if batches == 1 else f"{batches} batches announced together"
        said = f"{self.described} does not hold the {need} distinct rows of {which}"
        if need > self.capacity:
            fewer = "use smaller batches" if batches == 1 else "announce fewer (prefetch_batches)"
            return NoRoomError(f"{said}; give at least that many (twice as many to prefetch), or {fewer}")
        return NoRoomError(
            f"{said} beside those of batches whose backward pass is still to come; give more rows, or look up under "
            f"torch.no_grad() where no backward pass follows"
        )

    def _idle_slots(self, need: int, number: int, oldest: int) -> Tensor | None:
        """Slots to fill, or None if there are too few.

        A hand goes round and takes slots whose rows have not been used for `_age` batches. That age follows what the
        hand finds: it rises while slots are plenty and falls while they are rare, so rows leave in about the order of
        their last use, and only a small window of the slots is looked at.
        """
        taken: list[tuple[Tensor, Tensor]] = []
        window, seen, first = max(_WINDOW * need, _LEAST_WINDOW), 0, True
        while need:
            limit = oldest if seen >= self.capacity else max(0, min(oldest, number - int(self._age)))
            if seen >= 2 * self.capacity:
                for slots, before in taken:
                    self.used[slots] = before
                return None
            end = min(self._hand + window, self.capacity)
            found = (self.used[self._hand : end] < limit).nonzero().flatten()[:need] + self._hand
            taken.append((found, self.used[found]))
            self.used.index_fill_(0, found, number)  # not to be found again
            seen += end - self._hand
            need -= len(found)
            self._hand = end % self.capacity
            if need:
                self._age = max(1.0, self._age * 0.9)
            elif first:
                self._age = min(self._age * 1.05, float(number))
            first = False
        return torch.cat([slots for slots, _ in taken])
