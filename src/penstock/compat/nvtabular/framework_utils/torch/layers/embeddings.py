"""Embeddings of several columns, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.compat.missing import module_getattr
from penstock.core.errors import ColumnNotFoundError
from penstock.core.extras import require

torch = require("torch", "torch")

__all__ = ["ConcatenatedEmbeddings", "MultiHotEmbeddings"]

Shapes = Mapping[str, tuple[int, int]]


class ConcatenatedEmbeddings(torch.nn.Module):  # type: ignore[name-defined]
    """A table for each column of `(B, columns)` ids; the vectors side by side.

    `embedding_table_shapes` is what `get_embedding_sizes` gives, in the order of the ids' columns. The columns named in
    `sparse_columns` have sparse gradients.

    >>> ConcatenatedEmbeddings({"a": (10, 4), "b": (5, 2)})(torch.tensor([[1, 2], [9, 4]])).shape
    torch.Size([2, 6])
    """

    def __init__(
        self, embedding_table_shapes: Shapes, dropout: float = 0.0, sparse_columns: Sequence[str] = ()
    ) -> None:
        super().__init__()
        for name in sparse_columns:
            if name not in embedding_table_shapes:
                raise ColumnNotFoundError(name, embedding_table_shapes, "embedding_table_shapes")
        self.embedding_layers = torch.nn.ModuleList(
            torch.nn.Embedding(rows, width, sparse=name in sparse_columns)
            for name, (rows, width) in embedding_table_shapes.items()
        )
        self.dropout = torch.nn.Dropout(p=dropout)

    def forward(self, x: Any) -> Any:
        ids = x[None] if x.dim() == 1 else x
        vectors = [layer(ids[:, i]) for i, layer in enumerate(self.embedding_layers)]
        return self.dropout(torch.cat(vectors, dim=1))


class MultiHotEmbeddings(torch.nn.Module):  # type: ignore[name-defined]
    """A table for each list column of `{name: (values, offsets)}`; a row's vectors summed (or as `mode` says).

    >>> lists = {"genres": (torch.tensor([1, 2, 3]), torch.tensor([[0], [2]]))}
    >>> MultiHotEmbeddings({"genres": (10, 4)})(lists).shape
    torch.Size([2, 4])
    """

    def __init__(self, embedding_table_shapes: Shapes, dropout: float = 0.0, mode: str = "sum") -> None:
        super().__init__()
        self.embedding_names = list(embedding_table_shapes)
        self.embedding_layers = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(rows, width, mode=mode) for rows, width in embedding_table_shapes.values()
        )
        self.dropout = torch.nn.Dropout(p=dropout)

    def forward(self, x: Mapping[str, Any]) -> Any:
        vectors = []
        for name, layer in zip(self.embedding_names, self.embedding_layers, strict=True):
            values, offsets = x[name]
            vectors.append(layer(values.reshape(-1), offsets.reshape(-1)))
        return self.dropout(torch.cat(vectors, dim=1))


__getattr__ = module_getattr(__name__)
