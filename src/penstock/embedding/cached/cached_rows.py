"""Rows in a store on the host, with those in use in slots of the weight: the home of `CachedEmbeddings`' rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from penstock.core.errors import DataError, ParameterError
from penstock.embedding.cached.in_flight import BatchesInFlight, IncomingBatch, IncomingGroup
from penstock.embedding.cached.keys import in_order
from penstock.embedding.cached.row_cache import RowCache, SlotPlaces
from penstock.embedding.cached.signed_rows import SignedRows
from penstock.embedding.cached.slot_index import SlotIndex
from penstock.embedding.cached.slot_list import SlotList
from penstock.embedding.cached.transport import as_arrays
from penstock.embedding.fused.ids import Ids
from penstock.embedding.fused.row_home import RowHome
from penstock.embedding.fused.table_group import STATES, TableGroup
from penstock.embedding.hashed.listed_rows import listed_rows, write_listed, wrong_id
from penstock.embedding.numbered_rows import NumberedRows
from penstock.embedding.store import Store
from penstock.kernels.fused_contract import table_and_id
from penstock.kernels.gpu_triton import is_interpreted

_FLUSHED_AT_ONCE = 1 << 20


class CachedRows(RowHome):
    """`cache_rows` slots on the device for rows that are in a store; `open` gives it the tables and the store.

    Args:
        cache_rows: how many.
        described: the setting that they come from, for messages.
        is_hashed: whether ids have no vocabulary. Then there is a row of zeros behind the slots, for those that the
            store does not know.
    """

    joint = True
    tables: TableGroup
    store: Store
    cache: RowCache

    def __init__(self, cache_rows: int, described: str, is_hashed: bool = False) -> None:
        self.cache_rows, self._described, self._is_hashed = cache_rows, described, is_hashed

    def open(self, tables: TableGroup, store: Store) -> None:
        """Begin with nothing in the cache."""
        self.tables, self.store = tables, store
        self._flushed = 0  # the last batch whose rows are in the store as they are here
        device = tables.weight.device
        self._rows: NumberedRows | SignedRows
        if self._is_hashed:
            self._rows = SignedRows(store, tables.names)
            places: SlotPlaces = SlotIndex(len(tables.names), self.cache_rows, device)
        else:
            self._rows = NumberedRows(store, tables.sizes)
            places = SlotList(tables, self.cache_rows)
        eviction = store.tables.eviction
        most = None if eviction is None else eviction.max_rows
        self.cache = RowCache(places, self.cache_rows, device, self._described, most)
        self.cache.clear(self._rows.known())
        self.in_flight = BatchesInFlight(self._bring_in, self._make_room, lambda: not is_interpreted())

    def rows_on_device(self, total: int) -> int:
        return self.cache_rows + self._is_hashed

    def locate(self, tables: TableGroup, ids: Ids, given: Any, training: bool) -> tuple[Ids, Any]:
        batch, on_cpu = None, tables.weight.device.type == "cpu"
        with torch.no_grad():
            if on_cpu or not torch.cuda.is_current_stream_capturing():  # a captured step was announced, or says so
                self.follow_store()
                batch = self.in_flight.batch_for(ids, given, training)
            slots = self.cache.places.slots(ids, tables.errors, training)
            if on_cpu and not is_interpreted():
                tables.check_ids()
            return slots, (batch, tables.errors.clone())

    def looked_up(self, tables: TableGroup, token: Any, training: bool) -> None:
        batch, reported = token
        tables.errors.copy_(reported)  # a wrong id has no slot, and the kernels have reported that instead
        if batch is not None:
            batch.release()
            if training:
                self.in_flight.keep(batch)

    def before_step(self, token: Any) -> None:
        batch: IncomingBatch | None = token[0]
        if batch is None:
            return
        if batch.closed:
            raise ParameterError("this look-up has had its backward pass, and its rows may have been replaced")
        batch.closed = True

    def check_announced(self) -> None:
        """Raise if a captured step was given ids that were never announced."""
        absent = self.cache.places.absent
        code = int(absent)
        if code:
            absent.zero_()
            place, identity = (code - 1, None) if self._is_hashed else table_and_id(code)
            said = "an id" if identity is None else f"id {identity}"
            raise DataError(
                f"{said} of table {self.tables.module.names[place]!r} was looked up and is not in the cache: announce "
                f"every batch of a captured step with CachedEmbeddings.prefetch, one ahead, and None after the last"
            )

    def check_signs(self) -> None:
        """Raise if hashed tables were asked for the id -1."""
        places = self.cache.places
        assert isinstance(places, SlotIndex)
        if code := int(places.index.wrong):
            places.index.wrong.zero_()
            places.absent.zero_()  # it has no slot, either
            raise wrong_id(self.tables.module.names[table_and_id(code)[0]])

    def has_moved(self) -> bool:
        """Whether memory that a captured step reads is elsewhere than when this was last asked."""
        places = self.cache.places
        return isinstance(places, SlotIndex) and places.has_moved()

    # Between cache and store.

    def columns(self) -> dict[str, Tensor]:
        """Weights and state by the names that the store's rows have."""
        vectors, found = iter(("state", "second_state")), {"weight": self.tables.weight}
        for state in self.tables.states:
            if state is not None:
                found["scalar" if state.dim() == 1 else next(vectors)] = state
        return found

    def names_of_columns(self) -> dict[str, str]:
        """What the module calls the store's columns."""
        names = [self.tables.key(name) for name in STATES]
        own = dict(zip(names, (self.tables.weight, *self.tables.states), strict=True))
        return {
            column: name for column, tensor in self.columns().items() for name, mine in own.items() if mine is tensor
        }

    def flush(self) -> None:
        """Write the cached rows that were used since the last flush back into the store. Waits for the device."""
        self.follow_store()
        self.rest()
        cache, oldest = self.cache, self.in_flight.oldest()
        taken = (cache.taken & (cache.used > self._flushed)).nonzero().flatten()
        taken = taken[in_order(cache.key_of[taken])]
        for part in taken.split(_FLUSHED_AT_ONCE):
            keys, rows = (array[part].long().cpu().numpy() for array in (cache.key_of, cache.row_of))
            held = {name: column[part].cpu() for name, column in self.columns().items()}
            stamps = None if cache.budget is None else cache.budget.touched[part].cpu().numpy()
            self._rows.write(keys, rows, as_arrays(held), stamps)
        if cache.budget is not None:
            cache.budget.told(cache.used, oldest)
        self._flushed = oldest - 1
        self.store.tables.set_steps([int(self.tables.steps)] * len(self.store.tables.tables))

    def all_rows(self) -> dict[str, Tensor]:
        """Columns of all rows of tables of known sizes, in host memory."""
        assert isinstance(self._rows, NumberedRows)
        self.flush()
        total = self.tables.num_rows
        found = {n: torch.empty((total, *c.shape[1:]), dtype=c.dtype) for n, c in self.columns().items()}
        self._rows.read_all(as_arrays(found))
        return found

    def write_all(self, given: dict[str, Tensor]) -> None:
        """Replace every row of tables of known sizes; the cache begins anew."""
        assert isinstance(self._rows, NumberedRows)
        self._rows.write_all(as_arrays(given))
        self._forget()

    def listed(self) -> dict[str, Tensor]:
        """The rows of hashed tables and whose they are, as `HashedEmbeddings` save them, in host memory."""
        self.flush()
        return listed_rows(self.store, self.tables.names, dict(zip(STATES[1:], self.tables.states, strict=True)))

    def write_listed(self, given: Mapping[str, Tensor]) -> None:
        """Replace the rows of hashed tables; the cache begins anew."""
        self.rest()
        self.store.clear()
        write_listed(self.store, self.tables.names, given)
        if isinstance(self._rows, SignedRows) and self.cache.budget is not None:
            self._rows.evict()
        self._forget()

    def rest(self) -> None:
        """Wait until nothing is under way."""
        self.in_flight.rest()
        self.cache.rest()

    def moved(self) -> None:
        """The tables are on another device now."""
        self.cache.forget_device()
        self.in_flight.forget_device()

    def follow_store(self) -> None:
        """Empty the cache if the store was cleared or loaded since."""
        if self._rows.stale:
            self._forget()

    def _forget(self) -> None:
        self.in_flight.bring_in_again()
        self.cache.rest()
        self._rows.renew()
        self.cache.clear(self._rows.known())

    def _make_room(self, group: IncomingGroup) -> None:
        if isinstance(self.cache.places, SlotIndex):
            self.cache.places.make_room(group.number, [batch.ids for batch in group.batches], self.in_flight.rest)

    def _bring_in(self, group: IncomingGroup, oldest: int) -> None:
        wanted = [batch.ids for batch in group.batches]
        self.cache.admit(wanted, group.number, oldest, self.columns(), self._rows, group.training)
