"""Dot products of all pairs of a row's vectors: one kernel on CPUs, a product of small matrices elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.core.runtime.kernel_threads import in_stretches
from penstock.nn.products import are_plain

_ROWS_PER_THREAD = 512


def pair_products(first: Tensor | None, others: Tensor, pairs: Tensor, beside: bool = False) -> Tensor:
    """The product of each vector of a row with those before it, vector after vector.

    Args:
        first: a vector a row, `(B, dim)`, that comes before the others; or None.
        others: `(B, n, dim)`.
        pairs: row and column of each pair as one index into the flat matrix of all products.
        beside: whether `first` itself stands before the products.

    Returns:
        `(B, pairs)`, or `(B, dim + pairs)`.

    >>> pairs = torch.tensor([3, 6, 7])
    >>> pair_products(torch.ones(1, 2), torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), pairs, beside=True)
    tensor([[ 1.,  1.,  3.,  7., 11.]])
    """
    given = [others] if first is None else [first, others]
    if not are_plain(*given):
        return _by_torch(first, others, pairs, beside)
    if not (torch.is_grad_enabled() and any(part.requires_grad for part in given)):
        return _multiplied(first, others, pairs, beside)
    found: Tensor = _Pairs.apply(first, others, pairs, beside)  # type: ignore[no-untyped-call]
    return found


def _by_torch(first: Tensor | None, others: Tensor, pairs: Tensor, beside: bool) -> Tensor:
    stacked = others if first is None else torch.cat([first.unsqueeze(1), others.to(first.dtype)], 1)
    products = torch.bmm(stacked, stacked.transpose(1, 2)).flatten(1).index_select(1, pairs)
    return torch.cat([first, products], 1) if beside and first is not None else products


def _multiplied(first: Tensor | None, others: Tensor, pairs: Tensor, beside: bool) -> Tensor:
    from penstock.kernels.cpu_pairs import multiply

    out = torch.empty(len(others), len(pairs) + (others.shape[2] if beside else 0))
    arrays, target = _arrays(first, others), out.numpy()
    _shared(lambda begin, end: multiply(*arrays, beside, target, begin, end), len(out))
    return out


class _Pairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, first: Tensor | None, others: Tensor, pairs: Tensor, beside: bool) -> Tensor:
        ctx.save_for_backward(first, others, pairs)
        ctx.beside = beside
        return _multiplied(first, others, pairs, beside)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        (first, others, pairs), (gradient,) = ctx.saved_tensors, gradients
        if torch.is_grad_enabled():  # gradients of gradients are PyTorch's
            wanted = [part for part, is_one in zip((first, others), ctx.needs_input_grad, strict=False) if is_one]
            made = _by_torch(first, others, pairs, ctx.beside)
            found = iter(torch.autograd.grad(made, wanted, gradient, create_graph=True))
            to_first, to_others = (next(found) if is_one else None for is_one in ctx.needs_input_grad[:2])
            return to_first, to_others, None, None
        from penstock.kernels.cpu_pairs import gradients as spread

        arrays, seen = _arrays(first, others), gradient.contiguous().numpy()
        targets = np.empty_like(arrays[0]), np.empty_like(arrays[1])
        _shared(lambda begin, end: spread(*arrays, ctx.beside, seen, *targets, begin, end), len(others))
        to_first, to_others = map(torch.from_numpy, targets)
        return None if first is None else to_first, to_others, None, None


def _arrays(first: Tensor | None, others: Tensor) -> tuple[np.ndarray, np.ndarray]:
    found = torch.empty(0, others.shape[2]) if first is None else first
    return found.detach().contiguous().numpy(), others.detach().contiguous().numpy()


def _shared(work: Callable[[int, int], Any], count: int) -> None:
    in_stretches(work, count, torch.get_num_threads(), _ROWS_PER_THREAD)
