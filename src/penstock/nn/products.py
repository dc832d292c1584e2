"""Matrix products of dense layers on processors whose width PyTorch leaves unused.

PyTorch multiplies float32 on CPUs with MKL, which takes AVX2 on processors of other makers than Intel, although they
have AVX-512. oneDNN, which PyTorch brings along, takes what is there: 120 in place of 53 billion products a second on
one core of an AMD EPYC. Small products stay with MKL, which begins sooner.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from penstock.nn.plain import are_plain

_ROWS, _PRODUCTS = 256, 1 << 20  # of a layer that is worth it; a service's batches are smaller
_PROCESSORS = Path("/proc/cpuinfo")


def product(x: Tensor, weight: Tensor, bias: Tensor | None, by_relu: bool = False) -> Tensor:
    """`x Wᵀ + b` by oneDNN, or `max(x Wᵀ + b, 0)`.

    Args:
        x: `(B, n)`, for which it is worth it.
        weight: `(m, n)`.
        bias: `(m,)` or None.
        by_relu: whether a ReLU is behind it.

    Returns:
        `(B, m)`.
    """
    if not torch.is_grad_enabled():
        return _times(x, weight, bias, "relu" if by_relu else "none")
    found: Tensor = _Product.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return functional.relu(found) if by_relu else found


class _Product(torch.autograd.Function):
    """`x Wᵀ + b`, forward and backward by oneDNN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _times(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (out,), (x, weight) = gradients, ctx.saved_tensors
        times = _by_torch if torch.is_grad_enabled() else _times  # gradients of gradients are PyTorch's
        to_x, to_weight, to_bias = ctx.needs_input_grad
        return (
            times(out, weight.t()) if to_x else None,
            times(out.t(), x.t()) if to_weight else None,
            out.sum(0) if to_bias else None,
        )


def _times(left: Tensor, right: Tensor, plus: Tensor | None = None, behind: str = "none") -> Tensor:
    """`left rightᵀ`, a row added to each of its rows, and what is done to each value behind that."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, plus, behind, [], "")
    return product


def _by_torch(left: Tensor, right: Tensor) -> Tensor:
    return left @ right.t()


def is_worth_it(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN multiplies these, and sooner."""
    if not are_plain(x, weight) or not is_quicker():
        return False
    if x.dim() != 2 or len(x) < _ROWS or len(x) * weight.numel() < _PRODUCTS or len(weight) == 1:
        return False
    return bool(torch.backends.mkldnn.enabled)


@cache
def is_quicker() -> bool:
    """Whether oneDNN multiplies faster than what PyTorch takes by itself."""
    backends = torch.backends
    if backends.cpu.get_cpu_capability() != "AVX512" or not backends.mkl.is_available() or _is_by_intel():
        return False
    return bool(backends.mkldnn.is_available()) and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _is_by_intel() -> bool:
    """Whether MKL uses all of the processor; where nobody tells, it is taken to."""
    try:
        return "GenuineIntel" in _PROCESSORS.read_text()
    except OSError:
        return True
