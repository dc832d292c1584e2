"""Tables larger than the GPU's memory: all rows in a store on the host, those in use on the device."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from penstock.core.errors import DataError, ParameterError, PenstockError
from penstock.core.params import NONE, Instance, Int, Real, check_all
from penstock.embedding.cached.backing_store import check_store, new_store
from penstock.embedding.cached.in_flight import Batch, Group, InFlight
from penstock.embedding.cached.row_cache import RowCache
from penstock.embedding.cached.transport import as_arrays
from penstock.embedding.fused.embeddings import FusedEmbeddings
from penstock.embedding.fused.ids import Ids, read_ids
from penstock.embedding.numbered import NumberedRows
from penstock.embedding.parameter_tables import EmbeddingTables
from penstock.embedding.store import Store

_FLUSHED_AT_ONCE = 1 << 20
_IDS_TOGETHER = 14_000_000  # ids for which the time to bring rows in goes with their number
_MOST_TOGETHER = 32


class CachedEmbeddings(FusedEmbeddings):
    """`FusedEmbeddings` whose rows live in a `penstock.embedding.Store`, with `cache_rows` of them on the device.

    Rows come into the cache with their optimizer state when a batch names them, replace ones that have not been used
    for long, and what is replaced goes back into the store: the numbers are those of tables without a cache, whatever
    is evicted. `prefetch` brings the rows of coming batches in while the current one trains; a batch that was not
    announced is brought in when it is looked up, which waits. The cache must hold the distinct rows of a batch, and of
    two to prefetch.

    Args:
        tables, dim, settings: as `FusedEmbeddings` takes them.
        cache_rows: rows on the device. The index takes 4 bytes more for every row of every table.
        scale: new rows start uniform in ±scale.
        store: a store to put behind the cache instead of a new one, with a slot for every table: one that was trained
            or loaded before, say.
        prefetch_batches: how many batches `fit` and `prefetched` announce together; by default as many as it takes
            that bringing rows in is worth its overhead, if the cache has room for them.

    >>> tables = CachedEmbeddings({"user": 1000}, dim=4, cache_rows=3, optimizer="sgd", lr=1.0)
    >>> for user in (1, 2, 3, 4, 5, 1):
    ...     tables(torch.tensor([[user]])).sum().backward()
    >>> len(tables.weight), tuple(tables.state_dict()["weight"].shape)
    (3, (1000, 4))
    >>> tables.store.stats()["rows"]  # only ids that were seen take memory on the host
    5
    """

    _absent: Tensor

    def __init__(
        self,
        tables: Any,
        dim: int = 16,
        *,
        cache_rows: int,
        scale: float = 0.01,
        store: Store | None = None,
        prefetch_batches: int | None = None,
        **settings: Any,
    ) -> None:
        given = {"cache_rows": cache_rows, "scale": scale, "store": store, "prefetch_batches": prefetch_batches}
        constraints = {
            "cache_rows": Int(min=1),
            "scale": Real(min=0),
            "store": NONE | Instance(Store),
            "prefetch_batches": NONE | Int(min=1),
        }
        check_all(given, constraints, "CachedEmbeddings")
        self.__dict__["cache_rows"] = cache_rows  # asked for by the constructor that follows
        super().__init__(tables, dim, scale=0.0, **settings)
        self.num_rows, self.prefetch_batches = sum(self.sizes.values()), prefetch_batches
        if store is None:
            store = new_store(self, scale)
        else:
            check_store(store, self)
            self.steps.fill_(max(store.tables.steps))
        self._store, self._rows = store, NumberedRows(store, self.sizes)
        self._flushed = 0  # the last batch whose rows are in the store as they are here
        self.cache = RowCache(self.num_rows, cache_rows, self.weight.device)
        self.cache.clear(self._rows.known())
        absent = torch.zeros(1, dtype=torch.int64, device=self.weight.device)
        self.register_buffer("_absent", absent, persistent=False)
        self._in_flight = InFlight(self._bring_in, lambda: not _interpreted())
        self._asked: Any = None

    def _rows_on_device(self) -> int:
        return int(self.__dict__["cache_rows"])

    @property
    def store(self) -> Store:
        """The store behind the cache, every row as it is now. Asked for again after more training, it is current again.

        Rows changed in the store directly are not seen while they are cached; `load` and `clear` are.
        """
        self.flush()
        return self._store

    def prefetch(self, *batches: Any) -> None:
        """Begin to bring in the rows of the batches (ids each) that follow those announced last, and return.

        To be called before the current batch is trained on: its own rows, announced by the call before, are waited for
        here, on the stream that is current. Given nothing, or `None`, it only waits. Several batches are brought in
        together, which takes less than one by one; the cache must hold the rows of those and of the ones announced
        before. What is wrong with the ids is reported by their look-up.
        """
        given = [ids for ids in batches if ids is not None]
        with torch.no_grad():
            self._follow_store()
            self._in_flight.settle_last()
            found = [Batch(read_ids(ids, self.names, self.weight.device), ids) for ids in given]
            if found:
                self._in_flight.announce(found)

    def batches_to_prefetch(self, ids: Any) -> int:
        """How many batches like this one should be announced together."""
        if self.prefetch_batches is not None:
            return self.prefetch_batches
        count = max(read_ids(ids, self.names, self.weight.device).num_occurrences, 1)
        return max(1, min(_IDS_TOGETHER // count, len(self.weight) // (2 * count), _MOST_TOGETHER))

    @torch.compiler.disable
    def forward(self, ids: Any, dense: Tensor | None = None, sample_weights: Mapping[str, Any] | None = None) -> Tensor:
        """See `FusedEmbeddings.forward`."""
        self._asked = ids
        return super().forward(ids, dense, sample_weights)

    def look_up(self, ids: Ids, dense: Tensor | None, training: bool) -> tuple[Tensor, Any]:
        batch, on_cpu = None, self.weight.device.type == "cpu"
        asked, self._asked = self._asked, None
        with torch.no_grad():
            if on_cpu or not torch.cuda.is_current_stream_capturing():  # a captured step was announced, or says so
                self._follow_store()
                batch = self._in_flight.take(ids, asked)
            slots = self.cache.slots(self._index, self._table_places(ids.bags), ids, self.errors, self._absent)
            if on_cpu and not _interpreted():
                self.check_ids()
            reported = self.errors.clone()
            found, saved = super().look_up(slots, dense, training)
            self.errors.copy_(reported)  # a wrong id has no slot, and the kernels have reported that instead
        if batch is not None:
            batch.release()
            if training:
                self._in_flight.keep(batch)
        return found, (saved, batch)

    def step(self, ids: Ids, saved: Any, gradient: Tensor) -> None:
        inner, batch = saved
        if batch is not None:
            if batch.closed:
                raise ParameterError("this look-up has had its backward pass, and its rows may have been replaced")
            batch.closed = True
        super().step(ids, inner, gradient)

    def check_ids(self) -> None:
        """See `FusedEmbeddings.check_ids`. Also raises if a captured step was given ids that were never announced."""
        super().check_ids()
        code = int(self._absent)
        if code:
            self._absent.zero_()
            table, identity = self.names[(code >> 40) - 1], code & ((1 << 40) - 1)
            raise DataError(
                f"id {identity} of table {table!r} was looked up and is not in the cache: announce every batch of a "
                f"captured step with CachedEmbeddings.prefetch, one ahead, and None after the last"
            )

    def flush(self) -> None:
        """Write the cached rows that were used since the last flush back into the store. Waits for the device."""
        self._follow_store()
        self._rest()
        cache, oldest = self.cache, self._in_flight.oldest()
        taken = ((cache.key_of >= 0) & (cache.used > self._flushed)).nonzero().flatten()
        taken = taken[torch.argsort(cache.key_of[taken])]
        for part in taken.split(_FLUSHED_AT_ONCE):
            keys, rows = (array[part].long().cpu().numpy() for array in (cache.key_of, cache.row_of))
            held = {name: column[part].cpu() for name, column in self._columns().items()}
            self._rows.write(keys, rows, as_arrays(held))
        self._flushed = oldest - 1
        self._store.tables.set_steps([int(self.steps)] * len(self._store.tables.tables))

    def stats(self) -> dict[str, Any]:
        """Plain figures: batches and ids seen, rows brought in and written back, seconds by stage of bringing in."""
        self._rest()
        cache, resident = self.cache, int((self.cache.key_of >= 0).sum())
        seconds = {stage: round(spent, 6) for stage, spent in cache.watch.seconds.items()}
        written_back = cache.counts["brought_in"] - resident
        return {**cache.counts, "resident": resident, "written_back": written_back, "seconds": seconds}

    def train(self, mode: bool = True) -> CachedEmbeddings:
        """Leaving training flushes, so that the store can be evaluated, too."""
        if self.training and not mode:
            self.flush()
        super().train(mode)
        return self

    def tables(self) -> EmbeddingTables:
        """Plain tables with all rows, on the host; needs a schema."""
        if self.schema is None:
            return super().tables()  # which says so
        plain = EmbeddingTables(self.schema, self.dim, pooling=self.pooling)
        with torch.no_grad():
            plain.weight.copy_(self._all_rows()["weight"])
        return plain

    @property
    def _index(self) -> Any:
        if self.weight.device.type == "cuda" or _interpreted():
            from penstock.kernels import gpu_cache

            return gpu_cache
        from penstock.embedding.cached import cpu_index

        return cpu_index

    def _columns(self) -> dict[str, Tensor]:
        """Weights and state by the names that the store's rows have."""
        vectors, found = iter(("state", "second_state")), {"weight": self.weight}
        for state in (getattr(self, name) for name in ("first_state", "second_state")):
            if state is not None:
                found["scalar" if state.dim() == 1 else next(vectors)] = state
        return found

    def _rest(self) -> None:
        """Wait until nothing is under way."""
        self._in_flight.rest()
        self.cache.rest()

    def _follow_store(self) -> None:
        """Empty the cache if the store was cleared or loaded since."""
        if self._rows.stale:
            self._forget()

    def _forget(self) -> None:
        self._in_flight.bring_in_again()
        self.cache.rest()
        self._rows.renew()
        self.cache.clear(self._rows.known())

    def _bring_in(self, group: Group, oldest: int) -> None:
        wanted = [batch.ids for batch in group.batches]
        keys = [self.cache.keys(self._index, self._table_places(i.bags), i) for i in wanted]
        together = torch.cat(keys) if len(keys) > 1 else keys[0]
        columns = self._columns()
        self.cache.admit(self._index, together, group.number, oldest, columns, self._rows, len(keys))

    def _places(self, bags: tuple[int, ...]) -> Tensor:
        return self._joint_places(bags)

    def _apply(self, *arguments: Any, **named: Any) -> Any:
        self._rest()  # what is being filled must not move
        before = self.weight.device
        super()._apply(*arguments, **named)
        if self.weight.device != before:
            self.cache.forget_device()
            self._in_flight.forget_device()
        return self

    def _all_rows(self) -> dict[str, Tensor]:
        """Columns of all rows, in host memory."""
        self.flush()
        found = {n: torch.empty((self.num_rows, *c.shape[1:]), dtype=c.dtype) for n, c in self._columns().items()}
        self._rows.read_all(as_arrays(found))
        return found

    def _names_of_columns(self) -> dict[str, str]:
        return {
            column: name
            for column, tensor in self._columns().items()
            for name in ("weight", "first_state", "second_state")
            if getattr(self, name) is tensor
        }

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        """All rows, as `FusedEmbeddings` saves them: either kind loads the other's."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        names = self._names_of_columns()
        for column, rows in self._all_rows().items():
            destination[prefix + names[column]] = rows

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *arguments: Any) -> None:
        self._rest()
        rest, given = dict(state_dict), {}
        for column, name in self._names_of_columns().items():
            mine, found = getattr(self, name), rest.get(prefix + name)
            if found is not None and found.shape == (self.num_rows, *mine.shape[1:]):
                given[column] = found.detach().to("cpu", mine.dtype).contiguous()
                rest[prefix + name] = mine
        super()._load_from_state_dict(rest, prefix, *arguments)
        if len(given) == len(self._columns()):
            self._rows.write_all(as_arrays(given))
            self._forget()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PenstockError(
            "CachedEmbeddings cannot be copied or pickled, since its rows are in a store; save tables.state_dict() or "
            "tables.store.save(path), and load that into new ones"
        )

    def extra_repr(self) -> str:
        name = type(self.optimizer).__name__
        sizes = f"{len(self.names)} tables, {self.num_rows} rows of which {len(self.weight)} cached"
        return f"{sizes}, dim={self.dim}, {name}, {self.weight.dtype}"


def _interpreted() -> bool:
    """Whether Triton kernels run on the CPU, for tests; they do so one at a time."""
    return os.environ.get("TRITON_INTERPRET") == "1"
