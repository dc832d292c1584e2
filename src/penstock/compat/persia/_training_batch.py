"""A batch with its embeddings, as a trainer gets it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.compat.persia._message import Message


@dataclass(eq=False)
class PersiaTrainingBatch:
    """What a data loader delivers; `ctx.prepare_features(batch)` or `ctx.forward(batch)` makes tensors of it.

    `embeddings` maps the features of the batch, in its order, to `(B, dim)`, or `(B, sample_fixed_size, dim)` for those
    that are not summed, whose masks are in `masks`.

    >>> PersiaTrainingBatch(Message(meta=b"day 7")).meta
    b'day 7'
    """

    message: Message
    embeddings: dict[str, Any] = field(default_factory=dict)  # leaves: what collects gradients
    masks: dict[str, Any] = field(default_factory=dict)
    lookup: Any = None  # of the store; None where nothing is trained
    # What `prepare_features` fills in, under the names of both ages.
    non_id_type_feature_torch_tensors: list[Any] = field(default_factory=list)
    id_type_feature_embedding_torch_tensors: list[Any] = field(default_factory=list)
    label_torch_tensors: list[Any] | None = None

    def tensors(self) -> list[Any]:
        """Everything that lies on the device."""
        own = self.non_id_type_feature_torch_tensors + (self.label_torch_tensors or [])
        return [*own, *self.embeddings.values(), *self.masks.values()]

    @property
    def batch_size(self) -> int:
        return self.message.rows

    @property
    def meta(self) -> bytes | None:
        """The bytes that the data loader sent along."""
        return self.message.meta

    @property
    def extras(self) -> dict[str, Any]:
        """The arrays and lists that the data loader sent along by name (`add_map_dense`, `add_map_sparse`)."""
        return self.message.extras

    @property
    def forward_tensors(self) -> list[Any]:
        """The embeddings, as a model reads them."""
        return self.id_type_feature_embedding_torch_tensors

    @property
    def dense_tensor(self) -> Any:
        """The first array of numbers."""
        tensors = self.non_id_type_feature_torch_tensors
        return tensors[0] if tensors else None

    @property
    def target_tensor(self) -> Any:
        """The first target."""
        return self.label_torch_tensors[0] if self.label_torch_tensors else None
