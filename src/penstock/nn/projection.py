"""Embeddings of several dims brought to one, for models that multiply them with one another."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Projection(nn.Module):
    """Columns side by side, of these dims, as `(B, columns, dim)`: those of a dim first, then those of the next.

    Columns of another dim than `dim` are multiplied with a learned matrix, one for all columns of a dim. There is
    nothing added to the product: an id that is not known, whose embedding is zeros, stays zeros.

    Args:
        dims: of the columns.
        dim: what they are brought to.

    >>> Projection([4, 8, 4], dim=8)(torch.zeros(2, 16)).shape
    torch.Size([2, 3, 8])
    """

    def __init__(self, dims: Sequence[int], dim: int) -> None:
        super().__init__()
        self.dims = list(dims)
        self.matrices = nn.ModuleDict()
        for own in dict.fromkeys(self.dims):
            if own != dim:
                matrix = nn.Linear(own, dim, bias=False)
                nn.init.normal_(matrix.weight, std=own**-0.5)  # numbers stay as large as they were
                self.matrices[str(own)] = matrix

    def forward(self, side_by_side: Tensor) -> Tensor:
        """The embeddings of a batch.

        Args:
            side_by_side: `(B, sum of dims)`.

        Returns:
            `(B, columns, dim)`.
        """
        parts, found = side_by_side.split(self.dims, 1), []
        for dim in dict.fromkeys(self.dims):
            stacked = torch.stack([part for part, own in zip(parts, self.dims, strict=True) if own == dim], 1)
            found.append(self.matrices[str(dim)](stacked) if str(dim) in self.matrices else stacked)
        kind = found[0].dtype if len({part.dtype for part in found}) == 1 else torch.float32
        return torch.cat([part.to(kind) for part in found], 1)
