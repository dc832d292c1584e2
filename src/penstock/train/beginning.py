"""What a training begins with, measured row by row: what it becomes must be better by more than luck explains."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from torch import Tensor, nn

from penstock.nn.base import Model
from penstock.train import distributed


class RowLosses:
    """The log losses of held-out rows, each by itself, in the order of the rows.

    >>> import torch
    >>> losses = RowLosses()
    >>> losses.add(torch.tensor([0.0, 0.0]), torch.tensor([0.0, 1.0]))
    >>> losses.all().round(4)
    array([0.6931, 0.6931])
    """

    def __init__(self) -> None:
        self._parts: list[np.ndarray] | None = []

    def add(self, output: Any, labels: Any) -> None:
        """Count a batch; where it has not one logit and one label of 0 or 1 a row, there are no such losses.

        Args:
            output: of the model.
            labels: what came true.
        """
        if self._parts is None:
            return
        if not isinstance(output, Tensor) or not isinstance(labels, Tensor) or output.numel() != labels.numel():
            self._parts = None
            return
        logits = output.detach().reshape(-1).double().cpu().numpy()
        truth = labels.detach().reshape(-1).double().cpu().numpy()
        if ((truth != 0) & (truth != 1)).any():
            self._parts = None
            return
        self._parts.append(np.logaddexp(0.0, logits * (1.0 - 2.0 * truth)))

    def all(self) -> np.ndarray | None:
        """The losses of the rows of all workers.

        Returns:
            One a row; None where there are none.
        """
        parts = distributed.all_gather(self._parts)
        if any(part is None for part in parts):
            return None
        return np.concatenate([np.empty(0), *(losses for part in parts for losses in part)])


def gain_over(start: np.ndarray | None, losses: np.ndarray | None) -> dict[str, float]:
    """By how much losses are lower than those of the same rows before training, and the standard error of that.

    Rows differ far more from one another than two models do on one row, so the differences are what counts.

    Args:
        start: before training.
        losses: now.

    Returns:
        `gain` and `gain_error`, means over the rows; nothing where there is nothing to compare.

    >>> gain_over(np.array([0.5, 0.7, 0.6]), np.array([0.4, 0.5, 0.6]))
    {'gain': 0.1, 'gain_error': 0.0577}
    """
    if start is None or losses is None or len(losses) != len(start) or len(losses) < 2:
        return {}
    differences = start - losses
    if not np.isfinite(differences).all():
        return {}
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return {"gain": float(f"{differences.mean():.3g}"), "gain_error": float(f"{error:.3g}")}


def as_it_begins(model: nn.Module) -> AbstractContextManager[None]:
    """A block in which a model is what it may stay: where it has a linear part, that part alone."""
    return model.silent() if isinstance(model, Model) else nullcontext()
