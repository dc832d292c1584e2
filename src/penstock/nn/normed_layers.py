"""Linear layers with batch norm between them, whose norms are part of the products beside them.

A norm over the batch stands behind a ReLU: `y = (r - mean) · scale + beta`. The linear layer that reads `y` is linear
in `r` as well, so scale and shift go into its weights and bias, and `y` is never written. Going back, what the norm
needs are two sums for each column, of the gradient of `y` and of that times `r`. Both follow from the products that are
made anyway (the gradient of the next layer's weights and bias), so no pass over the batch is made for them either. What
is left of a norm is one pass for mean and variance.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from penstock.core.errors import ParameterError


class NormedLayers(nn.Sequential):
    """`nn.Sequential` of `Linear, ReLU, BatchNorm1d` any number of times and a last `Linear`; faster in training.

    Parameters, buffers, their names and the numbers are those of `nn.Sequential`, to within rounding. What it saves is
    memory traffic, so it pays on a GPU with large batches (`docs/gpu.md` has figures). The layers run one by one in
    evaluation, with norms that are frozen (`norm.eval()`), and where layers were replaced (`SyncBatchNorm`). Gradients
    of gradients are refused.

    Args:
        layers: in that order.

    Raises:
        ParameterError: they come in another order, or a norm has no parameters of its own.

    >>> layers = NormedLayers(nn.Linear(3, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 1))
    >>> layers(torch.randn(16, 3)).shape
    torch.Size([16, 1])
    """

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        kinds = [nn.Linear, nn.ReLU, nn.BatchNorm1d]
        fits = len(layers) % 3 == 1 and all(isinstance(layer, kinds[i % 3]) for i, layer in enumerate(layers))
        if not fits:
            found = ", ".join(type(layer).__name__ for layer in layers)
            raise ParameterError(
                f"NormedLayers takes Linear, ReLU and BatchNorm1d in turns and a Linear at the end, got: {found}; "
                f"use nn.Sequential for other orders"
            )
        if any(not layer.affine for layer in layers if isinstance(layer, nn.BatchNorm1d)):
            raise ParameterError("NormedLayers takes norms with weights (affine=True); use nn.Sequential for others")

    def forward(self, x: Tensor) -> Tensor:
        """The layers' output.

        Args:
            x: `(B, inputs)`.

        Returns:
            `(B, outputs)`.
        """
        layers: list[Any] = list(self)
        if not self.training or x.dim() != 2 or len(x) < 2 or not _plain(layers):
            out: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
            return out
        kind = x.device.type
        out = x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x
        norm = None
        for linear, follower in zip(layers[::3], [*layers[2::3], None], strict=True):
            out = _layer(out, norm, linear, relu=follower is not None)
            norm = follower
        return out


def _plain(layers: list[Any]) -> bool:
    """Whether layers are what they were made as: not frozen norms, nor ones that workers share, nor other weights."""
    norms = layers[2::3]
    kinds = [nn.Linear] * (len(norms) + 1) + [nn.BatchNorm1d] * len(norms)
    same = all(type(layer) is kind for layer, kind in zip([*layers[::3], *norms], kinds, strict=True))
    return same and all(norm.training for norm in norms)


def _layer(x: Tensor, norm: nn.BatchNorm1d | None, linear: Any, relu: bool) -> Tensor:
    """One linear layer over `x`, normed on the way if there is a norm."""
    out: Tensor
    if norm is None:
        out = NormedLinear.apply(x, None, None, None, None, linear.weight, linear.bias, relu)  # type: ignore[no-untyped-call]
        return out
    with torch.no_grad():
        mean, variance = _moments(x)
        _remember(norm, mean, variance, len(x))
        reciprocal = (variance + norm.eps).rsqrt()
    out = NormedLinear.apply(x, mean, reciprocal, norm.weight, norm.bias, linear.weight, linear.bias, relu)  # type: ignore[no-untyped-call]
    return out


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each column, from two sums: on a GPU twice as fast as Welford's way, which is as exact here.

    The sums are of differences from the first row, which is a few deviations from the mean, so little cancels.
    """
    first = _wide(x[0])
    apart = _wide(x) - first
    beyond = apart.mean(0)
    return first + beyond, (apart.square().mean(0) - beyond.square()).clamp_min(0)


def _remember(norm: nn.BatchNorm1d, mean: Tensor, variance: Tensor, rows: int) -> None:
    """What evaluation will use, as `BatchNorm1d` keeps it."""
    if norm.running_mean is None or norm.running_var is None:
        return
    share: Any = norm.momentum
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
        if share is None:
            share = 1.0 / norm.num_batches_tracked
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), share)
    norm.running_var.lerp_((variance * (rows / (rows - 1))).to(norm.running_var.dtype), share)


def _wide(x: Tensor) -> Tensor:
    """Sums are made in float32 at least."""
    return x if x.dtype == torch.float64 else x.float()


class NormedLinear(torch.autograd.Function):
    """`relu(norm(x) @ weight.T + bias)`, the norm being over the batch with the mean and 1/deviation that are given.

    They are taken as functions of `x`, as they are in a norm over the batch.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        mean: Tensor | None,
        reciprocal: Tensor | None,
        gamma: Tensor | None,
        beta: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        relu: bool,
    ) -> Tensor:
        scaled, shift = weight, bias
        if mean is not None and reciprocal is not None and gamma is not None and beta is not None:
            scaled = (weight * (gamma * reciprocal)).to(x.dtype)
            # The mean goes through the weights as they are multiplied, rounded: what they are off by must cancel.
            shift = weight @ beta - scaled.to(weight.dtype) @ mean
            shift = shift if bias is None else shift + bias
        out = _product(x, scaled.to(x.dtype), None if shift is None else shift.to(x.dtype), relu)
        ctx.save_for_backward(x, mean, reciprocal, gamma, beta, weight, scaled, out if relu else None)
        ctx.biased = bias is not None
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, mean, reciprocal, gamma, beta, weight, scaled, out = ctx.saved_tensors
        gradient = gradient.to(x.dtype)
        if out is not None:
            gradient = torch.where(out > 0, gradient, 0)
        of_shift = _wide(gradient).sum(0)
        of_scaled = _wide_product(gradient.t(), x)
        # One output makes no product: a multiplication, which the compiler joins to what follows.
        back = gradient * scaled.to(x.dtype) if gradient.shape[1] == 1 else gradient @ scaled.to(x.dtype)
        of_bias = of_shift if ctx.biased else None
        if mean is None:
            return back, None, None, None, None, of_scaled, of_bias, None
        scale = gamma * reciprocal
        of_beta = of_shift @ weight  # the sum of y's gradient
        of_gamma = reciprocal * ((weight * of_scaled).sum(0) - mean * of_beta)
        of_weight = (of_scaled - of_shift[:, None] * mean) * scale + of_shift[:, None] * beta
        slope = -scale * reciprocal * of_gamma / len(x)
        level = -scale * of_beta / len(x) - slope * mean
        of_x = (back + slope * x + level).to(x.dtype)
        return of_x, None, None, of_gamma, of_beta, of_weight, of_bias, None


def _wide_product(a: Tensor, b: Tensor) -> Tensor:
    """A product of narrow numbers, wide."""
    if a.is_cuda and a.dtype in (torch.bfloat16, torch.float16):
        return torch.mm(a, b, out_dtype=torch.float32)
    return _wide(a @ b)


@torch.library.custom_op("penstock::linear_relu", mutates_args=())
def _linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The product, bias and ReLU in one kernel; torch's compiler would make the ReLU a pass of its own."""
    return torch._addmm_activation(bias, x, weight.t())


@_linear_relu.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty((x.shape[0], weight.shape[0]))


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    if relu and bias is not None and x.is_cuda:
        out: Tensor = _linear_relu(x, weight, bias)
        return out
    out = nn.functional.linear(x, weight, bias)
    return out.relu() if relu else out
