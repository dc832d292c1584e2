"""Optimizers of torch without torch's compiler, and in one kernel where it has one.

Every method of a `torch.optim.Optimizer` imports the compiler when it is first called, to tell it to keep out. That is
one second and a half of a processor's time here and up to five on other machines, in jobs that compile nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import cache
from typing import Any

import torch

_METHODS = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


@cache
def without_compiler(optimizer: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """The same optimizer, whose methods are called as they are beneath the hooks for torch's compiler.

    Args:
        optimizer: a class of `torch.optim`.

    Returns:
        A subclass of the same name. It does not step under `torch.compile`, nor differentiably.

    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> adam = without_compiler(torch.optim.Adam)([weight], lr=0.5)
    >>> weight.grad = torch.ones(1)
    >>> _ = adam.step()
    >>> type(adam).__name__, round(weight.item(), 4)
    ('Adam', 0.5)
    """
    own: dict[str, Any] = {name: inspect.unwrap(getattr(optimizer, name)) for name in _METHODS}
    own["step"] = torch.no_grad()(inspect.unwrap(optimizer.step))
    return type(optimizer.__name__, (optimizer,), {**own, "__doc__": optimizer.__doc__})


def may_fuse(optimizer: type[torch.optim.Optimizer], parameters: Iterable[torch.Tensor]) -> bool:
    """Whether an optimizer can step all of these in one kernel of the processor.

    Steps one operation after another take three times as long for the layers of a model, and far longer where threads
    have to wait for their turn.

    Args:
        optimizer: a class of `torch.optim`.
        parameters: of the model.

    Returns:
        False also where it has no such kernel.

    >>> may_fuse(torch.optim.Adam, [torch.ones(2)]), may_fuse(torch.optim.RMSprop, [torch.ones(2)])
    (True, False)
    """
    if "fused" not in inspect.signature(optimizer).parameters:
        return False
    return all(p.device.type == "cpu" and p.is_floating_point() for p in parameters)
