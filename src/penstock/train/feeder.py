"""From a loader's batch to one the model reads: columns sorted, embeddings looked up, everything on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from penstock.core.errors import ParameterError, suggest
from penstock.embedding.protocol import Embeddings, is_on_host
from penstock.train import begun
from penstock.train.batch import TrainBatch, as_tensor, to_device, training_batch
from penstock.train.begun import Later
from penstock.train.store_thread import StoreThread
from penstock.train.timing import Timings
from penstock.train.transfer import Transfer

Source = Embeddings | nn.Module | None


class Feeder:
    """Makes the store threads of a training context."""

    def __init__(
        self, model: nn.Module, embeddings: Source, transfer: Transfer, staleness: int, timings: Timings | None = None
    ) -> None:
        self.timings = timings or Timings()
        self.model, self.transfer, self.staleness = model, transfer, staleness
        self.embeddings: Any = embeddings
        self._on_host = is_on_host(embeddings)
        self.dims: dict[str, int] = dict(embeddings.dims) if is_on_host(embeddings) else {}
        # Whether the model can read packed embeddings as they lie: all as wide, in the model's order.
        self._same = len(set(self.dims.values())) == 1 and getattr(model, "categorical", None) == list(self.dims)

    def store_thread(self, loader: Any, training: bool) -> StoreThread:
        """A store thread over the loader's batches."""
        columns = getattr(loader, "schema", None)
        schema = getattr(self.model, "schema", None) or columns
        if schema is None:
            raise ParameterError("neither the model nor the loader has a schema that says which columns are numbers")
        continuous = schema.select(roles="continuous").names
        columns_of_ids = list(self.dims) if self._on_host else schema.select(roles="categorical").names
        position = getattr(loader, "state_dict", None) if training else None

        def prepare(raw: Any) -> TrainBatch | Later[TrainBatch]:
            with self.timings.timed("prepare" if training else None):
                batch = training_batch(raw, columns, continuous, columns_of_ids)
                batch.position = position() if position is not None else None
                batch.continuous = self.transfer.to_device(batch.continuous)
                batch.labels = self.transfer.to_device(batch.labels)
                if not self._on_host:
                    batch.ids = to_device(batch.ids, self.transfer.device)
            return self.look_up(batch, training)

        ahead = self.staleness if training else max(2, self.staleness)
        timings = self.timings if training else None
        return StoreThread(loader, prepare, lambda batch: self.look_up(batch, training), ahead, timings)

    def look_up(self, batch: TrainBatch, training: bool) -> TrainBatch | Later[TrainBatch]:
        """Fill in the embeddings, now or when they have come."""
        if not self._on_host:
            return batch
        clock = partial(self.timings.timed, "lookup" if training else None)

        def filled(find: Callable[[], Any]) -> TrainBatch:
            with clock():
                found = find()
            return self._fill(batch, training, found)

        return begun.look_up(self.embeddings, batch.ids, training, filled, clock)

    def _fill(self, batch: TrainBatch, training: bool, found: Any) -> TrainBatch:
        """One packed leaf where the model can read it as it lies, else one view a slot."""
        batch.lookup = found if training else None
        masks, packed = getattr(found, "masks", {}), getattr(found, "packed", None)
        batch.dims = {} if packed is None else {name: dim for name, dim in self.dims.items() if name not in masks}
        batch.leaves, batch.embeddings = {}, {}
        if packed is not None and batch.dims and self._same and not masks:
            stacked = as_tensor(packed).view(len(packed), len(self.dims), -1)
            batch.leaves[""] = batch.embeddings = self._leaf(stacked, training)
            return batch
        if batch.dims:
            leaf = batch.leaves[""] = self._leaf(packed, training)
            # split, not slices: its backward pass joins the parts once instead of adding one full-width array a slot
            batch.embeddings = dict(zip(batch.dims, leaf.split(list(batch.dims.values()), 1), strict=True))
        for name in self.dims:
            if name not in batch.dims:
                batch.leaves[name] = batch.embeddings[name] = self._leaf(found[name], training)
        batch.masks = self.transfer.to_device({name: as_tensor(mask) for name, mask in masks.items()})
        return batch

    def _leaf(self, values: Any, training: bool) -> Tensor:
        leaf: Tensor = self.transfer.to_device(as_tensor(values)).requires_grad_(training)
        return leaf

    def arrived(self, batch: TrainBatch) -> None:
        """The loop takes a batch over."""
        for tensor in (batch.continuous, *batch.leaves.values()):
            self.transfer.used_here(tensor)


def module_on_device(embeddings: Source) -> nn.Module | None:
    """The module that makes embeddings inside the step; None where there is none, or the host looks them up.

    Raises:
        ParameterError: the embeddings are neither on the host nor a module.
    """
    if embeddings is None or is_on_host(embeddings):
        return None
    if not isinstance(embeddings, nn.Module):
        raise ParameterError(
            f"embeddings that are not looked up on the host (on_host=False) must be a torch module, "
            f"got {type(embeddings).__name__}"
        )
    return embeddings


def expected_dims(model: nn.Module) -> dict[str, int] | None:
    """The width that a model expects of each column's embeddings; None where it does not say."""
    wanted, dim = getattr(model, "categorical", None), getattr(model, "embedding_dim", None)
    if wanted is None or dim is None:
        return None
    return dict(getattr(model, "dims", None) or dict.fromkeys(wanted, dim))


def check_columns(model: nn.Module, embeddings: Source) -> None:
    """Every category the model reads must have embeddings, of the width it expects."""
    wanted = getattr(model, "categorical", None)
    if wanted is None:
        return
    if embeddings is None:
        if wanted:
            raise ParameterError(f"the model reads embeddings of {wanted[0]!r}, so it needs a store")
        return
    if not is_on_host(embeddings):
        return
    known: Mapping[str, int] = embeddings.dims
    expected = expected_dims(model)
    for name in wanted:
        if name not in known:
            hint = suggest(name, known, "slots")
            raise ParameterError(f"the model reads embeddings of {name!r}, and the store has no such slot{hint}")
        if expected is not None and known[name] != expected[name]:
            raise ParameterError(
                f"slot {name!r} has dim={known[name]}, the model embedding_dim={expected[name]}; they must agree"
            )
