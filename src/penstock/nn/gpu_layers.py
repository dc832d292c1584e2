"""Dense layers on a GPU: a layer and its ReLU are one kernel forward, and few beside the two products backward.

At a few thousand rows PyTorch's sum over rows, for the bias, takes longer than a product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from penstock.nn.plain import are_plain_on_gpu

_ALIGNED, _WIDE = 4, 64
_WIDEST_HEAD = 4096


def is_worth_it(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether a layer's output is to be had from `layer`: for training, on a GPU."""
    if bias is None or not are_plain_on_gpu(x, weight, bias) or not torch.is_grad_enabled():
        return False
    return x.dim() == 2 and len(x) > 0


def layer(x: Tensor, weight: Tensor, bias: Tensor, by_relu: bool) -> Tensor:
    """`x Wᵀ + b`, or a ReLU of it.

    Args:
        x: `(B, n)`.
        weight: `(m, n)`.
        bias: `(m,)`.
        by_relu: whether there is a ReLU.

    Returns:
        `(B, m)`.
    """
    if len(weight) == 1 and not by_relu:
        return weighed(x, weight.reshape(-1), bias.reshape(())).unsqueeze(1)
    found: Tensor = _Layer.apply(x, weight, bias, by_relu)  # type: ignore[no-untyped-call]
    return found


def weighed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`x · w + b` of each row.

    Args:
        x: `(B, n)`.
        weight: `(n,)`.
        bias: one number, without dimensions.

    Returns:
        `(B,)`.

    >>> weighed(torch.ones(2, 3), torch.ones(3), torch.tensor(1.0))
    tensor([4., 4.])
    """
    if 0 < x.shape[1] <= _WIDEST_HEAD and len(x) and are_plain_on_gpu(x, weight, bias) and torch.is_grad_enabled():
        found: Tensor = _Head.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return found
    return x @ weight + bias


class _Layer(torch.autograd.Function):
    """`x Wᵀ + b` on a GPU, with or without a ReLU behind it.

    Long rows whose bytes are no multiple of 16 are multiplied at a third of the speed: they get columns of noughts.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, by_relu: bool) -> Tensor:
        lacking = -x.shape[1] % _ALIGNED if x.shape[1] >= _WIDE else 0
        seen, factors = (functional.pad(part, (0, lacking)) if lacking else part for part in (x, weight))
        out = (torch._addmm_activation if by_relu else torch.addmm)(bias, seen, factors.t())
        ctx.save_for_backward(x if lacking else None, weight if lacking else None, seen, factors, out)
        ctx.by_relu = by_relu
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        from penstock.kernels.gpu_dense import relu_gradients

        (gradient,), (x, weight, seen, factors, out) = gradients, ctx.saved_tensors
        out = out if ctx.by_relu else None
        if torch.is_grad_enabled():  # gradients of gradients are PyTorch's
            seen, factors = seen if x is None else x, factors if weight is None else weight
            masked = gradient if out is None else gradient * (out > 0)
            of_bias = masked.sum(0)
        else:
            masked, of_bias = relu_gradients(gradient.contiguous(), out)
        to_x, to_weight, to_bias, _ = ctx.needs_input_grad
        width = seen.shape[1] if x is None else x.shape[1]
        return (
            (masked @ factors)[:, :width] if to_x else None,
            (masked.t() @ seen)[:, :width].contiguous() if to_weight else None,
            of_bias if to_bias else None,
            None,
        )


class _Head(torch.autograd.Function):
    """A layer with one output, on a GPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        from penstock.kernels.gpu_dense import head

        x = x.contiguous()
        ctx.save_for_backward(x, weight)
        return head(x, weight.contiguous(), bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        from penstock.kernels.gpu_dense import head_gradients

        (gradient,), (x, weight) = gradients, ctx.saved_tensors
        if torch.is_grad_enabled():  # gradients of gradients are PyTorch's
            found = gradient[:, None] * weight.reshape(1, -1), gradient @ x, gradient.sum()
        else:
            to_x, rest = head_gradients(x, weight.contiguous(), gradient.contiguous())
            found = to_x, rest[:-1], rest[-1]
        to_x, to_weight, to_bias = ctx.needs_input_grad
        return (
            found[0] if to_x else None,
            found[1].reshape(weight.shape) if to_weight else None,
            found[2].reshape(()) if to_bias else None,
        )
