"""Scores and labels of batches that wait on the device, at addresses that do not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.extras import require

if TYPE_CHECKING:
    from torch import Tensor


class RowBuffer:
    """Rows of one output, written where a number on the device says: a captured graph can do that again and again.

    Args:
        like: scores of the kind to come; they lend their device and, if they are float64, their dtype.
        capacity: how many rows fit.
        has_weights: whether rows have weights.
    """

    def __init__(self, like: Tensor, capacity: int, has_weights: bool) -> None:
        torch: Any = require("torch", "torch")
        self._torch, self.capacity = torch, capacity
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        self.scores = torch.empty(capacity, dtype=dtype, device=like.device)
        self.labels = torch.empty(capacity, dtype=torch.float32, device=like.device)
        self.weights = torch.empty(capacity, dtype=dtype, device=like.device) if has_weights else None
        self._filled = torch.zeros((), dtype=torch.int64, device=like.device)

    def fits(self, scores: Tensor, weights: Tensor | None) -> bool:
        """Whether a batch is of the kind that this holds, and not larger."""
        narrowed = scores.dtype == self._torch.float64 and self.scores.dtype != self._torch.float64
        return len(scores) <= self.capacity and not narrowed and (weights is None) == (self.weights is None)

    def write(self, scores: Tensor, labels: Tensor, weights: Tensor | None) -> None:
        """Append a batch. The host must have made sure that there is room."""
        places = self._torch.arange(len(scores), device=self.scores.device) + self._filled
        for target, values in ((self.scores, scores), (self.labels, labels), (self.weights, weights)):
            if target is not None and values is not None:
                target.index_copy_(0, places, values.to(target.dtype))
        self._filled += len(scores)

    def append(self, scores: Tensor, labels: Tensor, loss: Tensor, sums: Tensor) -> bool:
        """The same by one kernel of a GPU, with the batch's loss added up; False where it cannot, and nothing is done.

        Args:
            scores, labels: of the batch.
            loss: their mean.
            sums: of losses by rows, and of rows; float64.
        """
        from penstock.kernels.gpu_triton import has_triton

        given = scores, labels, loss
        if scores.device.type != "cuda" or not len(scores) or loss.dim() or not has_triton():
            return False
        if any(tensor.device != scores.device or not tensor.is_contiguous() for tensor in given):
            return False
        from penstock.kernels.gpu_dense import append_rows

        append_rows(*given, self.scores, self.labels, self._filled, sums)
        self._filled += len(scores)
        return True

    def read(self, rows: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Copies of the first rows; the next batch is written from the beginning again."""
        self._filled.zero_()
        weights = None if self.weights is None else self.weights[:rows].clone()
        return self.scores[:rows].clone(), self.labels[:rows].clone(), weights
