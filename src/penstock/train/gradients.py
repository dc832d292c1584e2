"""Gradients after a backward pass: are they finite, and which belong to which embedding column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every number is finite; one pass over the memory and one answer from the device.

    >>> all_finite([torch.ones(3), torch.tensor([1.0, float("nan")])])
    False
    """
    ends = []
    for tensor in tensors:
        values = tensor.coalesce().values() if tensor.is_sparse else tensor
        if values.numel():
            ends += [end.float() for end in torch.aminmax(values)]  # NaN wins over any number in both
    return not ends or bool(torch.isfinite(torch.stack(ends)).all())


def dense_finite(optimizer: torch.optim.Optimizer) -> bool:
    """Whether all gradients that an optimizer would apply are finite."""
    return all_finite(p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None)


def embedding_gradients(leaves: Mapping[str, Tensor], dims: Mapping[str, int]) -> tuple[dict[str, Tensor], list[str]]:
    """`({slot: gradient}, slots whose gradient is not finite)`; slots that the loss does not reach are left out.

    The leaf named "" holds the slots of `dims` side by side.

    >>> leaf = torch.zeros(2, 3, requires_grad=True)
    >>> (leaf * torch.tensor([1.0, 1.0, float("inf")])).sum().backward()
    >>> embedding_gradients({"": leaf}, {"user": 2, "item": 1})[1]
    ['item']
    """
    found: dict[str, Tensor] = {}
    whole: list[Tensor] = []
    for name, leaf in leaves.items():
        if leaf.grad is None:
            continue
        whole.append(leaf.grad)
        if name:
            found[name] = leaf.grad
        else:
            found.update(zip(dims, leaf.grad.flatten(1).split(list(dims.values()), 1), strict=True))
    if all_finite(whole):
        return found, []
    return found, [name for name, gradient in found.items() if not all_finite([gradient])]
