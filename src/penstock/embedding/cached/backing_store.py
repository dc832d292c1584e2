"""The store behind cached tables: a new one made for them, or one that must fit them."""

from __future__ import annotations

import torch

from penstock.core.errors import ParameterError, suggest
from penstock.embedding.fused.table_module import TableModule
from penstock.embedding.policies import Eviction
from penstock.embedding.slots import EmbeddingConfig, Init, SlotConfig
from penstock.embedding.store import Store


def new_store(
    tables: TableModule, scale: float, seed: int | None, is_hashed: bool, max_rows: int | None = None
) -> Store:
    """An empty store whose rows are those of the tables; without a seed `torch.manual_seed` decides how they start."""
    seed = int(torch.randint(2**62, ())) if seed is None else seed
    init = Init("uniform", -scale, scale) if scale else Init("zeros")
    if is_hashed:  # as `HashedEmbeddings` has it: any 64 bits are an id
        own = [SlotConfig(name, dim, tables.pooling, init=init) for name, dim in tables.dims.items()]
        eviction = None if max_rows is None else Eviction("lru", max_rows=max_rows)
        return Store(own, tables.optimizer, storage=_storage(tables), eviction=eviction, seed=seed)
    slots = [SlotConfig(name, dim, init=init, group=tables.owners[name]) for name, dim in tables.dims.items()]
    config = EmbeddingConfig(slots, max(8, (len(slots) + 1).bit_length()))
    return Store(config, tables.optimizer, storage=_storage(tables), seed=seed)


def check_store(store: Store, tables: TableModule, is_hashed: bool, max_rows: int | None = None) -> None:
    """Raise `ParameterError` unless the store's rows can be those of the tables."""
    layout = None if store.optimizer is None else store.optimizer.layout()
    if layout != tables.optimizer.layout():
        raise ParameterError(
            f"CachedEmbeddings.store was made for {store.optimizer!r}, the tables for {tables.optimizer!r}; the state "
            f"of their rows differs"
        )
    if store.storage != _storage(tables):
        raise ParameterError(f"CachedEmbeddings.store keeps {store.storage} rows, the tables {_storage(tables)} ones")
    admission = store.tables.admission
    if admission.min_count > 1 or admission.below < 2**64 - 1:
        raise ParameterError("CachedEmbeddings.store must take in every id: no admission")
    _check_eviction(store.tables.eviction, is_hashed, max_rows)
    if is_hashed and store.config.prefix_bits:
        raise ParameterError(
            f"CachedEmbeddings.store has prefix_bits={store.config.prefix_bits}, which leave too few bits for hashed "
            f"ids; make it with a list of slots, or prefix_bits=0"
        )
    groups: dict[str, str] = {}
    for name, dim in tables.dims.items():
        if name not in store.config.names:
            raise ParameterError(
                f"CachedEmbeddings.store has no slot {name!r}{suggest(name, store.config.names, 'slots')}"
            )
        slot = store.config[name]
        owner = tables.owners[name]
        if slot.dim != dim or slot.hash_stack is not None or groups.setdefault(slot.group, owner) != owner:
            raise ParameterError(
                f"slot {name!r} of CachedEmbeddings.store must have dim={dim}, rows of its own and no hash "
                f"stack, got {slot}"
            )
        if is_hashed and slot.pooling != tables.pooling:
            raise ParameterError(
                f"slot {name!r} of CachedEmbeddings.store has pooling={slot.pooling!r}, the tables {tables.pooling!r}; "
                f"a saved model would predict by the slot's"
            )
        if slot.group != store.config[owner].group:
            raise ParameterError(
                f"{name!r} and {owner!r} have one vocabulary and share their rows, and in CachedEmbeddings.store they "
                f"do not; give their slots one group, or the tables share=False"
            )


def _check_eviction(eviction: Eviction | None, is_hashed: bool, max_rows: int | None) -> None:
    if eviction is not None and not is_hashed:
        raise ParameterError("CachedEmbeddings.store must keep every id of tables of known sizes: no eviction")
    if eviction is not None and eviction != Eviction("lru", max_rows=eviction.max_rows):
        raise ParameterError(
            f"CachedEmbeddings.store has {eviction}, and behind a cache rows go by policy='lru' and max_rows alone"
        )
    if max_rows is not None and (eviction is None or eviction.max_rows != max_rows):
        raise ParameterError(
            f"CachedEmbeddings.max_rows={max_rows} and the bound of CachedEmbeddings.store, {eviction}, differ; leave "
            f"max_rows out, or make the store with eviction=Eviction('lru', max_rows={max_rows})"
        )


def _storage(tables: TableModule) -> str:
    return str(tables.groups[0].weight.dtype).removeprefix("torch.")
