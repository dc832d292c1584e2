"""A plain perceptron over numbers and embeddings side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from penstock.core.schema import Schema
from penstock.nn.base import DROPOUT, LINEAR, WIDTHS, Embeddings, Model, flat, perceptron


class MLP(Model):
    """Hidden layers of the widths given, then one logit.

    Args:
        schema: whose categorical and continuous columns the model reads.
        embedding_dim: the width of embeddings; or `{column: width}`.
        hidden: widths of the hidden layers.
        dropout: behind each of them.
        linear: whether a `penstock.nn.linear.LinearPart` is added; with `"first"` the network begins at zero beside it.

    >>> import torch
    >>> from penstock import ColumnSchema, Schema
    >>> schema = Schema([ColumnSchema("user", "int64", role="categorical"), ColumnSchema("price", "float32",
    ...     role="continuous")])
    >>> MLP(schema, embedding_dim=4, hidden=(8,))(torch.zeros(2, 1), {"user": torch.zeros(2, 4)}).shape
    torch.Size([2])
    """

    constraints = {"hidden": WIDTHS, "dropout": DROPOUT, "linear": LINEAR}
    starts_apart = True

    def __init__(
        self,
        schema: Schema,
        embedding_dim: int | Mapping[str, int] = 16,
        hidden: Sequence[int] = (256, 128),
        dropout: float = 0.0,
        linear: bool | str = False,
    ) -> None:
        super().__init__(schema, embedding_dim, locals())
        inputs = len(self.continuous) + self.embedded_width
        self.layers = perceptron(inputs, hidden, dropout, outputs=1)
        self.begin_with_linear(self.layers[-1])

    def forward(self, continuous: Tensor, embeddings: Embeddings, masks: Mapping[str, Any] | None = None) -> Tensor:
        """The logits of a batch.

        Args:
            continuous: the continuous columns, `(B, n)`.
            embeddings: by name, or in one tensor.
            masks: of columns that are sequences.

        Returns:
            Logits, `(B,)`.
        """
        continuous, stacked = self.joined(continuous, embeddings)
        return self.plus_linear(self.layers(flat(continuous, self.seen(stacked))).squeeze(1), continuous, stacked)
