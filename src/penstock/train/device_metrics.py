"""Loss and AUC that stay on the device until they are asked for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from penstock.train.metrics import _BINS, _DROPPED_BITS


class DeviceMetrics:
    """Loss and AUC of the batches since the last `take`, added up where the batches are.

    The AUC is that of `StreamingAUC`; it is left out where there is not one score and one label of 0 or 1 a row.

    >>> metrics = DeviceMetrics(torch.device("cpu"))
    >>> metrics.add(torch.tensor(0.5), torch.tensor([-1.0, 2.0]), torch.tensor([0.0, 1.0]), 2)
    >>> metrics.take()
    {'loss': 0.5, 'rows': 2, 'auc': 1.0}
    """

    def __init__(self, device: torch.device) -> None:
        # Of the losses of all rows, of the rows, and of the labels that are neither 0 nor 1.
        self.sums = torch.zeros(3, dtype=torch.float64, device=device)
        self.counts = torch.zeros(2 * _BINS, dtype=torch.int64, device=device)
        self._one_score = True

    def add(self, loss: Tensor, scores: Any, labels: Any, rows: int) -> None:
        """Count a batch: its mean loss, its scores and its labels."""
        self.sums[0] += loss.detach().double() * rows
        self.sums[1] += rows
        single = isinstance(scores, Tensor) and isinstance(labels, Tensor) and scores.dim() == labels.dim() == 1
        self._one_score = self._one_score and single
        if not single:
            return
        self.sums[2] += ((labels != 0) & (labels != 1)).sum()
        # StreamingAUC's bins: the order of floats as integers, negative ones counted downwards in their bits.
        bits = (torch.nan_to_num(scores.detach().float()) + 0.0).view(torch.int32).long()
        ordered = torch.where(bits < 0, -1 - bits, bits + 2**31)
        place = (labels > 0.5).long() * _BINS + (ordered >> _DROPPED_BITS)
        self.counts.index_add_(0, place, torch.ones_like(place))

    def take(self) -> dict[str, Any]:
        """The figures; begins anew. Waits for the device, once."""
        negatives, positives = self.counts.view(2, -1)
        below = negatives.cumsum(0) - negatives
        area = (positives * (below + 0.5 * negatives)).sum(dtype=torch.float64)
        pairs = negatives.sum().double() * positives.sum()
        total, rows, strange, auc = torch.cat([self.sums, (area / pairs)[None]]).tolist()
        self.sums.zero_()
        self.counts.zero_()
        figures = {"loss": total / rows if rows else float("nan"), "rows": int(rows)}
        return figures if strange or not self._one_score else {**figures, "auc": auc}
