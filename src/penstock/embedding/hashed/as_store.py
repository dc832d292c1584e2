"""Hashed tables as a store on the host: every row with its state, under the same ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.embedding.hashed.listed_rows import write_listed
from penstock.embedding.policies import Eviction
from penstock.embedding.slots import Init, SlotConfig
from penstock.embedding.store import Store

if TYPE_CHECKING:
    from penstock.embedding.hashed.embeddings import HashedEmbeddings


def store_of(tables: HashedEmbeddings, seed: int) -> Store:
    """A new store that goes on where the tables are."""
    scale, group, most = tables.home.scale, tables.groups[0], tables.home.max_rows
    init = Init("uniform", -scale, scale) if scale else Init("zeros")
    slots = [SlotConfig(name, group.dim, tables.pooling, init=init) for name in tables.names]
    storage = str(group.weight.dtype).removeprefix("torch.")
    eviction = None if most is None else Eviction("lru", max_rows=most)
    store = Store(slots, tables.optimizer, storage=storage, eviction=eviction, seed=seed)
    write_listed(store, tables.names, tables.state_dict())
    return store
