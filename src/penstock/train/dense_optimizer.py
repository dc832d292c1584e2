"""The optimizer of a dense model for which none was given."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from penstock.nn.torch_optimizers import may_fuse, without_compiler


def default_optimizer(modules: list[nn.Module], on_gpu: bool = False) -> torch.optim.Optimizer | None:
    """The optimizer where none was given: Adam with a rate of 0.001.

    Args:
        modules: whose parameters are to be trained.
        on_gpu: whether it has to step without the host.

    Returns:
        The optimizer; None where there is no parameter to train.
    """
    parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
    if not parameters:
        return None
    adam: Any = without_compiler(torch.optim.Adam)
    fused = on_gpu or may_fuse(adam, parameters)
    made: torch.optim.Optimizer = adam(parameters, lr=1e-3, fused=fused or None, capturable=on_gpu)
    return made
