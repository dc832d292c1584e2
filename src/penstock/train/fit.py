"""The fit loop: epochs, metrics, evaluation, checkpoints, resumption."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from penstock.core.errors import OutputExistsError
from penstock.core.params import BOOL, NONE, Int, ListOf, Satisfies, check_all
from penstock.core.progress import Bar, bar
from penstock.train import distributed
from penstock.train.checkpoint import Checkpointer
from penstock.train.context import TrainContext
from penstock.train.feeder import Source
from penstock.train.history import History
from penstock.train.metrics import LogLoss, StreamingAUC

Callback = Callable[[Mapping[str, Any]], Any]
_STEPS = NONE | Int(min=1)
_CONSTRAINTS = {
    "epochs": Int(min=0),
    "eval_every": _STEPS,
    "checkpoint_every": _STEPS,
    "log_every": Int(min=1),
    "max_steps": _STEPS,
    "resume": BOOL,
    "progress": NONE | BOOL,
    "callbacks": ListOf(Satisfies(callable, "callable")),
}


def fit(
    model: nn.Module,
    loader: Any,
    store: Source,
    *,
    dense_optimizer: torch.optim.Optimizer | None = None,
    epochs: int = 1,
    staleness: int = 4,
    valid: Iterable[Any] | None = None,
    eval_every: int | None = None,
    checkpoint_dir: str | Path | Checkpointer | None = None,
    checkpoint_every: int | None = None,
    resume: bool = True,
    progress: bool | None = None,
    callbacks: Iterable[Callback] = (),
    log_every: int = 50,
    max_steps: int | None = None,
    loss_fn: Callable[[Any, Any], Tensor] | None = None,
    grad_scaler: Any = None,
    autocast: torch.dtype | None = None,
    scheduler: Any = None,
    device: Any = None,
) -> History:
    """Train a model and its embeddings; what was measured on the way.

    Args:
        model, store, staleness, loss_fn, grad_scaler, autocast, scheduler, device: see `TrainContext`.
        loader: training batches; one of `penstock.loader` for checkpoints.
        dense_optimizer: Adam with a rate of 0.001 by default.
        valid: a loader to evaluate on, every `eval_every` steps and after each epoch.
        checkpoint_dir: where checkpoints go (a path, or a `Checkpointer`), every `checkpoint_every` steps and at the
            end. What was interrupted goes on from the newest one, with the bits it would have had.
        resume: whether it does; without, a directory that holds checkpoints is refused.
        progress: draw a bar; None draws it on a terminal.
        callbacks: called with every record (a dict); training ends after the step at which one returns True.
        log_every: steps between training records.
        max_steps: stop after this many steps in all.

    >>> from penstock.embedding import Adagrad, SlotConfig, Store
    >>> from penstock.loader.torch import Loader
    >>> from penstock.nn import MLP
    >>> data = {"user": [1, 2, 3, 4] * 50, "click": [0, 1, 0, 1] * 50}
    >>> loader = Loader(data, 20, categorical=["user"], labels=["click"], shuffle=True)
    >>> model, store = MLP(loader.schema, 4, hidden=()), Store([SlotConfig("user", dim=4)], Adagrad(lr=0.5))
    >>> history = fit(model, loader, store, epochs=3, valid=loader, staleness=1)
    >>> history.last("valid")["auc"]
    1.0
    """
    callbacks = list(callbacks)
    check_all(locals(), _CONSTRAINTS, "fit")
    if dense_optimizer is None:
        modules = [m for m in (model, store) if isinstance(m, nn.Module)]
        parameters = [p for m in modules for p in m.parameters() if p.requires_grad]
        dense_optimizer = torch.optim.Adam(parameters, lr=1e-3) if parameters else None
    ctx = TrainContext(
        model, store, dense_optimizer, staleness=staleness, loss_fn=loss_fn, grad_scaler=grad_scaler,
        autocast=autocast, scheduler=scheduler, device=device,
    )  # fmt: skip
    saver = checkpoint_dir if isinstance(checkpoint_dir, Checkpointer) or checkpoint_dir is None else None
    saver = saver or (Checkpointer(checkpoint_dir) if checkpoint_dir is not None else None)  # type: ignore[arg-type]
    run = _Run(ctx, loader, valid, saver, epochs, eval_every, checkpoint_every, log_every, max_steps, callbacks)
    with ctx:
        run.begin(resume)
        total = getattr(loader, "num_rows", None)
        show = progress if distributed.rank() == 0 else False
        with bar("training", None if total is None else epochs * total, show=show) as drawn:
            drawn.advance(ctx.rows)
            run.all_epochs(drawn)
    run.history.stats = ctx.stats()
    return run.history


class _Run:
    """One call of `fit`."""

    def __init__(
        self,
        ctx: TrainContext,
        loader: Any,
        valid: Any,
        saver: Checkpointer | None,
        epochs: int,
        eval_every: int | None,
        checkpoint_every: int | None,
        log_every: int,
        max_steps: int | None,
        callbacks: list[Callback],
    ) -> None:
        self.ctx, self.loader, self.valid, self.saver = ctx, loader, valid, saver
        self.epochs, self.eval_every, self.checkpoint_every = epochs, eval_every, checkpoint_every
        self.log_every, self.max_steps, self.callbacks = log_every, max_steps, callbacks
        self.history = History()
        self.meter = _Meter(ctx)
        self.stopped = False
        self._saved_at = self._evaluated_at = -1
        self._first_epoch = int(getattr(loader, "epoch", 0))
        self._mid_epoch = False

    def begin(self, resume: bool) -> None:
        """Go on from the newest checkpoint where there is one."""
        if self.saver is None or self.saver.latest() is None:
            return
        if not resume:
            raise OutputExistsError(
                f"{self.saver.directory} holds checkpoints already; resume from them (resume=True) or choose another "
                "directory"
            )
        extra = self.saver.load(self.ctx, self.loader)
        self.history.records = list(extra["records"])
        self._first_epoch = int(extra["first_epoch"])
        self._saved_at, self._mid_epoch = self.ctx.steps, True

    def all_epochs(self, drawn: Bar) -> None:
        number = int(getattr(self.loader, "epoch", 0)) if self._mid_epoch else self._first_epoch
        while number < self._first_epoch + self.epochs and not self._finished():
            if not self._mid_epoch and hasattr(self.loader, "set_epoch"):
                self.loader.set_epoch(number)
            self._mid_epoch = False
            self._epoch(number, drawn)
            number += 1
        self.meter_record()
        if self.saver is not None and self._saved_at != self.ctx.steps:
            self._checkpoint()

    def _finished(self) -> bool:
        return self.stopped or (self.max_steps is not None and self.ctx.steps >= self.max_steps)

    def _epoch(self, number: int, drawn: Bar) -> None:
        ctx = self.ctx
        for batch in ctx.batches(self.loader):
            output, labels = ctx.forward(batch)
            loss = ctx.loss(output, labels)
            ctx.backward(loss)
            self.meter.add(loss, output, labels, batch.num_rows)
            drawn.advance(batch.num_rows)
            if ctx.steps % self.log_every == 0:
                drawn.describe(self.meter_record())
            if self._due(self.eval_every):
                self._evaluate(number)
            if self.saver is not None and self._due(self.checkpoint_every):
                self._checkpoint()
            if self._finished():
                return
        if self.valid is not None and self._evaluated_at != ctx.steps:
            self._evaluate(number)

    def _due(self, every: int | None) -> bool:
        return every is not None and self.ctx.steps % every == 0

    def meter_record(self) -> str:
        """Record what was measured since the last record; a few words for the bar."""
        figures = self.meter.take()
        if not figures:
            return "training"
        self._record("train", figures)
        auc = f", AUC {figures['auc']:.4f}" if "auc" in figures else ""
        return f"training: loss {figures['loss']:.4f}{auc}"

    def _evaluate(self, epoch: int) -> None:
        if self.valid is None:
            return
        self._evaluated_at = self.ctx.steps
        figures = evaluate(self.ctx, self.valid)
        self.meter.leave_out(figures["seconds"])
        self._record("valid", {"epoch": epoch, **figures})

    def _checkpoint(self) -> None:
        assert self.saver is not None
        self._saved_at = self.ctx.steps
        extra = {"records": self.history.records, "first_epoch": self._first_epoch}
        began = time.perf_counter()
        path = self.saver.save(self.ctx, self.loader, extra)
        seconds = time.perf_counter() - began
        self.meter.leave_out(seconds)
        self._record("checkpoint", {"path": str(path), "seconds": seconds})

    def _record(self, kind: str, figures: Mapping[str, Any]) -> None:
        record = {"kind": kind, "step": self.ctx.steps, **figures}
        self.history.records.append(record)
        for callback in self.callbacks:
            self.stopped = bool(callback(record)) or self.stopped


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
