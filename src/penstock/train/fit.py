"""The fit loop: epochs, metrics, evaluation, checkpoints, resumption; for embeddings in a store and on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from penstock.core.errors import ParameterError, suggest
from penstock.core.params import BOOL, NONE, STR, Int, ListOf, Satisfies, check_all
from penstock.core.progress import bar
from penstock.metrics import create_metric
from penstock.train import distributed
from penstock.train.beginning import as_it_begins
from penstock.train.checkpoint import Checkpointer
from penstock.train.context import TrainContext
from penstock.train.dense_optimizer import default_optimizer
from penstock.train.evaluation import EVALUATED, Metrics
from penstock.train.executors.captured import CapturedExecutor, trains_on_device
from penstock.train.executors.overlapped import OverlappedExecutor
from penstock.train.feeder import Source
from penstock.train.history import History
from penstock.train.loop import Callback, Executor, Loop
from penstock.train.publishing import Feed, publishing
from penstock.train.selection import LAST, Selection

_STEPS = NONE | Int(min=1)
# Rows in all. On an H200 torch's compiler takes 8 s and more, and saves 0.7 s (batch 16,384) to 1.8 s (4,096) of 100 M.
_WORTH_COMPILING = 500_000_000
_CONSTRAINTS = {
    "epochs": Int(min=0),
    "eval_every": _STEPS,
    "checkpoint_every": _STEPS,
    "log_every": _STEPS,
    "max_steps": _STEPS,
    "select_by": NONE | STR,
    "patience": _STEPS,
    "keep_start": BOOL,
    "resume": BOOL,
    "progress": NONE | BOOL,
    "callbacks": ListOf(Satisfies(callable, "callable")),
    "compile": NONE | BOOL,
    "graph": NONE | BOOL,
    "tf32": BOOL,
}


def fit(
    model: nn.Module,
    loader: Iterable[Any],
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
    select_by: str | None = None,
    patience: int | None = None,
    keep_start: bool = False,
    metrics: Metrics | None = None,
    loss_fn: Callable[[Any, Any], Tensor] | None = None,
    grad_scaler: torch.amp.GradScaler | None = None,
    autocast: torch.dtype | None = None,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
    device: torch.device | str | int | None = None,
    compile: bool | None = None,
    graph: bool | None = None,
    tf32: bool = False,
    feed: Feed | str | Path | None = None,
) -> History:
    """Train a model and its embeddings; what was measured on the way.

    Where the embeddings live decides how. In a store (`penstock.embedding`): the model is called as
    `model(continuous, embeddings)`, and look-ups and updates run beside it, as in `TrainContext`. In `FusedEmbeddings`
    (or `CachedEmbeddings`), given in their place or held by a model `model(ids, continuous)`: everything stays on the
    model's device. There the step is compiled and captured as a CUDA graph where shapes allow, figures are added up on
    the device, and the host waits for it only to make a record.

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
        callbacks: called with every record (`TrainRecord`, `ValidRecord`, `CheckpointRecord`); training ends after the
            step at which one returns True.
        log_every: steps between training records; None makes one an epoch. On a GPU each waits for the device.
        max_steps: stop after this many steps in all.
        select_by: a metric (or `"loss"`) by which the best evaluation is found; the model and its embeddings get the
            weights of that back in the end, from its checkpoint (see `history.best`). None, as `"last"`, keeps those
            of the last step.
        patience: end after so many evaluations in a row without a better one.
        keep_start: with `select_by`, evaluate the model as it begins, too (of a model with a linear part, that part
            alone). By loss or log loss it stays unless an evaluation is better by more than its standard error: few
            held-out rows prefer one or another by luck.
        metrics: of records and evaluations: names in `penstock.metrics.METRICS`, or what makes a metric. By default
            AUC, and log loss in evaluations.
        compile, graph: with fused tables, whether the model is compiled (`torch.compile`) and the step captured; None
            does both on a GPU, where `DeviceStep` can, but leaves out compiling for fewer than 500 M rows in all: it
            takes longer than it saves there. `history.stats["captured"]` tells.
        tf32: with fused tables, whether the dense model's products of float32 matrices read TF32 (ten bits of each
            factor) while training, which a GPU does several times as fast; evaluations do not.
        feed: publish embeddings and dense weights here as training goes on, for services to follow: a folder, or a
            `Feed`. There is a packet of the first step and of the end, and every half a minute in between.

    Returns:
        The records, and the figures of the whole training.

    >>> from penstock.embedding import Adagrad, SlotConfig, Store
    >>> from penstock.loader.torch import Loader
    >>> from penstock.nn import MLP
    >>> data = {"user": [1, 2, 3, 4] * 50, "click": [0, 1, 0, 1] * 50}
    >>> loader = Loader(data, 20, categorical=["user"], labels=["click"], shuffle=True)
    >>> model, store = MLP(loader.schema, 4, hidden=()), Store([SlotConfig("user", dim=4)], Adagrad(lr=0.5))
    >>> history = fit(model, loader, store, epochs=3, valid=loader, staleness=1)
    >>> history.last("valid").metrics["auc"]
    1.0

    The same with tables on the device:

    >>> from penstock.embedding import FusedEmbeddings
    >>> tables = FusedEmbeddings({"user": 5}, 4, optimizer="adagrad", lr=0.5)
    >>> fit(MLP(loader.schema, 4, hidden=()), loader, tables, epochs=3, valid=loader).last("valid").metrics["auc"]
    1.0
    """
    callbacks = list(callbacks)
    check_all(locals(), _CONSTRAINTS, "fit")
    saver = checkpoint_dir if isinstance(checkpoint_dir, Checkpointer | None) else Checkpointer(checkpoint_dir)
    selection = _selection(select_by, patience, keep_start, valid, saver, EVALUATED if metrics is None else metrics)
    settings: dict[str, Any] = {
        "loss_fn": loss_fn, "grad_scaler": grad_scaler, "autocast": autocast, "scheduler": scheduler, "device": device,
    }  # fmt: skip
    executor: Executor
    if trains_on_device(model, embeddings):
        if compile is None and _rows_to_train(loader, epochs, max_steps) < _WORTH_COMPILING:
            compile = False
        settings |= {"compile": compile, "graph": graph, "tf32": tf32}
        executor = CapturedExecutor(model, embeddings, dense_optimizer, metrics=metrics, **settings)
    else:
        _refuse(compile=compile, graph=graph, tf32=tf32 or None)
        optimizer = dense_optimizer or default_optimizer([m for m in (model, embeddings) if isinstance(m, nn.Module)])
        executor = OverlappedExecutor(
            TrainContext(model, embeddings, optimizer, staleness=staleness, **settings), metrics
        )
    every = (eval_every, checkpoint_every, log_every)
    written = nullcontext() if saver is None else saver.finishing()
    with executor, publishing(feed, executor.training) as publisher, written:
        start = as_it_begins(model) if keep_start else None
        loop = Loop(executor, loader, valid, saver, epochs, *every, max_steps, callbacks, selection, publisher, start)
        loop.begin(resume)
        total = getattr(loader, "num_rows", None)
        show = progress if distributed.rank() == 0 else False
        with bar("training", None if total is None else epochs * total, show=show) as drawn:
            drawn.advance(executor.rows)
            loop.all_epochs(drawn)
    loop.history.stats = executor.stats()
    return loop.history


def _selection(
    select_by: str | None,
    patience: int | None,
    keep_start: bool,
    valid: Iterable[Any] | None,
    saver: Checkpointer | None,
    metrics: Metrics,
) -> Selection | None:
    """How the best evaluation is found; what that needs must be there."""
    if patience is not None and select_by in (None, LAST):
        raise ParameterError("fit.patience waits for a better evaluation; say what that is: select_by='auc'")
    if keep_start and select_by in (None, LAST):
        raise ParameterError("fit.keep_start compares evaluations with the start; say by what: select_by='log_loss'")
    if select_by is None:
        return None
    if valid is None:
        raise ParameterError("fit.select_by compares evaluations; give the rows for them: valid=")
    if select_by != LAST and saver is None:
        raise ParameterError("fit.select_by takes the best weights from their checkpoint; give checkpoint_dir=")
    measured = ["loss", *(create_metric(metric).name for metric in metrics)]
    if select_by != LAST and select_by.rpartition("/")[2] not in measured:
        raise ParameterError(
            f"fit.select_by is {select_by!r}, which is not measured{suggest(select_by, measured, 'figures')}; "
            f"add it to metrics="
        )
    return Selection(select_by, patience, metrics)


def _rows_to_train(loader: Any, epochs: int, max_steps: int | None) -> float:
    """In all; infinitely many where the loader does not tell."""
    rows, batch_size = getattr(loader, "num_rows", None), getattr(loader, "batch_size", None)
    if rows is None or batch_size is None:
        return float("inf")
    return float(epochs * rows if max_steps is None else min(epochs * rows, max_steps * batch_size))


def _refuse(**settings: bool | None) -> None:
    for name, value in settings.items():
        if value is not None:
            raise ParameterError(
                f"fit.{name} is for embeddings on the device (penstock.embedding.FusedEmbeddings): those of a store "
                f"come from the host in every step; leave it out"
            )
