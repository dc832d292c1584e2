"""Fused tables as they predict: weights alone, and zeros for every id that has no row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from penstock.core.errors import ParameterError
from penstock.core.schema import Schema
from penstock.embedding.dims import Dims
from penstock.embedding.fused.ids import Ids
from penstock.embedding.fused.row_home import RowHome
from penstock.embedding.fused.table_group import TableGroup
from penstock.embedding.fused.table_lookup import TableLookup
from penstock.embedding.fused.table_module import TableModule


class RowsAndZeros(RowHome):
    """Every row on the device and one more, of zeros, to which ids outside their table go."""

    joint = True

    def rows_on_device(self, total: int) -> int:
        return total + 1

    def locate(self, tables: TableGroup, ids: Ids, given: Any, training: bool) -> tuple[Ids, Any]:
        places, singles, lists = tables.table_places(ids.bags), ids.singles, ids.lists
        rows, width = singles.shape
        nothing = len(tables.weight) - 1
        singles = _rows_of(singles, places[:width], nothing)
        if lists is not None and rows:
            values, offsets, weights = lists
            ends = offsets.new_full((1,), len(values))
            counts = torch.cat([offsets[:: rows + 1], ends]).diff()  # of each list column
            own = places[width:].repeat_interleave(counts, 0, output_size=len(values))
            lists = _rows_of(values, own, nothing), offsets, weights
        return ids._replace(singles=singles, lists=lists), None


def _rows_of(ids: Tensor, places: Tensor, nothing: int) -> Tensor:
    """Rows of the weight; `nothing` for ids that have none."""
    ids = ids.long()
    return torch.where((ids < 0) | (ids >= places[:, 1]), nothing, ids + places[:, 0])


class FrozenEmbeddings(TableModule):
    """`FusedEmbeddings` without optimizer state, which nothing trains: what a saved model predicts with.

    An id outside its table is one that training has not seen: its embedding is zeros, as it is in a store. The other
    numbers are those of the tables that were trained, bit for bit on the same kind of device.

    Args:
        tables: a schema whose categorical columns have a cardinality.
        dim, pooling, dtype: as `FusedEmbeddings` has them.
        share: likewise; models that were saved before there was a choice share nothing.

    >>> from penstock import ColumnSchema
    >>> from penstock.embedding import FusedEmbeddings
    >>> trained = FusedEmbeddings(Schema([ColumnSchema("user", "int64", role="categorical", cardinality=5)]), dim=2)
    >>> description, weights = trained.for_serving(trained.schema)
    >>> frozen = FrozenEmbeddings(trained.schema, **description["arguments"])
    >>> _ = frozen.load_state_dict(weights)
    >>> torch.equal(frozen(torch.tensor([[4]])), trained(torch.tensor([[4]])))
    True
    >>> frozen(torch.tensor([[5]])).tolist()
    [[[0.0, 0.0]]]
    """

    updates_in_backward = False

    def __init__(
        self,
        tables: Schema,
        dim: Dims = 16,
        *,
        pooling: str = "sum",
        dtype: str | torch.dtype = "float32",
        share: bool = False,
    ) -> None:
        super().__init__(
            tables, dim, lambda _: RowsAndZeros(), pooling=pooling, dtype=dtype, optimizer="sgd", scale=0.0, share=share
        )
        for name in ("steps", "rates"):  # of training
            self.register_buffer(name, getattr(self, name), persistent=False)
        for group in self.groups:
            group.weight.zero_()
        self.eval()

    @property
    def known_ids(self) -> dict[str, int]:
        """By table, the ids from 0 up that have a row; others are zeros."""
        return dict(self.sizes)

    @property
    def capturable(self) -> bool:
        """Nothing here is trained, in a graph or out of one."""
        return False

    def forward(
        self, ids: Any, continuous: Tensor | None = None, sample_weights: Mapping[str, Any] | None = None
    ) -> Tensor:
        """See `FusedEmbeddings.forward`. Nothing here is compiled: services should start fast."""
        with torch.no_grad():
            return self.embedded(ids, continuous, sample_weights)

    def lookup(self, batch: Mapping[str, Any], train: bool = False) -> TableLookup:
        """Embeddings by column.

        Raises:
            ParameterError: training was asked for.
        """
        if train:
            raise ParameterError("FrozenEmbeddings are not trained; look up with train=False")
        return super().lookup(batch, train=False)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for group in self.groups:
            destination[prefix + group.key("weight")] = group.weight[:-1]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        rest = dict(state_dict)
        for group in self.groups:
            name = prefix + group.key("weight")
            given = state_dict.get(name)
            if given is not None and given.shape == (len(group.weight) - 1, group.dim):
                group.weight[:-1].copy_(given)
                rest[name] = group.weight
        super()._load_from_state_dict(rest, prefix, *arguments)
