"""Rows in a store on the host, with those in use in slots of the weight: the home of `CachedEmbeddings`' rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from penstock.core.errors import DataError, ParameterError
from penstock.embedding.cached.in_flight import IncomingBatch, IncomingGroup, InFlight
from penstock.embedding.cached.row_cache import RowCache
from penstock.embedding.cached.transport import as_arrays
from penstock.embedding.fused.ids import Ids
from penstock.embedding.fused.row_home import RowHome
from penstock.embedding.fused.table_group import STATES, TableGroup
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
    """

    joint = True
    tables: TableGroup
    store: Store
    cache: RowCache

    def __init__(self, cache_rows: int, described: str) -> None:
        self.cache_rows, self._described = cache_rows, described

    def open(self, tables: TableGroup, store: Store) -> None:
        """Begin with nothing in the cache."""
        self.tables, self.store = tables, store
        self._rows = NumberedRows(store, tables.sizes)
        self._flushed = 0  # the last batch whose rows are in the store as they are here
        self.cache = RowCache(tables.num_rows, self.cache_rows, tables.weight.device, self._described)
        self.cache.clear(self._rows.known())
        self.in_flight = InFlight(self._bring_in, lambda: not is_interpreted())

    def rows_on_device(self, total: int) -> int:
        return self.cache_rows

    def locate(self, tables: TableGroup, ids: Ids, given: Any, training: bool) -> tuple[Ids, Any]:
        batch, on_cpu = None, tables.weight.device.type == "cpu"
        with torch.no_grad():
            if on_cpu or not torch.cuda.is_current_stream_capturing():  # a captured step was announced, or says so
                self.follow_store()
                batch = self.in_flight.batch_for(ids, given)
            slots = self.cache.slots(self._index, tables.table_places(ids.bags), ids, tables.errors)
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
        code = int(self.cache.absent)
        if code:
            self.cache.absent.zero_()
            place, identity = table_and_id(code)
            table = self.tables.module.names[place]
            raise DataError(
                f"id {identity} of table {table!r} was looked up and is not in the cache: announce every batch of a "
                f"captured step with CachedEmbeddings.prefetch, one ahead, and None after the last"
            )

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
        taken = ((cache.key_of >= 0) & (cache.used > self._flushed)).nonzero().flatten()
        taken = taken[torch.argsort(cache.key_of[taken])]
        for part in taken.split(_FLUSHED_AT_ONCE):
            keys, rows = (array[part].long().cpu().numpy() for array in (cache.key_of, cache.row_of))
            held = {name: column[part].cpu() for name, column in self.columns().items()}
            self._rows.write(keys, rows, as_arrays(held))
        self._flushed = oldest - 1
        self.store.tables.set_steps([int(self.tables.steps)] * len(self.store.tables.tables))

    def all_rows(self) -> dict[str, Tensor]:
        """Columns of all rows, in host memory."""
        self.flush()
        total = self.tables.num_rows
        found = {n: torch.empty((total, *c.shape[1:]), dtype=c.dtype) for n, c in self.columns().items()}
        self._rows.read_all(as_arrays(found))
        return found

    def write_all(self, given: dict[str, Tensor]) -> None:
        """Replace every row; the cache begins anew."""
        self._rows.write_all(as_arrays(given))
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

    def _bring_in(self, group: IncomingGroup, oldest: int) -> None:
        wanted = [batch.ids for batch in group.batches]
        keys = [self.cache.keys(self._index, self.tables.table_places(i.bags), i) for i in wanted]
        together = torch.cat(keys) if len(keys) > 1 else keys[0]
        self.cache.admit(self._index, together, group.number, oldest, self.columns(), self._rows, len(keys))

    @property
    def _index(self) -> Any:
        if self.tables.weight.device.type == "cuda" or is_interpreted():
            from penstock.kernels import gpu_cache

            return gpu_cache
        from penstock.embedding.cached import cpu_index

        return cpu_index
