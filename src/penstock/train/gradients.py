"""Gradients after a backward pass: are they finite, and which belong to which embedding column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

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


class Outcome:
    """Whether a step's gradients were finite: true or false, and which embedding columns were dropped.

    On the CPU the store finds out while it updates, beside the next dense step; asking before that waits for it.

    >>> bool(Outcome(dense_finite=True)), bool(Outcome(dense_finite=True, dropped=["user"]))
    (True, False)
    """

    def __init__(self, dense_finite: bool, dropped: Iterable[str] = (), wait: Callable[[], None] | None = None) -> None:
        self.dense_finite, self._wait = dense_finite, wait
        self._dropped = list(dropped)

    @property
    def dropped(self) -> list[str]:
        """The columns whose gradients were not finite."""
        if self._wait is not None:
            self._wait()
            self._wait = None
        return self._dropped

    def __bool__(self) -> bool:
        return self.dense_finite and not self.dropped

    def __repr__(self) -> str:
        return f"Outcome({bool(self)}, dense_finite={self.dense_finite}, dropped={self.dropped})"


def dropped_counts(store: Any) -> dict[str, int]:
    """How many gradients a store has dropped so far, by slot; remote shards are not asked where it can be avoided."""
    counters = getattr(store, "_counters", None)
    return dict((counters.to_dict() if counters is not None else store.stats()).get("dropped_gradients", {}))


def embedding_gradients(leaves: Mapping[str, Tensor], dims: Mapping[str, int]) -> dict[str, Tensor]:
    """`{slot: gradient}`; slots that the loss does not reach are left out. The leaf "" holds `dims` side by side.

    >>> leaf = torch.zeros(2, 3, requires_grad=True)
    >>> leaf.sum().backward()
    >>> {name: gradient.shape for name, gradient in embedding_gradients({"": leaf}, {"user": 2, "item": 1}).items()}
    {'user': torch.Size([2, 2]), 'item': torch.Size([2, 1])}
    """
    found: dict[str, Tensor] = {}
    for name, leaf in leaves.items():
        if leaf.grad is None:
            continue
        if name:
            found[name] = leaf.grad
        else:
            found.update(zip(dims, leaf.grad.flatten(1).split(list(dims.values()), 1), strict=True))
    return found


def broken(leaves: Mapping[str, Tensor], gradients: Mapping[str, Tensor]) -> list[str]:
    """The slots whose gradient is not finite; one look at each leaf where all is well."""
    if all_finite(leaf.grad for leaf in leaves.values() if leaf.grad is not None):
        return []
    return [name for name, gradient in gradients.items() if not all_finite([gradient])]
