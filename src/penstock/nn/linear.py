"""A linear model beside a network: what each column says by itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from penstock.nn.gpu_layers import weighed

SPEED = 10.0  # how much faster than a network's weights those of numbers learn: they are few
SHARE = 0.63  # of embeddings that a network sees where it begins at zero: it learns them at the square of this rate


class LinearPart(nn.Module):
    """A weight for each number and each id, summed to one logit.

    The weight of an id is the first number of its embedding, which a network beside it does not see (`rest`): it would
    learn to trust ids that come once, whose weights know the labels of their rows by heart. With Adam, whose steps do
    not depend on the scale of gradients, the weights of numbers learn `SPEED` times as fast as other parameters.

    Args:
        num_continuous: how many numbers there are.
        dims: of the embeddings, column by column.
        share: what the rest of the embeddings is multiplied by for the network, which then learns them more slowly.

    >>> part = LinearPart(num_continuous=2, dims=[4] * 5, share=0.5)
    >>> part(torch.ones(3, 2), torch.ones(3, 5, 4)).tolist()  # five ids with a weight of 1 each
    [5.0, 5.0, 5.0]
    >>> part.rest(torch.ones(1, 5, 4))[0, 0]
    tensor([0.0000, 0.5000, 0.5000, 0.5000])
    """

    seen: Tensor

    def __init__(self, num_continuous: int, dims: Sequence[int] = (), share: float = 1.0) -> None:
        super().__init__()
        # A column with one number has no other to show.
        columns = [torch.tensor([share if dim == 1 else 0.0, *[share] * (dim - 1)]) for dim in dims]
        seen = columns[0] if len(set(dims)) == 1 else torch.cat([torch.empty(0), *columns])
        self.register_buffer("seen", seen, persistent=False)
        self.weight = nn.Parameter(torch.zeros(num_continuous))
        self.bias = nn.Parameter(torch.zeros(()))
        self._keeps_ids = False

    def begin(self, numbers: np.ndarray, constant: float) -> None:
        """Begin with the weights of a model that was fitted before; those of ids, which embeddings hold, stay.

        Args:
            numbers: the weights of numbers.
            constant: what is added to every logit.
        """
        with torch.no_grad():
            self.weight.copy_(torch.from_numpy(numbers) / SPEED)
            self.bias.fill_(constant / SPEED)
        self._keeps_ids = True

    def forward(self, continuous: Tensor, stacked: Tensor | None) -> Tensor:
        """The logits of a batch.

        Args:
            continuous: the numbers, `(B, n)`.
            stacked: the embeddings, `(B, columns, dim)`; None where there are none.

        Returns:
            Logits, `(B,)`.
        """
        return self.added(continuous, None if stacked is None else stacked[:, :, 0].sum(1))

    def added(self, continuous: Tensor, of_ids: Tensor | None) -> Tensor:
        """The logits where the weights of a row's ids are added up already.

        Args:
            continuous: the numbers, `(B, n)`.
            of_ids: the sums, `(B,)`; None where there are no ids.

        Returns:
            Logits, `(B,)`.
        """
        logits = SPEED * weighed(continuous, self.weight, self.bias)
        if of_ids is None:
            return logits
        return logits + (of_ids.detach() if self._keeps_ids else of_ids)

    def rest(self, stacked: Tensor) -> Tensor:
        """What a network beside it sees of the embeddings.

        Args:
            stacked: the embeddings, `(B, columns, dim)`; or side by side where dims differ.

        Returns:
            The same without the weights of ids.
        """
        return stacked * self.seen.to(stacked.dtype)
