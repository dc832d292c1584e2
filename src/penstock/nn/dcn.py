"""DCNv2 (Wang et al. 2021): explicit crosses of all inputs beside, or before, a perceptron."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from penstock.core.params import NONE, Int, OneOf
from penstock.core.schema import Schema
from penstock.nn.base import DROPOUT, LINEAR, WIDTHS, Embeddings, Model, flat, perceptron
from penstock.nn.dense import Linear


class CrossLayer(nn.Module):
    """`x₀ ⊙ (W x + b) + x`; with `rank`, W is the product of two thin matrices.

    >>> CrossLayer(3)(torch.ones(2, 3), torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(self, width: int, rank: int | None = None) -> None:
        super().__init__()
        if rank is None:
            self.weight: nn.Module = Linear(width, width)
        else:
            self.weight = nn.Sequential(Linear(width, rank, bias=False), Linear(rank, width))

    def forward(self, first: Tensor, x: Tensor) -> Tensor:
        crossed: Tensor = first * self.weight(x) + x
        return crossed


class DCNv2(Model):
    """`num_cross` cross layers; `structure` puts the hidden layers beside them (`parallel`) or behind (`stacked`).

    Args:
        schema: whose categorical and continuous columns the model reads.
        embedding_dim: the width of embeddings; or `{column: width}`.
        hidden: widths of the hidden layers.
        num_cross: cross layers.
        rank: of their weights; None for full ones.
        structure: `"parallel"` or `"stacked"`.
        dropout: behind each hidden layer.
        linear: whether a `penstock.nn.linear.LinearPart` is added; with `"first"` the network begins at zero beside it.

    >>> from penstock import ColumnSchema, Schema
    >>> schema = Schema([ColumnSchema("user", "int64", role="categorical"), ColumnSchema("price", "float32",
    ...     role="continuous")])
    >>> model = DCNv2(schema, embedding_dim=4, num_cross=2, hidden=(8,), rank=2)
    >>> model(torch.zeros(2, 1), {"user": torch.zeros(2, 4)}).shape
    torch.Size([2])
    """

    constraints = {
        "hidden": WIDTHS,
        "num_cross": Int(min=1),
        "rank": NONE | Int(min=1),
        "structure": OneOf(("parallel", "stacked")),
        "dropout": DROPOUT,
        "linear": LINEAR,
    }
    starts_apart = True

    def __init__(
        self,
        schema: Schema,
        embedding_dim: int | Mapping[str, int] = 16,
        hidden: Sequence[int] = (256, 128),
        num_cross: int = 3,
        rank: int | None = None,
        structure: str = "parallel",
        dropout: float = 0.0,
        linear: bool | str = False,
    ) -> None:
        super().__init__(schema, embedding_dim, locals())
        width = len(self.continuous) + self.embedded_width
        self.crosses = nn.ModuleList([CrossLayer(width, rank) for _ in range(num_cross)])
        self.deep = perceptron(width, hidden, dropout)
        self.structure = structure
        deep_width = hidden[-1] if hidden else width
        self.head = nn.Linear(deep_width + (width if structure == "parallel" else 0), 1)
        self.begin_with_linear(self.head)

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
        x = first = flat(continuous, self.seen(stacked))
        for cross in self.crosses:
            x = cross(first, x)
        top = torch.cat([x, self.deep(first)], 1) if self.structure == "parallel" else self.deep(x)
        return self.plus_linear(self.head(top).squeeze(1), continuous, stacked)
