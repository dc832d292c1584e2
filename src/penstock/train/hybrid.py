"""The loop of a model whose embeddings are in a store (or in plain tables), and its figures."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from typing import Any, Self

import torch
from torch import Tensor

from penstock.train import distributed
from penstock.train.checkpoint import Checkpointer
from penstock.train.context import TrainContext
from penstock.train.metrics import LogLoss, StreamingAUC


class HybridLoop:
    """What `fit` drives for a `TrainContext`."""

    def __init__(self, ctx: TrainContext) -> None:
        self.ctx, self._meter = ctx, _Meter(ctx)

    @property
    def steps(self) -> int:
        return self.ctx.steps

    @property
    def rows(self) -> int:
        return self.ctx.rows

    def __enter__(self) -> Self:
        self.ctx.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.ctx.__exit__(*error)

    def trained(self, loader: Any) -> Generator[int, None, None]:
        """Train on a loader's batches; after each step its number of rows."""
        ctx = self.ctx
        for batch in ctx.batches(loader):
            output, labels = ctx.forward(batch)
            loss = ctx.loss(output, labels)
            ctx.backward(loss)
            self._meter.add(loss, output, labels, batch.num_rows)
            yield batch.num_rows

    def evaluate(self, loader: Any) -> dict[str, Any]:
        return evaluate(self.ctx, loader)

    def take(self) -> dict[str, Any]:
        """What was measured since this was last asked; empty if nothing was."""
        return self._meter.take()

    def leave_out(self, seconds: float) -> None:
        self._meter.leave_out(seconds)

    def save(self, saver: Checkpointer, loader: Any, extra: dict[str, Any]) -> Any:
        return saver.save(self.ctx, loader, extra)

    def load(self, saver: Checkpointer, loader: Any) -> dict[str, Any]:
        return saver.load(self.ctx, loader)

    def stats(self) -> dict[str, Any]:
        return self.ctx.stats()


class _Meter:
    """Loss, AUC and rates since the last record. Figures stay on the device until they are asked for."""

    def __init__(self, ctx: TrainContext) -> None:
        self.ctx, self.auc = ctx, StreamingAUC()
        self._pending: list[tuple[Tensor, Any, Any]] = []
        self._rows, self._since = 0, time.perf_counter()

    def add(self, loss: Tensor, output: Any, labels: Any, rows: int) -> None:
        self._pending.append((loss.detach(), output.detach() if isinstance(output, Tensor) else None, labels))
        self._rows += rows

    def leave_out(self, seconds: float) -> None:
        """Time in which nothing was trained: that of an evaluation or a checkpoint."""
        self._since += seconds

    def take(self) -> dict[str, Any]:
        """What was measured; begins anew."""
        if not self._pending:
            return {}
        device = self.ctx.device
        losses = torch.stack([loss.float() for loss, _, _ in self._pending]).mean().cpu().double()
        loss = distributed.summed(losses.reshape(1).numpy(), device) / distributed.world_size()
        rows = self._rows * distributed.world_size()
        seconds = time.perf_counter() - self._since
        figures: dict[str, Any] = {"loss": float(loss[0]), "rows": self.ctx.rows, "rows_per_second": rows / seconds}
        if all(_is_binary(output, labels) for _, output, labels in self._pending):
            self.auc.reset()
            for _, output, labels in self._pending:
                self.auc.update(torch.nan_to_num(output), labels)
            self.auc.counts = distributed.summed(self.auc.counts, device)
            figures["auc"] = self.auc.compute()
        figures["seconds"] = {"total": time.perf_counter() - self._since, **self.ctx.timings.since_last()}
        self._pending, self._rows, self._since = [], 0, time.perf_counter()
        return figures


def evaluate(ctx: TrainContext, loader: Iterable[Any]) -> dict[str, Any]:
    """Loss, AUC (of one 0/1 label) and rows of a loader's batches; nothing is inserted or trained.

    With several workers each evaluates its own share, and all get the figures of the whole.
    """
    auc, log_loss = StreamingAUC(), LogLoss()
    binary, total = True, torch.zeros(2, dtype=torch.float64)
    began = time.perf_counter()
    with ctx.evaluating():
        for batch in ctx.batches(loader):
            output, labels = ctx.forward(batch)
            total += torch.tensor([float(ctx.loss(output, labels)) * batch.num_rows, batch.num_rows])
            binary = binary and _is_binary(output, labels)
            if binary:
                scores = torch.nan_to_num(output)
                auc.update(scores, labels)
                log_loss.update(scores, labels)
    sums = distributed.summed(total.numpy(), ctx.device)
    figures = {"loss": float(sums[0] / sums[1]) if sums[1] else float("nan"), "rows": int(sums[1])}
    if binary:
        auc.counts = distributed.summed(auc.counts, ctx.device)
        log_loss.total = distributed.summed(log_loss.total, ctx.device)
        figures |= {"auc": auc.compute(), "log_loss": log_loss.compute()}
    return {**figures, "seconds": time.perf_counter() - began}


def _is_binary(output: Any, labels: Any) -> bool:
    """Whether an AUC makes sense: one output and one 0/1 label a row."""
    if not (isinstance(output, Tensor) and isinstance(labels, Tensor) and output.dim() == labels.dim() == 1):
        return False
    return bool(((labels == 0) | (labels == 1)).all())
