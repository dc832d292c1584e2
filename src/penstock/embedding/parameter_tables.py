"""Embedding tables on the model's own device: for vocabularies that fit there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from penstock.core.errors import ColumnNotFoundError, DataError, SchemaError
from penstock.core.params import BOOL, OneOf, Real, check_all
from penstock.core.schema import Role, Schema
from penstock.embedding.dims import DIM
from penstock.embedding.fused.table_lookup import TableLookup
from penstock.embedding.module_files import load_module, save_module

POOLINGS = ("sum", "mean", "sqrt_n")


class EmbeddingTables(nn.Module):
    """All tables of a schema's categorical columns in one parameter; `(B, columns, dim)` out.

    Columns need a cardinality, as `Categorify` gives it. Features are `{name: ids}`: `(B,)`, padded `(B, n)`, or
    ragged `(values, offsets)` for list columns, which are pooled. With `sparse`, gradients are sparse tensors
    (`torch.optim.SparseAdam`, `Adagrad`, `SGD`).

    Args:
        schema: of the features.
        dim: the width of embeddings.
        pooling: of list columns.
        sparse: whether gradients are sparse tensors.
        scale: weights start between minus and plus this.

    >>> from penstock import ColumnSchema, Schema
    >>> schema = Schema([ColumnSchema("user", "int64", role="categorical", cardinality=10)])
    >>> EmbeddingTables(schema, dim=4)({"user": torch.tensor([3, 9])}).shape
    torch.Size([2, 1, 4])
    """

    on_host = updates_in_backward = capturable = False
    starts: Tensor

    def __init__(
        self, schema: Schema, dim: int = 16, *, pooling: str = "sum", sparse: bool = False, scale: float = 0.01
    ) -> None:
        super().__init__()
        given = {"dim": dim, "pooling": pooling, "sparse": sparse, "scale": scale}
        constraints = {"dim": DIM, "pooling": OneOf(POOLINGS), "sparse": BOOL, "scale": Real(min=0)}
        check_all(given, constraints, "EmbeddingTables")
        self.schema = schema.select(roles=Role.CATEGORICAL)
        self.names = self.schema.names
        for column in self.schema:
            if not column.cardinality:
                raise SchemaError(
                    f"column {column.name!r} has no cardinality, so its table has no size; encode it with Categorify, "
                    f"or keep its embeddings in a store (penstock.embedding), which needs none"
                )
        self.sizes = [int(column.cardinality or 0) for column in self.schema]
        self.dim, self.pooling, self.sparse = dim, pooling, sparse
        self._arguments = given
        self.weight = nn.Parameter(torch.empty(sum(self.sizes), dim).uniform_(-scale, scale))
        starts = torch.tensor([0, *self.sizes], dtype=torch.int64).cumsum(0)
        self.register_buffer("starts", starts, persistent=False)

    @property
    def dims(self) -> dict[str, int]:
        """The width of each column's embeddings."""
        return dict.fromkeys(self.names, self.dim)

    def config(self) -> dict[str, Any]:
        """Plain data from which `penstock.nn.from_config` builds the same tables, without their weights.

        Returns:
            The class, the schema and the arguments.
        """
        return {"class": "EmbeddingTables", "schema": self.schema.to_dict(), "arguments": self._arguments}

    def forward(self, features: Mapping[str, Any]) -> Tensor:
        """The embeddings of a batch.

        Args:
            features: ids by column.

        Returns:
            `(B, columns, dim)`.

        Raises:
            ColumnNotFoundError: a column is missing.
            DataError: an id lies outside its table.
        """
        for name in self.names:
            if name not in features:
                raise ColumnNotFoundError(name, features, "the features given to the tables")
        if not any(_is_list(features[name]) for name in self.names):
            rows = [self._rows(i, features[name]) for i, name in enumerate(self.names)]
            return nn.functional.embedding(torch.stack(rows, 1), self.weight, sparse=self.sparse)
        return torch.stack([self._column(i, features[name]) for i, name in enumerate(self.names)], 1)

    def for_serving(self, schema: Schema) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What `from_config` builds tables to predict with from, and their weights in host memory.

        Args:
            schema: of the columns that the model reads.

        Returns:
            The description and the weights.
        """
        return self.config(), {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}

    # The protocol `Embeddings`, by hand.

    def lookup(self, batch: Mapping[str, Any], train: bool = True) -> TableLookup:
        """Embeddings by column; those of a training look-up are part of torch's graph."""
        with torch.set_grad_enabled(train):
            found = self(batch).flatten(1)
        return TableLookup(self.dims, found, None, found if train else None)

    def update(self, lookup: TableLookup, gradients: Mapping[str, Any], scale: float = 1.0) -> None:
        """Add to the gradient of the weight, divided by `scale`: a torch optimizer steps it."""
        gradient, found = lookup.gradient(gradients), lookup.saved_for_update()
        found.backward(gradient / scale)

    def save(self, path: str | Path, overwrite: bool = False, base: str | Path | None = None) -> None:
        """Write the weights as a folder; always whole, whatever `base` is."""
        save_module(self, path, overwrite)

    def load(self, path: str | Path) -> None:
        """Replace the weights by what `save` wrote."""
        load_module(self, path)

    def stats(self) -> dict[str, Any]:
        """Plain figures: rows, and bytes of the weights."""
        return {"rows": sum(self.sizes), "bytes": self.weight.numel() * self.weight.element_size()}

    def close(self) -> None:
        """Nothing is held open."""

    def _rows(self, number: int, ids: Any) -> Tensor:
        """Row numbers in the joint table, on its device; an id beyond its table must not read from the next one."""
        ids = torch.as_tensor(ids)
        if ids.device.type == "cpu" and ids.numel():  # on a GPU looking would stall it
            low, high = int(ids.min()), int(ids.max())
            if low < 0 or high >= self.sizes[number]:
                raise DataError(
                    f"column {self.names[number]!r}: ids must lie in [0, {self.sizes[number]}), got {low} to {high}"
                )
        found: Tensor = ids.to(self.weight.device, torch.int64) + self.starts[number]
        return found

    def _column(self, number: int, value: Any) -> Tensor:
        if not _is_list(value):
            return nn.functional.embedding(self._rows(number, value), self.weight, sparse=self.sparse)
        if isinstance(value, Tensor):  # (B, n)
            values, lengths = value.flatten(), torch.full((value.shape[0],), value.shape[1], device=value.device)
        else:
            values, offsets = value
            values, offsets = torch.as_tensor(values), torch.as_tensor(offsets)
            lengths = offsets[1:] - offsets[:-1]
        lengths = lengths.to(self.weight.device, torch.int64)
        found = nn.functional.embedding(self._rows(number, values), self.weight, sparse=self.sparse)
        sample = torch.repeat_interleave(torch.arange(len(lengths), device=found.device), lengths)
        pooled = found.new_zeros((len(lengths), self.dim)).index_add(0, sample, found)
        count = lengths.clamp(min=1).to(found.dtype)[:, None]
        return pooled / {"sum": torch.ones_like(count), "mean": count, "sqrt_n": count.sqrt()}[self.pooling]


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple) or (isinstance(value, Tensor) and value.dim() == 2)
