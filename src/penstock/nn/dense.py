"""Dense layers with PyTorch's weights, quicker than PyTorch's where there is a way."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from penstock.nn import gpu_layers, products


class Linear(nn.Linear):
    """`torch.nn.Linear`, with the same weights, through the quicker product where there is one.

    >>> import torch
    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <...>
    >>> layer, x = Linear(64, 64), torch.randn(512, 64)
    >>> torch.allclose(layer(x), nn.functional.linear(x, layer.weight, layer.bias), atol=1e-5)
    True
    """

    def forward(self, input: Tensor) -> Tensor:  # as the class it stands for calls it
        """The layer's output.

        Args:
            input: `(..., in_features)`.

        Returns:
            `(..., out_features)`.
        """
        return self.followed(input, by_relu=False)

    def followed(self, input: Tensor, by_relu: bool) -> Tensor:
        """The layer's output, or that of a ReLU behind it.

        Args:
            input: `(..., in_features)`.
            by_relu: whether there is one.

        Returns:
            `(..., out_features)`.
        """
        if gpu_layers.is_worth_it(input, self.weight, self.bias):
            return gpu_layers.layer(input, self.weight, self.bias, by_relu)
        if products.is_worth_it(input, self.weight):
            return products.product(input, self.weight, self.bias, by_relu)
        out = functional.linear(input, self.weight, self.bias)
        return functional.relu(out) if by_relu else out


class Perceptron(nn.Sequential):
    """Modules one after another, of which a `Linear` and a ReLU behind it are one.

    >>> import torch
    >>> Perceptron(Linear(2, 3), nn.ReLU(), Linear(3, 1))(torch.zeros(4, 2)).shape
    torch.Size([4, 1])
    """

    def forward(self, input: Tensor) -> Tensor:  # as the class it stands for calls it
        """The output of the last one.

        Args:
            input: of the first.

        Returns:
            The output.
        """
        modules, i = list(self), 0
        while i < len(modules):
            module, behind = modules[i], modules[i + 1] if i + 1 < len(modules) else None
            if type(module) is Linear and type(behind) is nn.ReLU and not (_has_hooks(module) or _has_hooks(behind)):
                input, i = module.followed(input, by_relu=True), i + 2
            else:
                input, i = module(input), i + 1
        return input


def _has_hooks(module: nn.Module) -> bool:
    """Whether somebody wants to know what goes through a module."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)
