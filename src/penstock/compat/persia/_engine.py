"""Look-ups ahead of a trainer and updates behind it, on the thread and in the order of `penstock.train`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from typing import Any

import numpy as np
import torch

from penstock.compat.persia._message import Message, PersiaTrainingBatch
from penstock.core.batch import Ragged
from penstock.core.errors import PenstockError
from penstock.embedding.lookup import Lookup
from penstock.embedding.store import EmbeddingStore
from penstock.train import begun
from penstock.train.batch import as_tensor
from penstock.train.begun import Later
from penstock.train.gradients import all_finite
from penstock.train.loops import Loops
from penstock.train.store_thread import StoreThread
from penstock.train.transfer import Transfer

_EXIT = 60.0  # seconds that ending a loop may take at most


class Engine:
    """Batches with embeddings for one context, and the way of their gradients back.

    `after_update(batch)` is called on the training thread once a batch's gradients are in the store.
    """

    def __init__(
        self,
        store: EmbeddingStore,
        device: torch.device,
        after_update: Callable[[PersiaTrainingBatch], None] | None = None,
    ) -> None:
        self.store, self.device = store, device
        self._after_update = after_update
        self._transfer = Transfer(device)
        self._loops = Loops(_EXIT)
        self.dropped: dict[str, int] = {}

    # Batches.

    def batches(self, source: Any, training: bool, staleness: int) -> Iterator[PersiaTrainingBatch]:
        """The batches of a source (of `persia.data`) with their embeddings, looked up ahead."""
        self.drain()  # what evaluates now sees everything trained so far
        thread = StoreThread(
            source,
            lambda message: self.prepare(message, training),
            lambda batch: self.look_up(batch, training),
            staleness,
        )
        with closing(self._loops.run(thread, training)) as batches:  # type: ignore[type-var]
            for batch in batches:
                for tensor in batch.tensors():
                    self._transfer.used_here(tensor)
                yield batch
                del batch

    def prepare(self, message: Message, training: bool) -> PersiaTrainingBatch | Later[PersiaTrainingBatch]:
        """A batch with everything on the device."""
        batch = PersiaTrainingBatch(message)
        to_device = self._transfer.to_device
        batch.non_id_type_feature_torch_tensors = [to_device(as_tensor(named.data)) for named in message.dense]
        batch.label_torch_tensors = [to_device(as_tensor(named.data)) for named in message.labels]
        return self.look_up(batch, training)

    def look_up(self, batch: PersiaTrainingBatch, training: bool) -> PersiaTrainingBatch | Later[PersiaTrainingBatch]:
        """Fill in the embeddings, now or when they have come."""
        message, config = batch.message, self.store.config
        for name in message.ids:
            config[name]  # a feature without a slot is refused, with the slots there are
        training = training and message.requires_grad
        empty = Ragged(np.empty(0, np.uint64), np.zeros(message.rows + 1, np.int64))
        ids = {name: message.ids.get(name, empty) for name in config.names}
        return begun.look_up(self.store, ids, training, lambda find: self._fill(batch, training, find()), nullcontext)

    def _fill(self, batch: PersiaTrainingBatch, training: bool, found: Lookup) -> PersiaTrainingBatch:
        """A leaf for each feature, all of them views of one copy."""
        message, config = batch.message, self.store.config
        packed, column, leaves = self._transfer.to_device(torch.from_numpy(found.packed)), 0, {}
        for slot in config:
            if slot.length is None:
                leaves[slot.name] = packed[:, column : column + slot.dim]
                column += slot.dim
            elif slot.name in message.ids:
                leaves[slot.name] = self._transfer.to_device(torch.from_numpy(found[slot.name]))
        batch.embeddings = {name: leaves[name].detach().requires_grad_(training) for name in message.ids}
        masks = {name: torch.from_numpy(mask) for name, mask in found.masks.items() if name in message.ids}
        batch.masks = self._transfer.to_device(masks)
        batch.lookup = found if training else None
        return batch

    def looked_up(self, message: Message, training: bool) -> PersiaTrainingBatch:
        """A batch with its embeddings, outside a loop."""
        batch = self.prepare(message, training)
        return batch.finish() if isinstance(batch, Later) else batch

    # Gradients.

    def send_gradients(self, batch: PersiaTrainingBatch, scale: float) -> bool:
        """Have a batch's gradients applied, divided by `scale`; whether all were finite. One that is not is dropped."""
        if batch.lookup is None:
            raise PenstockError("this batch is not for training, or its gradients have been sent already")
        gradients = {name: leaf.grad for name, leaf in batch.embeddings.items() if leaf.grad is not None}
        finite = all_finite(gradients.values())
        if not finite:
            for name in [name for name, gradient in gradients.items() if not all_finite([gradient])]:
                self.dropped[name] = self.dropped.get(name, 0) + 1
        lookup, ready, transfer, store = batch.lookup, self._transfer.mark(), self._transfer, self.store
        batch.lookup, batch.embeddings = None, {}

        def applied(apply: Callable[[], None]) -> None:
            apply()
            if self._after_update is not None:
                self._after_update(batch)

        def update() -> Later[None] | None:
            return begun.update(store, lookup, transfer.to_host(gradients, ready), scale, applied, nullcontext)

        if self._loops.training is None:
            if (later := update()) is not None:
                later.finish()
        else:
            self._loops.training.submit(update)
        return finite

    # Standing still, and the end.

    def drain(self) -> None:
        """Wait until the updates of all batches trained so far are in the store."""
        self._loops.drain()

    def look_up_again(self) -> None:
        """After a checkpoint: batches that were looked up ahead are looked up anew, as a resumed run does."""
        self._loops.look_up_again()

    def close(self, failed: bool) -> None:
        """End all loops: with every update applied, or at once after an error."""
        self._loops.close(failed)
