"""A cache of rows on the device: which rows are in which slots, and what it takes to bring a batch's rows there.

Where a row is, `SlotList` or `SlotIndex` knows, on the device: a batch's missing rows are found there, and slots for
them here, twelve bytes each; `transport` exchanges the rows. A look-up asks on the device as well, so the host need not
know which rows are where.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from penstock.core.errors import ParameterError
from penstock.embedding.cached.keys import leading
from penstock.embedding.cached.row_budget import RowBudget
from penstock.embedding.cached.signed_rows import SignedRows
from penstock.embedding.cached.slot_index import SlotIndex, Uses
from penstock.embedding.cached.transport import Exchange, Stopwatch, Transport
from penstock.embedding.fused.ids import Ids
from penstock.embedding.keyed_rows import KeyedRows
from penstock.kernels.cache_contract import UNSEEN

STAGES = ("index", "victims", "lists", "wait", "gather", "copy", "enter", "write_back", "evict")
COUNTS = ("batches", "ids", "brought_in", "first_seen", "deferred", "dropped")
_WINDOW = 4  # slots looked at for each one that is needed
_LEAST_WINDOW = 1 << 16


class NoRoomError(ParameterError):
    """The slots that no batch in flight uses are fewer than a batch's missing rows."""


class SlotPlaces(Protocol):
    """Where rows are: which slot has which key. `SlotList` and `SlotIndex` say what each call does."""

    absent: Tensor

    def no_keys(self) -> Tensor: ...
    def clear(self, known: Any) -> None: ...
    def slots(self, ids: Ids, errors: Tensor, training: bool) -> Ids: ...
    def claim(
        self, batches: list[Ids], used: Tensor, number: int, rows: Any, insert: bool
    ) -> tuple[Tensor, Tensor]: ...
    def give_up(self, missing: Tensor, was: Tensor) -> None: ...
    def enter(self, exchange: Exchange, rows: Tensor) -> None: ...


class RowCache(nn.Module):
    """A cache of `capacity` rows, which `places` finds, and the traffic with the store behind it.

    `described` is the setting that the capacity comes from, for messages. With `max_rows` the store's rows have that
    bound, and `places` must be a `SlotIndex`.
    """

    key_of: Tensor
    row_of: Tensor
    used: Tensor

    def __init__(
        self, places: SlotPlaces, capacity: int, device: Any, described: str, max_rows: int | None = None
    ) -> None:
        super().__init__()
        self.places, self.capacity, self.described = places, capacity, described
        self.budget = None if max_rows is None else RowBudget(max_rows, capacity, device)
        self.register_buffer("key_of", places.no_keys(), persistent=False)
        for name in ("row_of", "used"):
            array = torch.full((capacity,), UNSEEN, dtype=torch.int32, device=device)
            self.register_buffer(name, array, persistent=False)
        self.clear()

    def clear(self, known: np.ndarray | None = None) -> None:
        """Forget every row; nothing is written back. `known` are the rows' numbers in the store, -1 for none."""
        for array in (self.key_of, self.row_of, self.used):
            array.fill_(UNSEEN)
        if self.budget is not None:
            self.budget.touched.zero_()
        self.places.clear(known)
        self._hand, self._age = 0, 1.0
        self.forget_device()
        self.counts = dict.fromkeys(COUNTS, 0)

    @property
    def taken(self) -> Tensor:
        """Which slots have a row."""
        return leading(self.key_of) >= 0

    def forget_device(self) -> None:
        """Begin anew with the way rows travel: the cache has moved to another device."""
        self.watch = Stopwatch(*STAGES)
        self._transport: Transport | None = None

    def rest(self) -> None:
        """Wait until every row that has left is in the store."""
        if self._transport is not None:
            self._transport.rest()

    def admit(
        self,
        batches: list[Ids],
        number: int,
        oldest: int,
        columns: Mapping[str, Tensor],
        store: KeyedRows,
        insert: bool,
    ) -> None:
        """Bring the rows of a group of batches into the slots of rows that no group from `oldest` on has used."""
        self.counts["batches"] += len(batches)
        self.counts["ids"] += sum(ids.num_occurrences for ids in batches)
        if insert and self.budget is not None:
            assert isinstance(store, SignedRows)
            self._admit_in_turn(self.budget, batches, number, oldest, columns, store)
            return
        with self.watch("index"):
            missing, was = self.places.claim(batches, self.used, number, store, insert)
        self._bring_in(missing, was, number, oldest, columns, store, len(batches))

    def _admit_in_turn(
        self, budget: RowBudget, batches: list[Ids], number: int, oldest: int, columns: Mapping[str, Tensor],
        store: SignedRows,
    ) -> None:  # fmt: skip
        """`admit` for training with a bound on the rows: a step for each batch, together while no row can go."""
        places, before = self.places, store.clock
        assert isinstance(places, SlotIndex)
        try:
            with self.watch("index"):
                uses = places.uses(batches, self.used, number, in_turn=True)
            if store.count + len(uses.keys) <= budget.max_rows:
                self._take_steps(budget, uses, number, oldest, columns, store)
                return
            for ids in batches:
                with self.watch("index"):
                    uses = places.uses([ids], self.used, number)
                if store.count + store.num_new(uses.keys.cpu().numpy()) > budget.max_rows and not budget.holds(
                    uses.slots[0], len(uses.keys), self.used, oldest
                ):
                    self.counts["deferred"] += 1
                    raise self._over_budget(budget.max_rows, len(batches))
                self._take_steps(budget, uses, number, oldest, columns, store)
                self._evict(budget, store)
        except NoRoomError:
            store.take_back(before)
            raise
        finally:
            places.expected(number)

    def _take_steps(
        self, budget: RowBudget, uses: Uses, number: int, oldest: int, columns: Mapping[str, Tensor], store: SignedRows
    ) -> None:
        """Batches use their rows, one step after the other."""
        assert isinstance(self.places, SlotIndex)
        first, keys = store.take_steps(len(uses.slots)), uses.keys
        self.places.expect(keys)
        was = torch.full((len(keys),), UNSEEN, dtype=torch.int32, device=keys.device)
        slots = self._bring_in(keys, was, number, oldest, columns, store, len(uses.slots))
        budget.use(uses.slots, first)
        budget.touched[slots] = uses.last + first

    def _evict(self, budget: RowBudget, store: SignedRows) -> None:
        """Rows beyond the bound go, wherever they are."""
        if store.count <= budget.max_rows:
            return
        assert isinstance(self.places, SlotIndex)
        with self.watch("evict"):
            self.rest()
            budget.tell(store, self.key_of)
            gone = self.places.drop(torch.from_numpy(store.evict()).to(self.used.device))
            for array in (self.key_of, self.row_of, self.used):
                array[gone] = UNSEEN
            budget.touched[gone] = 0
            self.counts["dropped"] += len(gone)

    def _bring_in(
        self, missing: Tensor, was: Tensor, number: int, oldest: int, columns: Mapping[str, Tensor], store: KeyedRows,
        batches: int,
    ) -> Tensor:  # fmt: skip
        """Exchange rows that were not used since group `oldest` for the missing ones; the slots of these."""
        if not len(missing):
            return missing.new_empty(0, dtype=torch.int64)
        with self.watch("victims"):
            slots = self._idle_slots(len(missing), number, oldest)
        if slots is None:
            self.places.give_up(missing, was)
            self.counts["deferred"] += 1
            raise self._no_room(len(missing), number, batches)
        touched = None if self.budget is None else self.budget.touched[slots]
        exchange = Exchange(slots, missing, was, self.key_of[slots], self.row_of[slots], touched)
        if self._transport is None:
            self._transport = Transport(store, self.used.device, self.watch)
        try:
            rows, new = self._transport.run(exchange, columns)
        except BaseException:
            self.places.give_up(missing, was)
            raise
        with self.watch("enter"):
            self.places.enter(exchange, rows)
            self.key_of[slots], self.row_of[slots] = missing, rows
            if self.budget is not None:
                self.budget.touched[slots] = 0
        self.counts["brought_in"] += len(missing)
        self.counts["first_seen"] += new
        return slots

    def _over_budget(self, max_rows: int, batches: int) -> NoRoomError:
        fewer = "use smaller batches" if batches == 1 else "announce fewer together (prefetch_batches)"
        return NoRoomError(
            f"CachedEmbeddings.max_rows={max_rows} does not hold the rows of all batches in flight, with one row in 16 "
            f"to spare; give more, train on the batches before first, or {fewer}"
        )

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
