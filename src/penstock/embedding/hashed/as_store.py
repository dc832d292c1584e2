"""Hashed tables as a store on the host: every row with its state, under the same ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from penstock.embedding.policies import Eviction
from penstock.embedding.row_layout import RowColumns
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
    state = {name: tensor.cpu() for name, tensor in tables.state_dict().items()}
    owners = state["tables"].numpy()
    for number, table in enumerate(store.tables.tables):
        table.write(_columns(state, np.flatnonzero(owners == number)))
    store.tables.clock = int(state["clock"]) - 1
    store.tables.set_steps([int(state["steps"])] * len(store.tables.tables))
    return store


def _columns(state: dict[str, torch.Tensor], rows: np.ndarray) -> RowColumns:
    chosen = torch.from_numpy(rows)
    weights = state["weight"][chosen]
    states = [state[name][chosen] for name in ("first_state", "second_state") if name in state]
    vectors = [held.numpy() for held in states if held.dim() == 2]
    numbers = [held.numpy() for held in states if held.dim() == 1]
    return RowColumns(
        (state["ids"][chosen] + 1).numpy().view(np.uint64),
        state["touched"][chosen].numpy().astype(np.uint32),
        (weights.view(torch.uint16) if weights.dtype == torch.bfloat16 else weights).numpy(),
        np.concatenate(vectors, 1) if vectors else np.empty((len(rows), 0), np.float32),
        numbers[0] if numbers else np.empty(0, np.float32),
        np.empty(0, np.uint32),
    )
