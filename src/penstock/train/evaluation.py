"""The figures of an evaluation, whatever ran the model."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from penstock.metrics import Meter

if TYPE_CHECKING:
    from penstock.train.context import TrainContext

METRICS = ("auc", "log_loss")


def measured(device: torch.device, batches: Iterable[tuple[Tensor, Any, Any, int]]) -> dict[str, Any]:
    """Loss, metrics, rows and seconds of batches: the mean loss, the output, the labels and the rows of each."""
    meter, began = Meter(device, METRICS), time.perf_counter()
    for loss, output, labels, rows in batches:
        meter.add(loss, output, labels, rows)
    return {**meter.take(), "seconds": time.perf_counter() - began}


def evaluate(ctx: TrainContext, loader: Iterable[Any]) -> dict[str, Any]:
    """Evaluate a model and its embeddings inside a training context; nothing is inserted or trained.

    With several workers each evaluates its own share, and all get the figures of the whole.

    Args:
        ctx: the context, entered.
        loader: batches to evaluate on.

    Returns:
        `loss`, by rows; `rows`; `auc` and `log_loss`, where labels are 0 or 1; `seconds`.
    """

    def batches() -> Iterable[tuple[Tensor, Any, Any, int]]:
        for batch in ctx.batches(loader):
            output, labels = ctx.forward(batch)
            yield ctx.loss(output, labels), output, labels, batch.num_rows

    with ctx.evaluating():
        return measured(ctx.device, batches())
