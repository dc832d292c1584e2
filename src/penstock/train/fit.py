"""The fit loop: epochs, metrics, evaluation, checkpoints, resumption; for embeddings in a store and on the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from penstock.core.errors import OutputExistsError, ParameterError
from penstock.core.params import BOOL, NONE, Int, ListOf, Satisfies, check_all
from penstock.core.progress import Bar, bar
from penstock.train import distributed
from penstock.train.checkpoint import Checkpointer
from penstock.train.context import TrainContext
from penstock.train.device import DeviceLoop, trains_on_device
from penstock.train.feeder import Source
from penstock.train.history import History
from penstock.train.hybrid import HybridLoop

Callback = Callable[[Mapping[str, Any]], Any]
_STEPS = NONE | Int(min=1)
_CONSTRAINTS = {
    "epochs": Int(min=0),
    "eval_every": _STEPS,
    "checkpoint_every": _STEPS,
    "log_every": _STEPS,
    "max_steps": _STEPS,
    "resume": BOOL,
    "progress": NONE | BOOL,
    "callbacks": ListOf(Satisfies(callable, "callable")),
    "compile": NONE | BOOL,
    "graph": NONE | BOOL,
}


def fit(
    model: nn.Module,
    loader: Any,
    embeddings: Source = None,
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
    log_every: int | None = 50,
    max_steps: int | None = None,
    loss_fn: Callable[[Any, Any], Tensor] | None = None,
    grad_scaler: Any = None,
    autocast: torch.dtype | None = None,
    scheduler: Any = None,
    device: Any = None,
    compile: bool | None = None,
    graph: bool | None = None,
) -> History:
    """Train a model and its embeddings; what was measured on the way.

    Where the embeddings live decides how. In a store (`penstock.embedding`): the model is `model(dense, embeddings)`,
    and look-ups and updates run beside it, as in `TrainContext`. In `FusedEmbeddings` (or `CachedEmbeddings`), given in
    their place or held by a model `model(ids, numbers)`: everything stays on the model's device. There the
    step is compiled and captured as a CUDA graph where shapes allow, figures are added up on the device, and the host
    waits for it only to make a record.

    Args:
        model, embeddings, staleness, loss_fn, grad_scaler, autocast, scheduler, device: see `TrainContext`. `staleness`
            is the store's; fused tables are always exact.
        loader: training batches; one of `penstock.loader` for checkpoints.
        dense_optimizer: Adam with a rate of 0.001 by default.
        valid: a loader to evaluate on, every `eval_every` steps and after each epoch.
        checkpoint_dir: where checkpoints go (a path, or a `Checkpointer`), every `checkpoint_every` steps and at the
            end. What was interrupted goes on from the newest one, with the bits it would have had.
        resume: whether it does; without, a directory that holds checkpoints is refused.
        progress: draw a bar; None draws it on a terminal.
        callbacks: called with every record (a dict); training ends after the step at which one returns True.
        log_every: steps between training records; None makes one an epoch. On a GPU each waits for the device.
        max_steps: stop after this many steps in all.
        compile, graph: with fused tables, whether the model is compiled (`torch.compile`) and the step captured; None
            does both on a GPU, where `DeviceStep` can. `history.stats["captured"]` tells.

    >>> from penstock.embedding import Adagrad, SlotConfig, Store
    >>> from penstock.loader.torch import Loader
    >>> from penstock.nn import MLP
    >>> data = {"user": [1, 2, 3, 4] * 50, "click": [0, 1, 0, 1] * 50}
    >>> loader = Loader(data, 20, categorical=["user"], labels=["click"], shuffle=True)
    >>> model, store = MLP(loader.schema, 4, hidden=()), Store([SlotConfig("user", dim=4)], Adagrad(lr=0.5))
    >>> history = fit(model, loader, store, epochs=3, valid=loader, staleness=1)
    >>> history.last("valid")["auc"]
    1.0

    The same with tables on the device:

    >>> from penstock.embedding import FusedEmbeddings
    >>> tables = FusedEmbeddings({"user": 5}, 4, optimizer="adagrad", lr=0.5)
    >>> fit(MLP(loader.schema, 4, hidden=()), loader, tables, epochs=3, valid=loader).last("valid")["auc"]
    1.0
    """
    callbacks = list(callbacks)
    check_all(locals(), _CONSTRAINTS, "fit")
    saver = checkpoint_dir if isinstance(checkpoint_dir, Checkpointer) or checkpoint_dir is None else None
    saver = saver or (Checkpointer(checkpoint_dir) if checkpoint_dir is not None else None)  # type: ignore[arg-type]
    settings = {
        "loss_fn": loss_fn, "grad_scaler": grad_scaler, "autocast": autocast, "scheduler": scheduler, "device": device,
    }  # fmt: skip
    loop: HybridLoop | DeviceLoop
    if trains_on_device(model, embeddings):
        tables: Any = embeddings
        loop = DeviceLoop(model, tables, dense_optimizer, compile=compile, graph=graph, **settings)
    else:
        _refuse(compile=compile, graph=graph)
        optimizer = dense_optimizer or _adam(model, embeddings)
        loop = HybridLoop(TrainContext(model, embeddings, optimizer, staleness=staleness, **settings))
    run = _Run(loop, loader, valid, saver, epochs, eval_every, checkpoint_every, log_every, max_steps, callbacks)
    with loop:
        run.begin(resume)
        total = getattr(loader, "num_rows", None)
        show = progress if distributed.rank() == 0 else False
        with bar("training", None if total is None else epochs * total, show=show) as drawn:
            drawn.advance(loop.rows)
            run.all_epochs(drawn)
    run.history.stats = loop.stats()
    return run.history


def _adam(model: nn.Module, embeddings: Source) -> torch.optim.Optimizer | None:
    """The dense optimizer where none was given; None where there is nothing for it to train."""
    modules = [m for m in (model, embeddings) if isinstance(m, nn.Module)]
    parameters = [p for m in modules for p in m.parameters() if p.requires_grad]
    return torch.optim.Adam(parameters, lr=1e-3) if parameters else None


def _refuse(**settings: bool | None) -> None:
    for name, value in settings.items():
        if value is not None:
            raise ParameterError(
                f"fit.{name} is for embeddings on the device (penstock.embedding.FusedEmbeddings): those of a store "
                f"come from the host in every step; leave it out"
            )


class _Run:
    """One call of `fit`."""

    def __init__(
        self,
        loop: HybridLoop | DeviceLoop,
        loader: Any,
        valid: Any,
        saver: Checkpointer | None,
        epochs: int,
        eval_every: int | None,
        checkpoint_every: int | None,
        log_every: int | None,
        max_steps: int | None,
        callbacks: list[Callback],
    ) -> None:
        self.loop, self.loader, self.valid, self.saver = loop, loader, valid, saver
        self.epochs, self.eval_every, self.checkpoint_every = epochs, eval_every, checkpoint_every
        self.log_every, self.max_steps, self.callbacks = log_every, max_steps, callbacks
        self.history = History()
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
        extra = self.loop.load(self.saver, self.loader)
        self.history.records = list(extra["records"])
        self._first_epoch = int(extra["first_epoch"])
        self._saved_at, self._mid_epoch = self.loop.steps, True

    def all_epochs(self, drawn: Bar) -> None:
        number = int(getattr(self.loader, "epoch", 0)) if self._mid_epoch else self._first_epoch
        while number < self._first_epoch + self.epochs and not self._finished():
            if not self._mid_epoch and hasattr(self.loader, "set_epoch"):
                self.loader.set_epoch(number)
            self._mid_epoch = False
            self._epoch(number, drawn)
            number += 1
        self.meter_record()
        if self.saver is not None and self._saved_at != self.loop.steps:
            self._checkpoint()

    def _finished(self) -> bool:
        return self.stopped or (self.max_steps is not None and self.loop.steps >= self.max_steps)

    def _epoch(self, number: int, drawn: Bar) -> None:
        # The generator is closed where the loop is left: a store's thread ends there.
        with closing(self.loop.trained(self.loader)) as steps:
            for rows in steps:
                drawn.advance(rows)
                if self._due(self.log_every):
                    drawn.describe(self.meter_record())
                if self._due(self.eval_every):
                    self._evaluate(number)
                if self.saver is not None and self._due(self.checkpoint_every):
                    self._checkpoint()
                if self._finished():
                    return
        if self.log_every is None:
            drawn.describe(self.meter_record())
        if self.valid is not None and self._evaluated_at != self.loop.steps:
            self._evaluate(number)

    def _due(self, every: int | None) -> bool:
        return every is not None and self.loop.steps % every == 0

    def meter_record(self) -> str:
        """Record what was measured since the last record; a few words for the bar."""
        figures = self.loop.take()
        if not figures:
            return "training"
        self._record("train", figures)
        auc = f", AUC {figures['auc']:.4f}" if "auc" in figures else ""
        return f"training: loss {figures['loss']:.4f}{auc}"

    def _evaluate(self, epoch: int) -> None:
        if self.valid is None:
            return
        self._evaluated_at = self.loop.steps
        figures = self.loop.evaluate(self.valid)
        self.loop.leave_out(figures["seconds"])
        self._record("valid", {"epoch": epoch, **figures})

    def _checkpoint(self) -> None:
        assert self.saver is not None
        self._saved_at = self.loop.steps
        extra = {"records": self.history.records, "first_epoch": self._first_epoch}
        began = time.perf_counter()
        path = self.loop.save(self.saver, self.loader, extra)
        seconds = time.perf_counter() - began
        self.loop.leave_out(seconds)
        self._record("checkpoint", {"path": str(path), "seconds": seconds})

    def _record(self, kind: str, figures: Mapping[str, Any]) -> None:
        record = {"kind": kind, "step": self.loop.steps, **figures}
        self.history.records.append(record)
        for callback in self.callbacks:
            self.stopped = bool(callback(record)) or self.stopped
