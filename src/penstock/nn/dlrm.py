"""DLRM (Naumov et al. 2019): embeddings and projected numbers meet in pairwise dot products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from penstock.core.errors import SchemaError
from penstock.core.params import BOOL
from penstock.core.schema import Schema
from penstock.nn.base import DROPOUT, LINEAR, WIDTHS, Embeddings, Model, perceptron
from penstock.nn.pairs import pair_products, pairs_and_sums


class DLRM(Model):
    """`bottom` are hidden layers that bring the numbers to `embedding_dim`; `top` sees that and all dot products.

    Without numbers a learned vector takes their place. Its product with an embedding is what an id says by itself, and
    embeddings that start near zero, whose products with one another have no gradient, learn from it at once. Embeddings
    of several dims meet in the largest one, by a learned projection.

    Args:
        schema: whose categorical and continuous columns the model reads.
        embedding_dim: the width of embeddings; or `{column: width}`.
        bottom: widths of the layers before the products.
        top: widths of those behind.
        dropout: behind each hidden layer.
        constant: whether that vector is there; a schema with numbers has none in any case.
        linear: whether a `penstock.nn.linear.LinearPart` is added; with `"first"` the network begins at zero beside it.

    >>> from penstock import ColumnSchema, Schema
    >>> schema = Schema([ColumnSchema("user", "int64", role="categorical"), ColumnSchema("price", "float32",
    ...     role="continuous")])
    >>> model = DLRM(schema, embedding_dim=4, bottom=(8,), top=(8,))
    >>> model(torch.zeros(2, 1), torch.zeros(2, 1, 4)).shape
    torch.Size([2])
    """

    constraints = {"bottom": WIDTHS, "top": WIDTHS, "dropout": DROPOUT, "constant": BOOL, "linear": LINEAR}
    before = {"constant": False}
    starts_apart = True

    def __init__(
        self,
        schema: Schema,
        embedding_dim: int | Mapping[str, int] = 16,
        bottom: Sequence[int] = (64,),
        top: Sequence[int] = (128, 64),
        dropout: float = 0.0,
        constant: bool = True,
        linear: bool | str = False,
    ) -> None:
        super().__init__(schema, embedding_dim, locals())
        is_constant = constant and not self.continuous
        vectors = len(self.categorical) + bool(self.continuous or is_constant)
        if vectors == 1 and not self.continuous:
            raise SchemaError(
                f"DLRM multiplies pairs of columns, and {self.categorical[0]!r} is the only one; use another model"
            )
        # As long as the bottom's output of standardized numbers is, so that ids learn as fast with as without numbers.
        self.constant = nn.Parameter(torch.randn(self.embedding_dim)) if is_constant else None
        self.bottom = perceptron(len(self.continuous), (*bottom, self.embedding_dim)) if self.continuous else None
        width = self.embedding_dim if self.bottom is not None else 0
        self.top = perceptron(width + vectors * (vectors - 1) // 2, top, dropout, outputs=1)
        self.project()
        self.begin_with_linear(self.top[-1])
        # Row and column of each pair below the diagonal, as one index into the flattened products. Not by
        # `torch.tril_indices`: on the meta device, where settings are tried, that imports torch's compiler (2 s).
        pairs = [row * vectors + column for row in range(vectors) for column in range(row)]
        self.pairs: Tensor
        self.register_buffer("pairs", torch.tensor(pairs, dtype=torch.int64), persistent=False)

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
        if ids is None:
            assert self.bottom is not None
            return self.plus_linear(self.top(self.bottom(continuous)).squeeze(1), continuous, None)
        first = self.bottom(continuous) if self.bottom is not None else self._constant_of(ids)
        beside = self.bottom is not None
        if self.linear is not None and self.projection is None:  # its weights are read where the pairs are
            products, of_ids = pairs_and_sums(first, ids, self.linear.seen, self.pairs, beside)
            logits: Tensor = self.top(products).squeeze(1)
            return logits + self.linear.added(continuous, of_ids)
        stacked = self.of_one_dim(self.seen(ids))  # type: ignore[arg-type]
        products = pair_products(first, stacked, self.pairs, beside)
        return self.plus_linear(self.top(products).squeeze(1), continuous, ids)

    def _constant_of(self, ids: Tensor) -> Tensor | None:
        return None if self.constant is None else self.constant.to(ids.dtype).expand(len(ids), -1)
