"""Embeddings of several columns, side by side, and a perceptron over them and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from penstock.core.errors import ColumnNotFoundError, ParameterError
from penstock.core.extras import require

torch = require("torch", "torch")


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


class Model(torch.nn.Module):  # type: ignore[name-defined]
    """`Model(...)(x_cat, x_cont)` gives one number a row, `(B,)`.

    Args:
        embedding_table_shapes: what `get_embedding_sizes` gives; with list columns a pair `(single-hot, multi-hot)`.
        num_continuous: how many numbers there are.
        emb_dropout: of the embeddings.
        layer_hidden_dims, layer_dropout_rates: of the hidden layers, as many of one as of the other.
        max_output: bounds the output: `max_output · sigmoid(x)`.
        bag_mode: how the vectors of a list become one: `"sum"`, `"mean"` or `"max"`.

    >>> model = Model({"a": (10, 4)}, 2, 0.0, [8], [0.1])
    >>> model(torch.tensor([[1], [2]]), torch.rand(2, 2)).shape
    torch.Size([2])
    """

    def __init__(
        self,
        embedding_table_shapes: Any,
        num_continuous: int,
        emb_dropout: float,
        layer_hidden_dims: Sequence[int],
        layer_dropout_rates: Sequence[float],
        max_output: float | None = None,
        bag_mode: str = "sum",
    ) -> None:
        super().__init__()
        if not layer_hidden_dims or len(layer_hidden_dims) != len(layer_dropout_rates):
            raise ParameterError("layer_hidden_dims and layer_dropout_rates must be as long, and not empty")
        shapes = embedding_table_shapes
        single, multi = shapes if isinstance(shapes, tuple) else (shapes, {})
        self.max_output, self.num_continuous = max_output, num_continuous
        self.initial_cat_layer = ConcatenatedEmbeddings(single, emb_dropout) if single else None
        self.mh_cat_layer = MultiHotEmbeddings(multi, emb_dropout, bag_mode) if multi else None
        self.initial_cont_layer = torch.nn.BatchNorm1d(num_continuous) if num_continuous else None
        inputs = num_continuous + sum(width for _, width in (*single.values(), *multi.values()))
        self.layers = torch.nn.ModuleList(
            torch.nn.Sequential(
                torch.nn.Linear(before, after), torch.nn.ReLU(), torch.nn.BatchNorm1d(after), torch.nn.Dropout(rate)
            )
            for (before, after), rate in zip(pairwise([inputs, *layer_hidden_dims]), layer_dropout_rates, strict=True)
        )
        self.output_layer = torch.nn.Linear(layer_hidden_dims[-1], 1)

    def forward(self, x_cat: Any, x_cont: Any) -> Any:
        single, multi = x_cat if isinstance(x_cat, tuple) else (x_cat, None)
        parts = []
        if self.mh_cat_layer is not None and multi:
            parts.append(self.mh_cat_layer(multi))
        if self.initial_cat_layer is not None and single is not None:
            parts.append(self.initial_cat_layer(single))
        if self.initial_cont_layer is not None and x_cont is not None:
            parts.append(self.initial_cont_layer(x_cont))
        x = torch.cat(parts, 1)
        for layer in self.layers:
            x = layer(x)
        x = self.output_layer(x).view(-1)
        return x if self.max_output is None else self.max_output * torch.sigmoid(x)
