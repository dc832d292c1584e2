"""The loop of a model whose embeddings are in a store (or in plain tables), and its figures."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import AbstractContextManager
from typing import Any, Self

from torch import Tensor

from penstock.metrics import Meter
from penstock.train.beginning import RowLosses
from penstock.train.checkpoint import Checkpointer
from penstock.train.context import TrainContext
from penstock.train.evaluation import TRAIN_METRICS, Metrics, evaluate


class OverlappedExecutor:
    """What `fit` drives for a `TrainContext`."""

    def __init__(self, ctx: TrainContext, metrics: Metrics | None = None) -> None:
        self.ctx, self._metrics = ctx, metrics
        self._meter = _Meter(ctx, TRAIN_METRICS if metrics is None else metrics)

    @property
    def training(self) -> TrainContext:
        return self.ctx

    @property
    def position(self) -> Any:
        return self.ctx.position

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

    def train_steps(self, loader: Any) -> Generator[int, None, None]:
        """Train on a loader's batches; after each step its number of rows."""
        ctx = self.ctx
        for batch in ctx.batches(loader):
            output, labels = ctx.forward(batch)
            loss = ctx.loss(output, labels)
            ctx.backward(loss)
            self._meter.add(loss, output, labels, batch.num_rows)
            yield batch.num_rows

    def evaluate(self, loader: Any, row_losses: RowLosses | None = None) -> dict[str, Any]:
        return evaluate(self.ctx, loader, self._metrics, row_losses)

    def collect_figures(self) -> dict[str, Any]:
        """What was measured since this was last asked; empty if nothing was."""
        return self._meter.collect()

    def leave_out(self, seconds: float) -> None:
        self._meter.leave_out(seconds)

    def save(self, saver: Checkpointer, loader: Any, extra: dict[str, Any]) -> Any:
        return saver.save(self.ctx, loader, extra)

    def paused(self) -> AbstractContextManager[None]:
        return self.ctx.paused()

    def load(self, saver: Checkpointer, loader: Any) -> dict[str, Any]:
        return saver.load(self.ctx, loader)

    def load_weights(self, saver: Checkpointer, step: int) -> None:
        saver.load_weights(self.ctx, step)

    def stats(self) -> dict[str, Any]:
        return self.ctx.stats()


class _Meter:
    """Loss, metrics and rates since the last record. Figures stay on the device until they are asked for."""

    def __init__(self, ctx: TrainContext, metrics: Metrics) -> None:
        self.ctx, self._figures = ctx, Meter(ctx.device, metrics)
        self._rows, self._since = 0, time.perf_counter()

    def add(self, loss: Tensor, output: Any, labels: Any, rows: int) -> None:
        self._figures.add(loss, output, labels, rows)
        self._rows += rows

    def leave_out(self, seconds: float) -> None:
        """Time in which nothing was trained: that of an evaluation or a checkpoint."""
        self._since += seconds

    def collect(self) -> dict[str, Any]:
        """What was measured; begins anew."""
        if not self._rows:
            return {}
        figures = self._figures.collect()
        seconds = time.perf_counter() - self._since
        figures |= {"rows": self.ctx.rows, "rows_per_second": figures["rows"] / seconds}
        figures["seconds"] = {"total": seconds, **self.ctx.timings.since_last()}
        self._rows, self._since = 0, time.perf_counter()
        return figures
