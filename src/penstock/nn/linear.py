"""A linear model beside a network: what each column says by itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SPEED = 10.0  # how much faster than a network's weights those of numbers learn: they are few


class LinearPart(nn.Module):
    """A weight for each number and each id, summed to one logit.

    The weight of an id is the first number of its embedding. Nothing is learned beside it: a factor would learn to
    trust ids that come once, whose embeddings know the labels of their rows by heart. With Adam, whose steps do not
    depend on the scale of gradients, the weights of numbers learn `SPEED` times as fast as other parameters.

    >>> part = LinearPart(num_continuous=2)
    >>> part(torch.ones(3, 2), torch.ones(3, 5, 4)).tolist()  # five ids with a weight of 1 each
    [5.0, 5.0, 5.0]
    """

    def __init__(self, num_continuous: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_continuous))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, dense: Tensor, stacked: Tensor | None) -> Tensor:
        """The logits of a batch.

        Args:
            dense: the numbers, `(B, n)`.
            stacked: the embeddings, `(B, columns, dim)`; None where there are none.

        Returns:
            Logits, `(B,)`.
        """
        logits = SPEED * (dense @ self.weight + self.bias)
        return logits if stacked is None else logits + stacked[:, :, 0].sum(1)
