"""Which tensors kernels of ours may read, in the place of operations of PyTorch's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from penstock.kernels.gpu_triton import has_triton


def are_plain(*tensors: Tensor) -> bool:
    """Whether these are float32 in this machine's memory, and nothing casts them or looks at what is done with them.

    What traces or transforms a model must see operations that it knows.
    """
    if any(given.device.type != "cpu" or given.dtype != torch.float32 for given in tensors):
        return False
    return not is_watched() and not torch.is_autocast_enabled("cpu")


def are_plain_on_gpu(*tensors: Tensor) -> bool:
    """The same for tensors on a GPU that kernels of ours can read."""
    device = tensors[0].device
    if device.type != "cuda" or any(given.device != device or given.dtype != torch.float32 for given in tensors):
        return False
    return not is_watched() and not torch.is_autocast_enabled("cuda") and has_triton()


def is_watched() -> bool:
    """Whether something compiles, traces or transforms what is done."""
    tracing: Any = torch._C._get_tracing_state()
    return bool(torch.compiler.is_compiling() or tracing or torch._C._are_functorch_transforms_active())
