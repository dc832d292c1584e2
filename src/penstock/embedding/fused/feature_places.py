"""Where the features of a batch live in the weight, as the kernels read it (`kernels.fused_contract`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import gcd
from typing import Any

import torch
from torch import Tensor


class FeaturePlaces:
    """Tensors of `features` for tables of these sizes; made once for each device and each set of lists.

    Args:
        sizes: rows of each feature's table.
        numbers: each table's number among all of a module.
        columns: where its embeddings begin in the module's output.
        starts: where its rows begin; by default tables lie one above the other.

    >>> places = FeaturePlaces([10, 5], numbers=[0, 2], columns=[0, 20])
    >>> places.tables((0,), torch.device("cpu"))  # the first column has lists, which come last
    tensor([[10,  5,  2, 20],
            [ 0, 10,  0,  0]])
    """

    def __init__(
        self,
        sizes: Sequence[int],
        numbers: Sequence[int],
        columns: Sequence[int],
        starts: Sequence[int] | None = None,
    ) -> None:
        starts = [0, *accumulate(sizes)][: len(sizes)] if starts is None else starts
        self._fields = [list(field) for field in (starts, sizes, numbers, columns)]
        # What all first columns are multiples of; 16 elements are more than one access takes.
        self.unit = gcd(16, *columns)
        self._made: dict[Any, Tensor] = {}

    def tables(self, bags: tuple[int, ...], device: torch.device) -> Tensor:
        """For ids of the tables, where the features `bags` are lists."""
        key = bags, device
        if key not in self._made:
            every = torch.tensor(self._fields, dtype=torch.int64).T
            order = [i for i in range(len(every)) if i not in bags] + list(bags)
            self._made[key] = every[order].contiguous().to(device)
        return self._made[key]

    def joint(self, bags: tuple[int, ...], device: torch.device, num_rows: int) -> Tensor:
        """For ids that are rows of the weight already: every feature reads it as one table of `num_rows`."""
        key = bags, device, num_rows
        if key not in self._made:
            places = self.tables(bags, device).clone()
            places[:, 0], places[:, 1] = 0, num_rows
            self._made[key] = places
        return self._made[key]
