"""DeepFM (Guo et al. 2017): a factorization machine and a perceptron over the same embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from penstock.core.schema import Schema
from penstock.nn.base import DROPOUT, LINEAR, WIDTHS, Embeddings, Model, flat, perceptron


class DeepFM(Model):
    """First-order terms, pairwise products of all factors, and hidden layers, summed to one logit.

    A number's factor is its value times a learned vector. The first-order weight of a category is a learned projection
    of its embedding, so that one embedding a category is all a store has to hold. Embeddings of several dims become
    factors of the largest one by a learned projection.

    Args:
        schema: whose categorical and continuous columns the model reads.
        embedding_dim: the width of embeddings; or `{column: width}`.
        hidden: widths of the hidden layers.
        dropout: behind each of them.
        linear: whether a `penstock.nn.linear.LinearPart` is added; with `"first"` the network begins at zero beside it.

    >>> from penstock import ColumnSchema, Schema
    >>> schema = Schema([ColumnSchema("user", "int64", role="categorical"), ColumnSchema("price", "float32",
    ...     role="continuous")])
    >>> DeepFM(schema, embedding_dim=4, hidden=(8,))(torch.zeros(2, 1), {"user": torch.zeros(2, 4)}).shape
    torch.Size([2])
    """

    constraints = {"hidden": WIDTHS, "dropout": DROPOUT, "linear": LINEAR}

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
        self.first_order = nn.Linear(inputs, 1)
        self.factors = nn.Parameter(torch.empty(len(self.continuous), self.embedding_dim).uniform_(-0.01, 0.01))
        self.deep = perceptron(inputs, hidden, dropout, outputs=1)
        self.project()
        self.begin_with_linear(self.deep[-1])
        self.begin_with_linear(self.first_order)

    def forward(self, continuous: Tensor, embeddings: Embeddings, masks: Mapping[str, Any] | None = None) -> Tensor:
        """The logits of a batch.

        Args:
            continuous: the continuous columns, `(B, n)`.
            embeddings: by name, or in one tensor.
            masks: of columns that are sequences.

        Returns:
            Logits, `(B,)`.
        """
        continuous, ids = self.joined(continuous, embeddings)
        stacked = self.seen(ids)
        everything = flat(continuous, stacked)
        # Σ over pairs of vᵢ·vⱼ = ½ (|Σ vᵢ|² - Σ |vᵢ|²)
        total = continuous @ self.factors
        squares = continuous.square() @ self.factors.square()
        if stacked is not None:
            factors = self.of_one_dim(stacked)
            total = total + factors.sum(1)
            squares = squares + factors.square().sum(1)
        pairs = 0.5 * (total.square() - squares).sum(1)
        logits: Tensor = self.first_order(everything).squeeze(1) + pairs + self.deep(everything).squeeze(1)
        return self.plus_linear(logits, continuous, ids)
