"""A small training beside the features: what training on a GPU compiles or loads is then there when they are."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from penstock.core.runtime.switching import quick_switches
from penstock.core.runtime.threads import start_thread
from penstock.data import Dataset
from penstock.data.scratch import Scratch
from penstock.etl import Workflow
from penstock.jobs.settings import TrainSettings
from penstock.kernels.gpu_triton import load_kernels

_ROWS, _BATCH_SIZE, _STEPS = 4096, 1024, 2  # as many steps as compile everything; a graph is captured after more
_WORTH_IT = 500_000_000  # bytes of rows: fewer are features before it ends
# What must not be done twice, or only makes it longer.
_LEFT_OUT = {"feed": None, "copy_checkpoints_to": None, "valid_by": None, "linear_start": False, "eval_every": None}


@contextmanager
def rehearsing(
    data: Dataset, recipe: Mapping[str, Any], settings: TrainSettings, device: torch.device
) -> Iterator[None]:
    """Rehearse beside the block, on the first rows, where the model is on a GPU and the rows are many.

    The block's end waits for it. Nothing that it does is kept but kernels, and what fails in it will fail again where
    somebody is told.

    Args:
        data: the rows.
        recipe: what turns them into features.
        settings: of the training.
        device: of the model.
    """
    if device.type != "cuda" or sum(part.num_bytes for part in data.partitions) < _WORTH_IT:
        yield
        return
    load_kernels()
    # The rehearsal holds the interpreter's lock for most of its time: threads that make features wait less often so.
    with quick_switches():
        thread = start_thread("rehearsal", _rehearse, data, recipe, settings)
        try:
            yield
        finally:
            thread.join()


def _rehearse(data: Dataset, recipe: Mapping[str, Any], settings: TrainSettings) -> None:
    try:
        scratch = Scratch()  # it holds rows: for the user alone, and swept where this process is killed
        with _without_own_warnings():
            rehearse(data, recipe, settings, scratch.path)
    except Exception:  # of rows that are too few for an operator, or have one label; see above
        return


@contextmanager
def _without_own_warnings() -> Iterator[None]:
    """A block whose warnings are not shown; those of other threads are, which `catch_warnings` would swallow too."""
    own, show = threading.get_ident(), warnings.showwarning

    def of_others(*arguments: Any, **named: Any) -> None:
        if threading.get_ident() != own:
            show(*arguments, **named)

    warnings.showwarning = of_others
    try:
        yield
    finally:
        if warnings.showwarning is of_others:
            warnings.showwarning = show
        with warnings.catch_warnings():  # makes Python forget which were shown: the run's own come again
            pass


def rehearse(data: Dataset, recipe: Mapping[str, Any], settings: TrainSettings, place: Path) -> None:
    """Train on the first rows for a few steps.

    Args:
        data: the rows.
        recipe: what turns them into features.
        settings: of the training that is to come.
        place: a folder for it.
    """
    from penstock.jobs.training import TrainJob  # which rehearses

    few = Dataset(data.head(_ROWS), schema=data.schema)
    Workflow.from_recipe(recipe).fit(few).transform(few).to_parquet(place / "features", progress=False)
    short = {"epochs": 1, "max_steps": _STEPS, "batch_size": min(_BATCH_SIZE, settings.batch_size or _BATCH_SIZE)}
    own = TrainSettings.resolve({**settings.to_dict(), **_LEFT_OUT, **short})
    TrainJob(place / "features", place / "run", settings=own, progress=False, num_examples=0).run()
