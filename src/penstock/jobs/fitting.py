"""One call of `fit` as the settings of a run say it; the same in this process and in the trainers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from penstock.embedding.protocol import updates_in_backward
from penstock.jobs import building
from penstock.jobs.settings import TrainSettings
from penstock.loader.torch import Loader
from penstock.train import Checkpointer, Feed, History, Record, fit
from penstock.train.selection import LAST

_RECORDS = 100  # points of a run's curves; each waits for the device and orders the scores since the last one
_CAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_MOST_STEPS = 500  # between two of them, so that a long run shows soon that it learns


def num_steps(settings: TrainSettings, batches: int) -> int:
    """How many steps a run is to take, with so many batches an epoch."""
    assert settings.epochs is not None
    steps = settings.epochs * batches
    return steps if settings.max_steps is None else min(steps, settings.max_steps)


def fit_model(
    settings: TrainSettings,
    loader: Loader,
    valid: Loader | None,
    network: torch.nn.Module,
    embeddings: Any,
    device: torch.device,
    saver: Checkpointer,
    callbacks: Iterable[Callable[[Record], Any]],
    progress: bool | None,
) -> History:
    """Train a model that is built, with checkpoints; what was measured."""
    network.to(device)  # before its optimizer: some make their state at once
    on_gpu = updates_in_backward(embeddings) and device.type == "cuda"
    optimizer, scheduler = building.build_dense_optimizer(settings, network, for_graph=on_gpu)
    select_by = building.selected_by(settings)
    assert settings.epochs is not None
    return fit(
        network, loader, embeddings, dense_optimizer=optimizer, scheduler=scheduler, epochs=settings.epochs,
        staleness=settings.staleness, valid=valid, eval_every=settings.eval_every,
        log_every=settings.log_every or max(1, min(_MOST_STEPS, num_steps(settings, len(loader)) // _RECORDS)),
        checkpoint_dir=saver, checkpoint_every=settings.checkpoint_every or max(1, len(loader)),
        max_steps=settings.max_steps, autocast=_CAST.get(settings.autocast or ""),
        tf32=on_gpu and settings.autocast in (None, "tf32"),
        device=device, progress=progress, callbacks=list(callbacks), metrics=building.metric_classes(settings),
        select_by=None if valid is None else select_by,
        patience=None if valid is None or select_by == LAST else settings.patience,
        keep_start=settings.linear_start is True and valid is not None and select_by != LAST,
        feed=None if settings.feed is None else Feed(settings.feed, settings.feed_seconds),
        graph=False if on_gpu and settings.dense_optimizer.get("lr_decay") else None,  # it counts on the host
    )  # fmt: skip
