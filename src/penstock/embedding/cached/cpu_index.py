"""The index of a row cache behind the calls of `penstock.kernels.gpu_cache`, for CPU tensors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from penstock.kernels import cpu_cache

_NOTHING = np.empty(0, np.int64)


def read(
    features: Tensor,
    ids: Tensor,
    bags: tuple[Tensor, Tensor] | None,
    total: int,
    out: Tensor,
    slots: tuple[Tensor, int, Tensor, Tensor] | None = None,
) -> None:
    """See `gpu_cache.read`."""
    values, offsets = (bags[0].numpy(), bags[1].numpy()) if bags is not None else (_NOTHING, _NOTHING)
    keys, codes = cpu_cache.find_keys(features.numpy(), ids.numpy(), values, offsets, total)
    if slots is None:
        out.copy_(torch.from_numpy(keys))
        return
    slot_of, capacity, errors, absent = slots
    found = cpu_cache.find_slots(keys, slot_of.numpy(), capacity)
    out.copy_(torch.from_numpy(found))
    errors.clamp_(min=int(codes[keys == total].max(initial=0)))
    absent.clamp_(min=int(codes[(keys < total) & (found == capacity)].max(initial=0)))


def claim(keys: Tensor, slot_of: Tensor, used: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """See `gpu_cache.claim`."""
    missing, was = cpu_cache.claim(keys.numpy(), slot_of.numpy(), used.numpy(), number)
    return torch.from_numpy(missing), torch.from_numpy(was)
