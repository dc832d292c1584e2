"""Keys of a cache's rows, on either side: a number each, or the table's number and the id beside one another."""

from __future__ import annotations

import torch
from torch import Tensor


def leading(keys: Tensor) -> Tensor:
    """What is below 0 where there is no key.

    >>> leading(torch.tensor([[0, -5], [-1, -1]])).tolist()
    [0, -1]
    """
    return keys if keys.dim() == 1 else keys[:, 0]


def in_order(keys: Tensor) -> Tensor:
    """The places of keys in ascending order: first by the table, then by the id.

    >>> in_order(torch.tensor([[1, 3], [0, 9], [1, -2]])).tolist()
    [1, 2, 0]
    """
    if keys.dim() == 1:
        return torch.argsort(keys)
    by_id = torch.argsort(keys[:, 1])
    return by_id[torch.argsort(keys[by_id, 0], stable=True)]
