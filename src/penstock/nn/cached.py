"""Tables larger than the GPU's memory: all rows in host memory, those in use on the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from penstock.core.errors import ParameterError
from penstock.core.params import Int, check_all
from penstock.nn.fused import FusedEmbeddings
from penstock.nn.fused_inputs import Ids

_ID_BITS = 40
_STATES = ("weight", "first_state", "second_state")
# Rows used in this many batches before the last one are evicted only when nothing older is left.
_PROTECTED = 2


class CachedEmbeddings(FusedEmbeddings):
    """`FusedEmbeddings` whose rows live in host memory, with a cache of `cache_rows` rows on the device.

    Before a look-up the rows of the batch that are not in the cache replace ones that have not been used for the
    longest, state and all: exact, whatever is evicted. The GPU moves them itself, in the order of its stream, and
    nothing waits for the host. The cache must hold at least the ids of one batch, and a batch's backward pass comes
    before the next look-up.

    >>> tables = CachedEmbeddings({"user": 1000}, dim=4, cache_rows=3, optimizer="sgd", lr=1.0)
    >>> for user in (1, 2, 3, 4, 5, 1):
    ...     tables(torch.tensor([[user]])).sum().backward()
    >>> len(tables.weight), tuple(tables.state_dict()["weight"].shape)
    (3, (1000, 4))
    """

    _slot_of: Tensor
    _row_of: Tensor
    _used: Tensor
    _clock: Tensor
    _hand: Tensor

    def __init__(self, tables: Any, dim: int = 16, *, cache_rows: int, scale: float = 0.01, **settings: Any) -> None:
        check_all({"cache_rows": cache_rows}, {"cache_rows": Int(min=1)}, "CachedEmbeddings")
        self.__dict__["cache_rows"] = cache_rows  # asked for by the constructor that follows
        super().__init__(tables, dim, scale=0.0, **settings)
        self.num_rows = sum(self.sizes.values())
        pinned = torch.cuda.is_available()
        self.host: dict[str, Tensor] = {}
        for name in _STATES:
            cached = getattr(self, name)
            if cached is None:
                continue
            shape = (self.num_rows, *cached.shape[1:])
            self.host[name] = torch.empty(shape, dtype=cached.dtype, pin_memory=pinned)
            self.host[name].fill_(0.0 if name == "weight" else getattr(self.optimizer, "initial_accumulator", 0.0))
        if scale:
            self.host["weight"].uniform_(-scale, scale)
        self._lookups = 0
        device = self.weight.device
        # One entry more than there are rows (or slots): what is written for "none" goes there.
        for name, size in (("_slot_of", self.num_rows), ("_row_of", cache_rows), ("_used", cache_rows)):
            kind = torch.int32 if self.num_rows < 2**31 - 1 and name != "_used" else torch.int64
            self.register_buffer(name, torch.full((size + 1,), -1, dtype=kind, device=device), persistent=False)
        # The batch being looked up, and the slot at which the search for a place begins.
        self.register_buffer("_clock", torch.full((1,), _PROTECTED + 1, dtype=torch.int64, device=device), False)
        self.register_buffer("_hand", torch.zeros(1, dtype=torch.int64, device=device), False)

    def _rows_on_device(self) -> int:
        return int(self.__dict__["cache_rows"])

    def look_up(self, ids: Ids, dense: Tensor | None, training: bool) -> tuple[Tensor, Any]:
        with torch.no_grad():
            slots = self._resident(ids)
            if self.weight.device.type == "cpu":
                self.check_ids()
            reported = self.errors.clone()
            found = super().look_up(slots, dense, training)
            self.errors.copy_(reported)  # a wrong id has no slot, and the kernels have reported that instead
        self._lookups += 1
        return found[0], (found[1], self._lookups)

    def step(self, ids: Ids, saved: Any, gradient: Tensor) -> None:
        inner, number = saved
        if number != self._lookups:
            raise ParameterError(
                "another batch has been looked up in CachedEmbeddings since the one of this backward pass, and may "
                "have replaced its rows; call backward() before the next look-up"
            )
        super().step(ids, inner, gradient)

    def flush(self) -> None:
        """Write every cached row back to host memory. Waits for the device."""
        rows = self._row_of[:-1]
        taken = (rows >= 0).nonzero().flatten()
        for name, host in self.host.items():
            host[rows[taken].long().cpu()] = getattr(self, name)[taken].cpu()

    def _places(self, bags: tuple[int, ...]) -> Tensor:
        """Every feature reads the cache as one table."""
        key = bags, self.weight.device, "cache"
        if key not in self._features:
            places = super()._places(bags).clone()
            places[:, 0], places[:, 1] = 0, len(self.weight)
            self._features[key] = places
        return self._features[key]

    def _resident(self, ids: Ids) -> Ids:
        """The ids as slots of the cache, after the rows they name have been brought there."""
        singles, rows = ids.singles.shape[1], len(ids.singles)
        places = super()._places(ids.bags)
        parts = [self._keys(ids.singles.t(), places[:singles, :, None]).flatten()]
        if ids.lists is not None:
            values, offsets, _ = ids.lists
            position = torch.arange(len(values), device=values.device)
            bag = torch.searchsorted(offsets[1:].contiguous(), position, right=True)
            feature = (singles + bag // max(rows, 1)).clamp(max=len(places) - 1)
            parts.append(self._keys(values, places[feature].t()[None]).flatten())
        keys = torch.cat(parts)
        if len(keys) > len(self.weight):
            raise ParameterError(
                f"CachedEmbeddings.cache_rows={len(self.weight)} does not hold the {len(keys)} ids of this batch; give "
                f"at least that many rows or use smaller batches"
            )
        if len(keys):
            self._admit(keys)
        slots = self._slot_of[keys]
        count = ids.singles.numel()
        lists = None if ids.lists is None else (slots[count:], *ids.lists[1:])
        return Ids(slots[:count].view(singles, rows).t(), lists, ids.bags)

    def _keys(self, ids: Tensor, places: Tensor) -> Tensor:
        """Rows of the joint tables; an id outside its table gets the number of rows, and is kept in `errors`."""
        start, size, place = places.unbind(1)
        ids = ids.long()
        known = (ids >= 0) & (ids < size)
        if ids.numel():
            code = ((place + 1) << _ID_BITS) | (ids & ((1 << _ID_BITS) - 1))
            self.errors.copy_(torch.maximum(self.errors, torch.where(known, 0, code).amax()))
        return torch.where(known, start + ids, self.num_rows)

    def _admit(self, keys: Tensor) -> None:
        """Bring the rows of `keys` into the cache, all on the device: the host knows none of the counts."""
        most, capacity, clock = len(keys), len(self.weight), self._clock
        clock += 1
        ordered = torch.sort(keys).values
        fresh = ordered < self.num_rows
        fresh[1:] &= ordered[1:] != ordered[:-1]
        slot = self._slot_of[ordered].long()
        self._used[torch.where(slot >= 0, slot, capacity)] = clock
        missing = fresh & (slot < 0)
        rank = missing.cumsum(0)
        count = rank[-1:]
        wanted = torch.full((most + 1,), self.num_rows, dtype=torch.int64, device=keys.device)
        wanted[torch.where(missing, rank - 1, most)] = ordered
        slots = self._victims(most)
        chosen = torch.arange(most, device=keys.device) < count
        self._move(wanted[:most], slots, count)
        leaving = torch.where(chosen, self._row_of[slots].long(), -1)
        # index_fill_, not an assignment: that would copy its number from the host, which a capture forbids
        self._slot_of.index_fill_(0, torch.where(leaving >= 0, leaving, self.num_rows), -1)
        self._slot_of[torch.where(chosen, wanted[:most], self.num_rows)] = slots.to(self._slot_of.dtype)
        self._slot_of[-1:].fill_(-1)
        place = torch.where(chosen, slots, capacity)
        self._row_of[place] = wanted[:most].to(self._row_of.dtype)
        self._used[place] = clock
        self._hand += count
        self._hand %= capacity

    def _victims(self, most: int) -> Tensor:
        """Slots to fill, the ones to take first in front: those unused for long, from the hand on, then the others."""
        capacity = len(self.weight)
        around = (torch.arange(capacity, device=self.weight.device) + self._hand) % capacity
        used = self._used[around]
        old, young = used < self._clock - _PROTECTED, (used >= self._clock - _PROTECTED) & (used < self._clock)
        first, second = old.cumsum(0), young.cumsum(0)
        position = torch.where(old, first - 1, torch.where(young, first[-1] + second - 1, most)).clamp(max=most)
        slots = torch.zeros(most + 1, dtype=torch.int64, device=self.weight.device)
        slots[position] = around
        return slots[:most]

    def _move(self, wanted: Tensor, slots: Tensor, count: Tensor) -> None:
        for name, host in self.host.items():
            cache = getattr(self, name)
            if cache.device.type == "cuda":
                from penstock.kernels.gpu_cache import swap

                swap(wanted, slots, count, self._row_of, cache, host)
                continue
            here, rows = slots[: int(count)], self._row_of[slots[: int(count)]].long()
            host[rows[rows >= 0]] = cache[here[rows >= 0]]
            cache[here] = host[wanted[: int(count)]]

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        """All rows, as `FusedEmbeddings` saves them: either kind loads the other's."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        self.flush()
        for name, host in self.host.items():
            destination[prefix + name] = host

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *arguments: Any) -> None:
        rest = dict(state_dict)
        for name, host in self.host.items():
            if (given := rest.get(prefix + name)) is not None and given.shape == host.shape:
                host.copy_(given)
                rest[prefix + name] = getattr(self, name)
        super()._load_from_state_dict(rest, prefix, *arguments)
        for table in (self._slot_of, self._row_of, self._used):
            table.fill_(-1)
