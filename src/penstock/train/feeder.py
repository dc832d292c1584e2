"""From a loader's batch to one the model reads: columns sorted, embeddings looked up, everything on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from penstock.core.errors import ParameterError, suggest
from penstock.core.schema import Role, Schema
from penstock.embedding.slots import Init, SlotConfig
from penstock.embedding.store import EmbeddingStore
from penstock.train.batch import TrainBatch, to_device, training_batch
from penstock.train.pipeline import Pipeline
from penstock.train.timing import Timings
from penstock.train.transfer import Transfer

Source = EmbeddingStore | nn.Module | None


def slots_of(schema: Schema, dim: int, pooling: str = "mean", init: Init | None = None) -> list[SlotConfig]:
    """One slot for each categorical column of a schema, in its order; list columns are pooled.

    >>> from penstock import ColumnSchema
    >>> schema = Schema([ColumnSchema("user", "int64", role="categorical"), ColumnSchema("price", "float32")])
    >>> [(slot.name, slot.dim, slot.pooling) for slot in slots_of(schema, 16)]
    [('user', 16, 'sum')]
    """
    columns = schema.select(roles=Role.CATEGORICAL)
    start = Init() if init is None else init
    return [SlotConfig(c.name, dim, pooling=pooling if c.is_list else "sum", init=start) for c in columns]


class Feeder:
    """Makes the pipelines of a training context."""

    def __init__(
        self, model: nn.Module, store: Source, transfer: Transfer, staleness: int, timings: Timings | None = None
    ) -> None:
        self.timings = timings or Timings()
        self.model, self.store, self.transfer, self.staleness = model, store, transfer, staleness
        slots = store.config if isinstance(store, EmbeddingStore) else ()
        # The pooled slots and their widths, in the order in which they lie side by side.
        self.dims: dict[str, int] = {slot.name: slot.dim for slot in slots if slot.length is None}
        # Whether the model can read the packed embeddings as they lie: all slots pooled, as wide, in the model's order.
        same = len(set(self.dims.values())) == 1 and getattr(model, "categorical", None) == list(self.dims)
        self._stacked = same and all(slot.length is None for slot in slots)

    def pipeline(self, loader: Any, training: bool) -> Pipeline:
        """A pipeline over the loader's batches."""
        columns = getattr(loader, "schema", None)
        schema = getattr(self.model, "schema", None) or columns
        if schema is None:
            raise ParameterError("neither the model nor the loader has a schema that says which columns are numbers")
        continuous = schema.select(roles="continuous").names
        store = self.store
        slots = store.config.names if isinstance(store, EmbeddingStore) else schema.select(roles="categorical").names
        position = getattr(loader, "state_dict", None) if training else None

        def prepare(raw: Any) -> TrainBatch:
            with self.timings.timed("prepare" if training else None):
                batch = training_batch(raw, columns, continuous, slots)
                batch.position = position() if position is not None else None
                batch.dense, batch.labels = self.transfer.to_device(batch.dense), self.transfer.to_device(batch.labels)
                if isinstance(store, nn.Module):
                    batch.ids = to_device(batch.ids, self.transfer.device)
            return self.look_up(batch, training)

        ahead = self.staleness if training else max(2, self.staleness)
        timings = self.timings if training else None
        return Pipeline(loader, prepare, lambda batch: self.look_up(batch, training), ahead, timings)

    def look_up(self, batch: TrainBatch, training: bool) -> TrainBatch:
        """Fill in the embeddings: one packed leaf where the model can read it as it lies, else one view a slot."""
        if not isinstance(self.store, EmbeddingStore):
            return batch
        with self.timings.timed("lookup" if training else None):
            found = self.store.lookup(batch.ids, train=training)
        packed, move = torch.from_numpy(found.packed), self.transfer.to_device
        batch.lookup = found if training else None
        if self._stacked:
            leaf = move(packed.view(len(packed), len(self.dims), -1)).requires_grad_(training)
            batch.leaves, batch.embeddings = {"": leaf}, leaf
            return batch
        leaf = move(packed).requires_grad_(training)
        # split, not slices: its backward pass joins the parts once instead of adding one full-width array a slot
        views = leaf.split(list(self.dims.values()), 1) if self.dims else ()
        batch.leaves, batch.embeddings = {"": leaf} if self.dims else {}, dict(zip(self.dims, views, strict=True))
        for name in found.masks:
            own = move(torch.from_numpy(found[name])).requires_grad_(training)
            batch.leaves[name] = batch.embeddings[name] = own
        batch.masks = move({name: torch.from_numpy(mask) for name, mask in found.masks.items()})
        return batch

    def arrived(self, batch: TrainBatch) -> None:
        """The loop takes a batch over."""
        for tensor in (batch.dense, *batch.leaves.values()):
            self.transfer.used_here(tensor)


def check_columns(model: nn.Module, store: Source) -> None:
    """Every category the model reads must have embeddings, of the width it expects."""
    wanted = getattr(model, "categorical", None)
    if wanted is None or isinstance(store, nn.Module):
        return
    if store is None:
        if wanted:
            raise ParameterError(f"the model reads embeddings of {wanted[0]!r}, so it needs a store")
        return
    known: Mapping[str, Any] = {slot.name: slot for slot in store.config}
    for name in wanted:
        if name not in known:
            hint = suggest(name, known, "slots")
            raise ParameterError(f"the model reads embeddings of {name!r}, and the store has no such slot{hint}")
        if known[name].dim != model.embedding_dim:
            raise ParameterError(
                f"slot {name!r} has dim={known[name].dim}, the model embedding_dim={model.embedding_dim}; "
                "they must agree"
            )
