"""Tables larger than the GPU's memory: all rows in a store on the host, those in use on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from penstock.core.errors import ParameterError, PenstockError
from penstock.core.params import BOOL, NONE, Instance, Int, Real, check_all
from penstock.core.schema import Schema
from penstock.embedding.cached.backing_store import check_store, new_store
from penstock.embedding.cached.cache_shares import batches_together, shared_rows
from penstock.embedding.cached.cached_rows import CachedRows
from penstock.embedding.cached.in_flight import IncomingBatch
from penstock.embedding.cached.row_cache import COUNTS, STAGES
from penstock.embedding.dims import DIM, Dims
from penstock.embedding.evicting import rows_left
from penstock.embedding.fused import table_exports
from penstock.embedding.fused.settings import table_sizes
from penstock.embedding.fused.table_group import STATES, TableGroup
from penstock.embedding.fused.table_module import TableModule
from penstock.embedding.hashed.listed_rows import LISTS, hashed_columns, is_listed
from penstock.embedding.parameter_tables import EmbeddingTables
from penstock.embedding.store import Store


class CachedEmbeddings(TableModule):
    """`FusedEmbeddings` whose rows live in a `penstock.embedding.Store`, with `cache_rows` of them on the device.

    Rows come into the cache with their optimizer state when a batch names them, replace ones that have not been used
    for long, and what is replaced goes back into the store: the numbers are those of tables without a cache, whatever
    is evicted. `prefetch` brings the rows of coming batches in while the current one trains; a batch that was not
    announced is brought in when it is looked up, which waits. The cache must hold the distinct rows of a batch, and of
    two to prefetch.

    Args:
        tables, dim, settings: as `FusedEmbeddings` takes them; with `hashed`, as `HashedEmbeddings` does.
        cache_rows: rows on the device. The index takes 4 bytes more for every row of every table, or of hashed tables
            32 to 64 for every cached row. Where tables have several dims, those of each dim have a cache of their own
            (`shared_rows` says how large).
        hashed: whether ids need no vocabulary: any int64 but -1 has a row in the store once it is trained on, and one
            that has none is zeros.
        max_rows: rows that stay, of hashed tables; none go by default. Those least recently used go, as with a store's
            `Eviction("lru", max_rows=…)`: the numbers are that store's. Rows of batches in flight stay, so a batch is
            brought in ahead where the bound holds its rows and theirs, and else when it is looked up.
        scale: new rows start uniform in ±scale.
        store: a store to put behind the cache instead of a new one, with a slot for every table: one that was trained
            or loaded before, say.
        seed: of new rows, as a store's; `torch.manual_seed` decides by default.
        prefetch_batches: how many batches `fit` and `prefetched` announce together; by default as many as it takes
            that bringing rows in is worth its overhead, if the cache has room for them.

    >>> tables = CachedEmbeddings({"user": 1000}, dim=4, cache_rows=3, optimizer="sgd", lr=1.0)
    >>> for user in (1, 2, 3, 4, 5, 1):
    ...     tables(torch.tensor([[user]])).sum().backward()
    >>> len(tables.weight), tuple(tables.state_dict()["weight"].shape)
    (3, (1000, 4))
    >>> tables.store.stats()["rows"]  # only ids that were seen take memory on the host
    5
    >>> tables = CachedEmbeddings(["user", "item"], dim=4, cache_rows=8, hashed=True)
    >>> tables(torch.tensor([[2**60, -7]])).sum().backward()
    >>> tables.num_rows
    2
    """

    def __init__(
        self,
        tables: Schema | Mapping[str, int] | Sequence[int] | Sequence[str],
        dim: Dims = 16,
        *,
        cache_rows: int,
        hashed: bool = False,
        max_rows: int | None = None,
        scale: float = 0.01,
        store: Store | None = None,
        seed: int | None = None,
        prefetch_batches: int | None = None,
        **settings: Any,
    ) -> None:
        given = {
            "cache_rows": cache_rows, "scale": scale, "store": store, "prefetch_batches": prefetch_batches,
            "hashed": hashed, "max_rows": max_rows, "seed": seed,
        }  # fmt: skip
        constraints = {
            "cache_rows": Int(min=1),
            "scale": Real(min=0),
            "store": NONE | Instance(Store),
            "prefetch_batches": NONE | Int(min=1),
            "hashed": BOOL,
            "max_rows": NONE | Int(min=1, max=2**32 - 2),
            "seed": NONE | Int(0, 2**63),
        }
        check_all(given, constraints, "CachedEmbeddings")
        columns: Any = tables
        if hashed:
            columns, sizes, settings = _hashed(tables, dim, settings)
        elif max_rows is not None:
            raise ParameterError(
                f"CachedEmbeddings.max_rows={max_rows} is for hashed=True; tables of known sizes keep every row"
            )
        else:
            sizes = table_sizes(columns)
        self.is_hashed, shares = hashed, shared_rows(cache_rows, sizes)

        def home(own: Mapping[str, int]) -> CachedRows:
            share, described = sum(shares[name] for name in own), f"CachedEmbeddings.cache_rows={cache_rows}"
            if len(own) < len(sizes):
                described += f", of which {share} are for the tables {', '.join(own)},"
            return CachedRows(share if len(own) < len(sizes) else cache_rows, described, hashed)

        super().__init__(columns, dim, home, scale=0.0, sizes=sizes, **settings)
        self.prefetch_batches = prefetch_batches
        if store is None:
            store = new_store(self, scale, seed, hashed, max_rows)
        else:
            check_store(store, self, hashed, max_rows)
            self.steps.fill_(max(store.tables.steps))
        for group, own in zip(self.groups, self.homes, strict=True):
            own.open(group, store)
        self.caches = nn.ModuleList([own.cache for own in self.homes])  # an index moves with its weight

    @property
    def homes(self) -> list[CachedRows]:
        """Where the rows are, of the tables of each dim."""
        return [group.home for group in self.groups if isinstance(group.home, CachedRows)]

    @property
    def store(self) -> Store:
        """The store behind the cache, every row as it is now. Asked for again after more training, it is current again.

        Rows changed in the store directly are not seen while they are cached; `load` and `clear` are.
        """
        self.flush()
        return self.homes[0].store

    @property
    def num_rows(self) -> int:
        """Rows of all tables; of hashed ones, those that there are so far."""
        return self.homes[0].store.tables.rows if self.is_hashed else super().num_rows

    @property
    def max_rows(self) -> int | None:
        """The bound on the rows of hashed tables; None where all stay."""
        budget = self.homes[0].cache.budget
        return None if budget is None else budget.max_rows

    @property
    def is_served_by_store(self) -> bool:
        """Whether a saved model holds the store behind them: that of hashed tables. Others are saved as they are."""
        return self.is_hashed

    def store_for_serving(self) -> AbstractContextManager[Store]:
        """The store behind the cache, every row as it is now.

        Returns:
            The store, which stays open.
        """
        return nullcontext(self.store)

    def make_room(self) -> bool:
        """Whether memory has moved that a captured step reads, so that it must be captured anew (`fit` asks).

        Returns:
            Never for tables of known sizes.
        """
        return max(home.has_moved() for home in self.homes)  # all are asked

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
            for home in self.homes:
                home.follow_store()
                home.in_flight.settle_last()
            read = [self.read(ids) for ids in given]
            for home, parts in zip(self.homes, zip(*read, strict=True), strict=False):
                pairs = zip(parts, given, strict=True)
                home.in_flight.announce([IncomingBatch(*pair, training=self.training) for pair in pairs])

    def batches_to_prefetch(self, ids: Any) -> int:
        """How many batches like this one should be announced together.

        Args:
            ids: of a batch.

        Returns:
            A number from 1.
        """
        if self.prefetch_batches is not None:
            return self.prefetch_batches
        bound = 2**62 if self.max_rows is None else rows_left(self.max_rows)
        rooms = [min(home.cache_rows, bound) for home in self.homes]
        return batches_together(self.read(ids), [self._most_ids(group) for group in self.groups], rooms)

    def _most_ids(self, group: TableGroup) -> list[int]:
        """How many ids tables can have."""
        return [2**62] * len(group.names) if self.is_hashed else list(group.sizes.values())

    def check_wrong_ids(self) -> None:
        """See `FusedEmbeddings.check_ids`."""
        if not self.is_hashed:
            super().check_wrong_ids()
            return
        self.errors.zero_()  # kernels report what has no slot
        for home in self.homes:
            home.check_signs()

    def check_ids(self) -> None:
        """See `FusedEmbeddings.check_ids`. Also raises if a captured step was given ids that were never announced."""
        super().check_ids()
        for home in self.homes:
            home.check_announced()

    def flush(self) -> None:
        """Write the cached rows that were used since the last flush back into the store. Waits for the device."""
        for home in self.homes:
            home.flush()

    def stats(self) -> dict[str, Any]:
        """Plain figures: rows, batches and ids seen, rows brought in and written back, seconds by stage of bringing in.

        Those of the cache count from the last time that it was emptied.
        """
        for home in self.homes:
            home.rest()
        caches = [home.cache for home in self.homes]
        resident = sum(int(cache.taken.sum()) for cache in caches)
        seconds = {stage: round(sum(cache.watch.seconds[stage] for cache in caches), 6) for stage in STAGES}
        counts = {name: sum(cache.counts[name] for cache in caches) for name in COUNTS}
        counts["batches"] = caches[0].counts["batches"]  # each cache sees all of them
        written_back = counts["brought_in"] - resident - counts["dropped"]
        own: dict[str, Any] = {**counts, "resident": resident, "written_back": written_back, "seconds": seconds}
        if self.is_hashed:
            store = self.homes[0].store
            rows = store.stats()["rows_by_group"]
            own["evicted"] = store.tables.evicted
            own["rows_by_table"] = {name: rows[store.config[name].group] for name in self.names}
        return {**super().stats(), **own}

    def close(self) -> None:
        """Write everything back and release the store's threads."""
        self.flush()
        self.homes[0].store.close()

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
        """Plain tables with all rows, on the host; needs a schema, and tables of known sizes.

        Returns:
            The tables.

        Raises:
            ParameterError: the tables are hashed, or have several dims.
            SchemaError: there is no schema.
        """
        if self.is_hashed:
            raise ParameterError(
                "plain tables have known sizes, and hashed ones have none; use .store, which has all rows"
            )
        return table_exports.plain(self, self.homes[0].all_rows()["weight"])

    def _apply(self, *arguments: Any, **named: Any) -> Any:
        for home in self.homes:
            home.rest()  # what is being filled must not move
        before = self.device
        super()._apply(*arguments, **named)  # type: ignore[no-untyped-call]
        if self.device != before:
            for home in self.homes:
                home.moved()
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """All rows, as `FusedEmbeddings` saves them: either kind loads the other's."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.is_hashed:
            for name, tensor in self.homes[0].listed().items():
                destination[prefix + name] = tensor
            return
        for home in self.homes:
            names = home.names_of_columns()
            for column, rows in home.all_rows().items():
                destination[prefix + names[column]] = rows

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        if self.is_hashed:
            self._load_listed(dict(state_dict), prefix, *arguments)
            return
        rest, given = dict(state_dict), list[dict[str, Tensor]]()
        for home in self.homes:
            home.rest()
            columns = dict[str, Tensor]()
            for column, name in home.names_of_columns().items():
                mine, found = getattr(self, name), rest.get(prefix + name)
                if found is not None and found.shape == (home.tables.num_rows, *mine.shape[1:]):
                    columns[column] = found.detach().to("cpu", mine.dtype).contiguous()
                    rest[prefix + name] = mine
            given.append(columns)
        super()._load_from_state_dict(rest, prefix, *arguments)
        if all(len(columns) == len(home.columns()) for home, columns in zip(self.homes, given, strict=True)):
            for home, columns in zip(self.homes, given, strict=True):
                home.write_all(columns)

    def _load_listed(
        self, rest: dict[str, Any], prefix: str, metadata: Any, strict: bool, missing: Any, unexpected: Any,
        errors: list[str],
    ) -> None:  # fmt: skip
        """The state of hashed tables."""
        given = {name: rest.pop(prefix + name) for name in LISTS if prefix + name in rest}
        held = {name: getattr(self, name) for name in STATES if getattr(self, name) is not None}
        rows = {name: rest.pop(prefix + name) for name in held if prefix + name in rest}
        if is_listed(given, rows, held, len(self.names)):
            kept = {name: tensor.detach().to(held[name].dtype) for name, tensor in rows.items()}
            self.homes[0].write_listed({**kept, **given})
        else:
            errors.append(f"this is not the state of hashed tables {self.names} of dim {self.dim} and their optimizer")
        rest.update({prefix + name: tensor for name, tensor in held.items()})
        super()._load_from_state_dict(rest, prefix, metadata, strict, missing, unexpected, errors)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PenstockError(
            "CachedEmbeddings cannot be copied or pickled, since its rows are in a store; save tables.state_dict() or "
            "tables.store.save(path), and load that into new ones"
        )

    def extra_repr(self) -> str:
        cached = sum(len(group.weight) for group in self.groups)
        return f"{len(self.names)} tables, {self.num_rows} rows of which {cached} cached, {self._described()}"


def _hashed(tables: Any, dim: Dims, settings: dict[str, Any]) -> tuple[Any, dict[str, int], dict[str, Any]]:
    """The columns of hashed tables, their sizes, and settings that suit them."""
    check_all({"dim": dim}, {"dim": DIM}, "hashed CachedEmbeddings")
    if settings.get("share"):
        raise ParameterError("hashed CachedEmbeddings share no rows; leave share out, or give ids of known sizes")
    return *hashed_columns(tables, "hashed CachedEmbeddings"), {**settings, "share": False}
