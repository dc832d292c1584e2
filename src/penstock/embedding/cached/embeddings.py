"""Tables larger than the GPU's memory: all rows in a store on the host, those in use on the device."""

from __future__ import annotations

from typing import Any

import torch

from penstock.core.errors import PenstockError
from penstock.core.params import NONE, Instance, Int, Real, check_all
from penstock.embedding.cached.backing_store import check_store, new_store
from penstock.embedding.cached.cached_rows import CachedRows
from penstock.embedding.cached.in_flight import IncomingBatch
from penstock.embedding.fused.ids import read_ids
from penstock.embedding.fused.table_module import TableModule, keep_from_compiler
from penstock.embedding.parameter_tables import EmbeddingTables
from penstock.embedding.store import Store

_IDS_TOGETHER = 14_000_000  # ids for which the time to bring rows in goes with their number
_MOST_TOGETHER = 32


class CachedEmbeddings(TableModule):
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

    home: CachedRows

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
        keep_from_compiler()
        super().__init__(tables, dim, CachedRows(cache_rows), scale=0.0, **settings)
        self.prefetch_batches = prefetch_batches
        if store is None:
            store = new_store(self, scale)
        else:
            check_store(store, self)
            self.steps.fill_(max(store.tables.steps))
        self.home.open(self, store)
        self.cache = self.home.cache  # its index moves with the weight

    @property
    def store(self) -> Store:
        """The store behind the cache, every row as it is now. Asked for again after more training, it is current again.

        Rows changed in the store directly are not seen while they are cached; `load` and `clear` are.
        """
        self.flush()
        return self.home.store

    def prefetch(self, *batches: Any) -> None:
        """Begin to bring in the rows of the batches (ids each) that follow those announced last, and return.

        To be called before the current batch is trained on: its own rows, announced by the call before, are waited for
        here, on the stream that is current. Given nothing, or `None`, it only waits. Several batches are brought in
        together, which takes less than one by one; the cache must hold the rows of those and of the ones announced
        before. What is wrong with the ids is reported by their look-up.

        Args:
            batches: the ids of each.
        """
        given = [ids for ids in batches if ids is not None]
        with torch.no_grad():
            self.home.follow_store()
            self.home.in_flight.settle_last()
            found = [IncomingBatch(read_ids(ids, self.names, self.weight.device), ids) for ids in given]
            if found:
                self.home.in_flight.announce(found)

    def batches_to_prefetch(self, ids: Any) -> int:
        """How many batches like this one should be announced together.

        Args:
            ids: of a batch.

        Returns:
            A number from 1.
        """
        if self.prefetch_batches is not None:
            return self.prefetch_batches
        count = max(read_ids(ids, self.names, self.weight.device).num_occurrences, 1)
        return max(1, min(_IDS_TOGETHER // count, len(self.weight) // (2 * count), _MOST_TOGETHER))

    def check_ids(self) -> None:
        """See `FusedEmbeddings.check_ids`. Also raises if a captured step was given ids that were never announced."""
        super().check_ids()
        self.home.check_announced()

    def flush(self) -> None:
        """Write the cached rows that were used since the last flush back into the store. Waits for the device."""
        self.home.flush()

    def stats(self) -> dict[str, Any]:
        """Plain figures: rows, batches and ids seen, rows brought in and written back, seconds by stage of bringing in.

        Those of the cache count from the last time that it was emptied.
        """
        self.home.rest()
        cache, resident = self.cache, int((self.cache.key_of >= 0).sum())
        seconds = {stage: round(spent, 6) for stage, spent in cache.watch.seconds.items()}
        written_back = cache.counts["brought_in"] - resident
        own = {**cache.counts, "resident": resident, "written_back": written_back, "seconds": seconds}
        return {**super().stats(), **own}

    def close(self) -> None:
        """Write everything back and release the store's threads."""
        self.flush()
        self.home.store.close()

    def train(self, mode: bool = True) -> CachedEmbeddings:
        """Leaving training flushes, so that the store can be evaluated, too.

        Args:
            mode: whether training begins or ends.

        Returns:
            These embeddings.
        """
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
            plain.weight.copy_(self.home.all_rows()["weight"])
        return plain

    def _apply(self, *arguments: Any, **named: Any) -> Any:
        self.home.rest()  # what is being filled must not move
        before = self.weight.device
        super()._apply(*arguments, **named)  # type: ignore[no-untyped-call]
        if self.weight.device != before:
            self.home.moved()
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """All rows, as `FusedEmbeddings` saves them: either kind loads the other's."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        names = self.home.names_of_columns()
        for column, rows in self.home.all_rows().items():
            destination[prefix + names[column]] = rows

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        self.home.rest()
        rest, given = dict(state_dict), {}
        for column, name in self.home.names_of_columns().items():
            mine, found = getattr(self, name), rest.get(prefix + name)
            if found is not None and found.shape == (self.num_rows, *mine.shape[1:]):
                given[column] = found.detach().to("cpu", mine.dtype).contiguous()
                rest[prefix + name] = mine
        super()._load_from_state_dict(rest, prefix, *arguments)
        if len(given) == len(self.home.columns()):
            self.home.write_all(given)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PenstockError(
            "CachedEmbeddings cannot be copied or pickled, since its rows are in a store; save tables.state_dict() or "
            "tables.store.save(path), and load that into new ones"
        )

    def extra_repr(self) -> str:
        name = type(self.optimizer).__name__
        sizes = f"{len(self.names)} tables, {self.num_rows} rows of which {len(self.weight)} cached"
        return f"{sizes}, dim={self.dim}, {name}, {self.weight.dtype}"
