"""The batches of a run, to train on and to evaluate on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from penstock.data.dataset import as_dataset
from penstock.jobs.cluster import Cluster
from penstock.jobs.defaults import filled_in
from penstock.jobs.embeddings import choose_tables
from penstock.jobs.preparation import Prepared
from penstock.jobs.settings import ON_DEVICE, TrainSettings
from penstock.loader.torch import Loader
from penstock.train.selection import LAST

VALID_BATCH = 8192
_VALID_BATCH_ON_GPU = 65_536  # smaller ones are over before the next is ordered


def open_loaders(
    settings: TrainSettings, ready: Prepared, device: torch.device
) -> tuple[Loader, Loader | None, TrainSettings]:
    """Batches to train on and to evaluate on. Their schema settles where the embeddings live.

    Args:
        settings: of the run.
        ready: its features.
        device: that the model is on.

    Returns:
        Both loaders, and the settings with nothing left open.
    """
    features = as_dataset(ready.features)
    is_selected = ready.valid is not None and settings.select_by != LAST
    settings = filled_in(settings, features.num_rows, is_selected)  # what a resumed run has filled in stays
    assert settings.batch_size is not None
    tables = "store" if Cluster.of(settings) else choose_tables(settings, features.schema, device)
    own: dict[str, Any] = {"layout": "packed", "device": device} if tables in ON_DEVICE else {}
    options = {**settings.loader, **own}
    loader = Loader(ready.features, settings.batch_size, shuffle=True, seed=settings.seed, **options)
    is_cached = tables == "cached" or settings.store.get("cache_rows") is not None
    if is_cached:  # it need not hold the rows of more than a batch
        at_once = min(VALID_BATCH, settings.batch_size)
    else:
        at_once = _VALID_BATCH_ON_GPU if tables in ON_DEVICE and device.type == "cuda" else VALID_BATCH
    valid = None if ready.valid is None else Loader(ready.valid, at_once, **own)
    kept = {**settings.loader, "chunk_rows": loader.chunk_rows} if tables in ON_DEVICE else settings.loader
    return loader, valid, replace(settings, tables=tables, loader=kept)
