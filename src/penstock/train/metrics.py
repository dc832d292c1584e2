"""Metrics that read scores batch by batch, in bounded memory, and can be merged over workers."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.errors import DataError

# A score's sign, exponent and nine bits of its mantissa: scores closer than 0.2 % of each other share a bin.
_DROPPED_BITS = 14
_BINS = 1 << (32 - _DROPPED_BITS)


class StreamingAUC:
    """The area under the ROC curve from two histograms of the scores, ties counted half.

    Bins follow the bits of a float32, so the resolution is relative (0.2 %) whatever the range of the scores: give
    logits, or probabilities of any size. 4 MB, however many rows.

    >>> auc = StreamingAUC()
    >>> auc.update([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    >>> auc.compute()
    0.75
    """

    def __init__(self) -> None:
        self.counts = np.zeros((2, _BINS), np.int64)

    def update(self, scores: Any, labels: Any) -> None:
        """Count a batch; labels are 0 or 1."""
        scores, labels = _checked(scores, labels)
        if not len(scores):
            return
        bins = _bin(scores)
        for label in (0, 1):
            mine = bins[labels == label]
            if len(mine) > _BINS // 8:
                self.counts[label] += np.bincount(mine, minlength=_BINS)
            else:  # a pass over all bins would cost more than the batch
                np.add.at(self.counts[label], mine, 1)

    def merge(self, other: StreamingAUC) -> None:
        """Add what another one has counted."""
        self.counts += other.counts

    def compute(self) -> float:
        """The area so far; NaN until both labels have been seen."""
        negatives, positives = self.counts
        total = int(negatives.sum()) * int(positives.sum())
        if not total:
            return float("nan")
        below = np.cumsum(negatives) - negatives
        return float((positives * (below + 0.5 * negatives)).sum() / total)

    def reset(self) -> None:
        self.counts[:] = 0


class LogLoss:
    """The mean binary cross-entropy of logits, in nats.

    >>> loss = LogLoss()
    >>> loss.update([0.0, 0.0], [0, 1])
    >>> round(loss.compute(), 4)
    0.6931
    """

    def __init__(self) -> None:
        self.total = np.zeros(2)  # the sum, and the number of rows

    def update(self, logits: Any, labels: Any) -> None:
        logits, labels = _checked(logits, labels)
        wide = logits.astype(np.float64)
        self.total += np.logaddexp(0, wide).sum() - wide[labels == 1].sum(), len(wide)

    def merge(self, other: LogLoss) -> None:
        """Add what another one has counted."""
        self.total += other.total

    def compute(self) -> float:
        """The mean so far; NaN before any row."""
        return float(self.total[0] / self.total[1]) if self.total[1] else float("nan")

    def reset(self) -> None:
        self.total[:] = 0


def _bin(scores: np.ndarray) -> np.ndarray:
    """The order of floats as integers: negative ones count downwards in their bits."""
    bits = (scores + np.float32(0)).view(np.int32)  # -0.0 becomes 0.0
    ordered = np.where(bits < 0, ~bits, bits | np.int32(-(2**31))).view(np.uint32)
    return (ordered >> np.uint32(_DROPPED_BITS)).astype(np.int64)


def _checked(scores: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    scores, labels = _numpy(scores).astype(np.float32), _numpy(labels)
    if scores.shape != labels.shape or scores.ndim != 1:
        raise DataError(f"scores and labels must both be (B,), got {scores.shape} and {labels.shape}")
    if len(scores) and not bool(((labels == 0) | (labels == 1)).all()):
        raise DataError("labels must be 0 or 1")
    if np.isnan(scores).any():
        raise DataError(f"{int(np.isnan(scores).sum())} of {len(scores)} scores are NaN")
    return scores, labels


def _numpy(values: Any) -> np.ndarray:
    if hasattr(values, "detach"):
        values = values.detach().float().cpu().numpy()
    return np.ascontiguousarray(values)
