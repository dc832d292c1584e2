"""The figures of an evaluation, whatever ran the model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from penstock.metrics import Meter, Metric

if TYPE_CHECKING:
    from penstock.train.beginning import RowLosses
    from penstock.train.context import TrainContext

Metrics = Sequence[str | Callable[[], Metric]]
EVALUATED = ("auc", "log_loss")  # metrics of an evaluation, unless others are asked for
TRAIN_METRICS = ("auc",)  # of training records: the loss is there in any case


def measured(
    device: torch.device,
    batches: Iterable[tuple[Tensor, Any, Any, int]],
    metrics: Metrics | None = None,
    row_losses: RowLosses | None = None,
) -> dict[str, Any]:
    """Loss, metrics, rows and seconds of batches: the mean loss, the output, the labels and the rows of each."""
    meter, began = Meter(device, EVALUATED if metrics is None else metrics), time.perf_counter()
    for loss, output, labels, rows in batches:
        meter.add(loss, output, labels, rows)
        if row_losses is not None:
            row_losses.add(output, labels)
    return {**meter.collect(), "seconds": time.perf_counter() - began}


def evaluate(
    ctx: TrainContext, loader: Iterable[Any], metrics: Metrics | None = None, row_losses: RowLosses | None = None
) -> dict[str, Any]:
    """Evaluate a model and its embeddings inside a training context; nothing is inserted or trained.

    With several workers each evaluates its own share, and all get the figures of the whole.

    Args:
        ctx: the context, entered.
        loader: batches to evaluate on.
        metrics: names in `penstock.metrics.METRICS`, or what makes a metric; AUC and log loss by default.
        row_losses: what takes the loss of every row, where somebody needs them.

    Returns:
        `loss`, by rows; `rows`; every metric by its name, those of clicks where labels are 0 or 1; `seconds`.

    Raises:
        ParameterError: there is no such metric, or it needs more than scores and labels.
    """

    def batches() -> Iterable[tuple[Tensor, Any, Any, int]]:
        for batch in ctx.batches(loader):
            output, labels = ctx.forward(batch)
            yield ctx.loss(output, labels), output, labels, batch.num_rows

    with ctx.evaluating():
        return measured(ctx.device, batches(), metrics, row_losses)
