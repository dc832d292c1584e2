"""The loss of a click model: the cross-entropy of binary labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from penstock.nn.plain import are_plain_on_gpu


def log_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of logits; on a GPU, with its gradient, one kernel.

    Args:
        logits: of any shape.
        labels: of the same, from 0 to 1.

    Returns:
        A number.

    >>> round(log_loss(torch.zeros(2), torch.tensor([0.0, 1.0])).item(), 4)
    0.6931
    """
    is_one_a_row = logits.dim() == 1 and logits.shape == labels.shape and len(logits) > 0
    if not is_one_a_row or not are_plain_on_gpu(logits, labels) or not logits.requires_grad or labels.requires_grad:
        return functional.binary_cross_entropy_with_logits(logits, labels)
    found: Tensor = _LogLoss.apply(logits, labels)  # type: ignore[no-untyped-call]
    return found


class _LogLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        from penstock.kernels import gpu_dense

        loss, gradient = gpu_dense.log_loss(logits.contiguous(), labels.contiguous())
        ctx.save_for_backward(logits, labels, gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        logits, labels, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # gradients of gradients are PyTorch's
            gradient = (logits.sigmoid() - labels) / len(logits)
        return gradient * gradients[0], None
