"""Several dense workers: the few things that differ from one."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed as dist
from torch import nn


def active() -> bool:
    """Whether this process is one of several workers."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def world_size() -> int:
    return dist.get_world_size() if active() else 1


def rank() -> int:
    return dist.get_rank() if active() else 0


def barrier() -> None:
    """Wait for all workers."""
    if active():
        dist.barrier()


def wrapped(module: nn.Module, device: torch.device) -> nn.Module:
    """The module with its gradients averaged over the workers; alone, or where there is nothing to train, as it is."""
    if not active() or isinstance(module, nn.parallel.DistributedDataParallel):
        return module
    if not any(parameter.requires_grad for parameter in module.parameters()):
        return module
    return nn.parallel.DistributedDataParallel(module, device_ids=[device] if device.type == "cuda" else None)


def all_reduce_and(answer: bool, device: torch.device) -> bool:
    """Whether the answer is yes on every worker."""
    if not active():
        return answer
    flag = torch.tensor([int(answer)], device=device)
    dist.all_reduce(flag, dist.ReduceOp.MIN)
    return bool(flag.item())


def all_gather(value: Any) -> list[Any]:
    """Everybody's value, by rank."""
    if not active():
        return [value]
    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values
