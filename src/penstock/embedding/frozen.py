"""Fused tables as they predict: weights alone, and zeros for every id that has no row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from penstock.core.errors import ParameterError
from penstock.core.schema import Schema
from penstock.embedding.fused.embeddings import FusedEmbeddings
from penstock.embedding.fused.ids import Ids


class FrozenEmbeddings(FusedEmbeddings):
    """`FusedEmbeddings` without optimizer state, which nothing trains: what a saved model predicts with.

    An id outside its table is one that training has not seen: its embedding is zeros, as it is in a store. The other
    numbers are those of the tables that were trained, bit for bit on the same kind of device.

    Args:
        tables: a schema whose categorical columns have a cardinality.
        dim, pooling, dtype: as `FusedEmbeddings` has them.

    >>> from penstock import ColumnSchema
    >>> trained = FusedEmbeddings(Schema([ColumnSchema("user", "int64", role="categorical", cardinality=5)]), dim=2)
    >>> description, weights = FrozenEmbeddings.of(trained, trained.schema)
    >>> frozen = FrozenEmbeddings(trained.schema, **description["arguments"])
    >>> _ = frozen.load_state_dict(weights)
    >>> torch.equal(frozen(torch.tensor([[4]])), trained(torch.tensor([[4]])))
    True
    >>> frozen(torch.tensor([[5]])).tolist()
    [[[0.0, 0.0]]]
    """

    def __init__(
        self, tables: Schema, dim: int = 16, *, pooling: str = "sum", dtype: str | torch.dtype = "float32"
    ) -> None:
        super().__init__(tables, dim, pooling=pooling, dtype=dtype, optimizer="sgd", scale=0.0)
        for name in ("steps", "rates"):  # of training
            self.register_buffer(name, getattr(self, name), persistent=False)
        self.weight.zero_()
        self.eval()

    @staticmethod
    def of(tables: FusedEmbeddings, schema: Schema) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What `from_config` builds frozen tables from, and their weights in host memory.

        `schema` names the columns of the tables, in their order.
        """
        names, sizes = schema.names, tables.sizes.values()
        if len(names) != len(sizes) or (tables.named and names != tables.names):
            raise ParameterError(
                f"the model reads embeddings of {names}, and the tables are {tables.names}; they must agree, in order"
            )
        sized = Schema([schema[name].with_(cardinality=size) for name, size in zip(names, sizes, strict=True)])
        dtype = str(tables.weight.dtype).removeprefix("torch.")
        arguments = {"dim": tables.dim, "pooling": tables.pooling, "dtype": dtype}
        description = {"class": "FrozenEmbeddings", "schema": sized.to_dict(), "arguments": arguments}
        return description, {"weight": tables.state_dict()["weight"].detach().cpu().contiguous()}

    def forward(self, ids: Any, dense: Tensor | None = None, sample_weights: Mapping[str, Any] | None = None) -> Tensor:
        """See `FusedEmbeddings.forward`."""
        with torch.no_grad():
            return super().forward(ids, dense, sample_weights)

    def look_up(self, ids: Ids, dense: Tensor | None, training: bool) -> tuple[Tensor, Any]:
        places, singles, lists = self._table_places(ids.bags), ids.singles, ids.lists
        rows, width = singles.shape
        singles = self._rows_of(singles, places[:width])
        if lists is not None and rows:
            values, offsets, weights = lists
            counts = offsets[::rows].diff()  # of each list column
            own = places[width:].repeat_interleave(counts, 0, output_size=len(values))
            lists = self._rows_of(values, own), offsets, weights
        return super().look_up(ids._replace(singles=singles, lists=lists), dense, training=False)

    def _rows_of(self, ids: Tensor, places: Tensor) -> Tensor:
        """Rows of the weight; its last one for ids that have none."""
        ids, nothing = ids.long(), len(self.weight) - 1
        return torch.where((ids < 0) | (ids >= places[:, 1]), nothing, ids + places[:, 0])

    def _keep_from_compiler(self) -> None:
        pass  # nothing here is compiled, and services should start fast

    def _rows_on_device(self) -> int:
        return super()._rows_on_device() + 1  # the last is zeros

    def _places(self, bags: tuple[int, ...]) -> Tensor:
        return self._joint_places(bags)

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"] = self.weight[:-1]

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *arguments: Any) -> None:
        rest, given = dict(state_dict), state_dict.get(prefix + "weight")
        if given is not None and given.shape == (len(self.weight) - 1, self.dim):
            self.weight[:-1].copy_(given)
            rest[prefix + "weight"] = self.weight
        super()._load_from_state_dict(rest, prefix, *arguments)
