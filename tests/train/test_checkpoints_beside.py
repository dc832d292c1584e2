"""Checkpoints written beside training: no step waits for a disk, and what goes wrong there is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from penstock.core.errors import ArtefactError
from penstock.embedding import Adagrad, SlotConfig, Store
from penstock.embedding.checkpoint import CheckpointLostError
from penstock.embedding.store_saving import StoreSaving
from penstock.loader.torch import Loader
from penstock.nn import MLP
from penstock.train import Checkpointer, CheckpointRecord, Record, TrainRecord, fit
from penstock.train.checkpoint import CheckpointSkippedWarning

STEPS = 12
EVERY = {"user": np.arange(40)}


def trained(saver: Checkpointer, lr: float = 0.1, **settings: Any) -> tuple[torch.nn.Module, Store, Any]:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"user": rng.integers(0, 40, 96), "click": rng.integers(0, 2, 96).astype(np.float32)})
    loader = Loader(frame, 16, categorical=["user"], labels=["click"], shuffle=True)
    torch.manual_seed(0)
    model, store = MLP(loader.schema, embedding_dim=4, hidden=[4]), Store([SlotConfig("user", 4)], Adagrad(lr=lr))
    settings = {"checkpoint_every": 2, "staleness": 3, "log_every": 1, **settings}
    history = fit(model, loader, store, epochs=2, checkpoint_dir=saver, progress=False, **settings)
    return model, store, history


class Disk:
    """The disk that stores are written to, in the way of one checkpoint."""

    def __init__(self, real: Any) -> None:
        self.real, self.at = real, 0
        self.is_free = threading.Event()
        self.error: Exception | None = None

    def write(self, saving: StoreSaving) -> None:
        if int(saving._path.name.removeprefix("store-")) == self.at:
            assert self.is_free.wait(60), "training waits for the disk"
            if self.error is not None:
                raise self.error
        self.real(saving)

    def free(self, saver: Checkpointer) -> None:
        """Let the one checkpoint be written."""
        self.is_free.set()
        while saver.is_writing():
            time.sleep(0.001)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(StoreSaving._write_all)
    monkeypatch.setattr(StoreSaving, "_write_all", lambda saving: disk.write(saving))
    yield disk
    disk.is_free.set()


def saved(history: Any) -> list[int]:
    return [record.step for record in history.records if isinstance(record, CheckpointRecord)]


def test_no_step_waits_for_the_disk_and_what_is_learned_does_not_hang_on_it(disk: Disk, tmp_path: Path) -> None:
    model, store, history = trained(Checkpointer(tmp_path / "waiting"))
    assert saved(history) == [2, 4, 6, 8, 10, 12]
    disk.at = 2

    def free(record: Record) -> None:
        if isinstance(record, TrainRecord) and record.step == 9:
            disk.free(saver)

    saver = Checkpointer(tmp_path / "beside", asynchronous=True)
    other, rows, beside = trained(saver, callbacks=[free])
    assert 2 in saved(beside) and not {4, 6, 8} & set(saved(beside)) and saved(beside)[-1] == STEPS
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], weight, rtol=0, atol=0)
    np.testing.assert_array_equal(rows.lookup(EVERY, train=False).packed, store.lookup(EVERY, train=False).packed)


def test_what_cannot_be_written_ends_training_at_its_next_record(disk: Disk, tmp_path: Path) -> None:
    disk.at, disk.error = 4, ArtefactError("cannot write store-00000004: No space left on device")
    seen: list[Any] = []

    def fill(record: Record) -> None:
        seen.append(record)
        if isinstance(record, TrainRecord) and record.step == 5:
            disk.free(saver)

    saver = Checkpointer(tmp_path, asynchronous=True)
    with pytest.raises(ArtefactError, match="No space left on device"):
        trained(saver, callbacks=[fill], checkpoint_every=4)
    assert seen[-1].step <= 6  # it did not wait for the next checkpoint
    assert Checkpointer(tmp_path).steps() == []
    disk.error = None
    assert saved(trained(Checkpointer(tmp_path), checkpoint_every=4)[2]) == [4, 8, 12]


def test_an_error_in_training_leaves_nobody_writing(disk: Disk, tmp_path: Path) -> None:
    disk.at = 4

    def fail(record: Record) -> None:
        if isinstance(record, TrainRecord) and record.step == 5:
            disk.is_free.set()
            raise RuntimeError("a callback's own")

    saver = Checkpointer(tmp_path, asynchronous=True)
    with pytest.raises(RuntimeError, match="a callback's own"):
        trained(saver, callbacks=[fail], checkpoint_every=4)
    assert sorted(path.name for path in tmp_path.glob("st*")) == ["step-00000004", "store-00000004"]
    assert not saver.is_writing()


def test_where_the_checkpoint_of_the_best_is_lost_the_best_of_the_others_counts(disk: Disk, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    frame = pl.DataFrame({"user": rng.integers(0, 40, 64), "click": rng.integers(0, 2, 64).astype(np.float32)})
    valid = Loader(frame, 64, categorical=["user"], labels=["click"])
    settings = {"valid": valid, "eval_every": 4, "select_by": "loss", "checkpoint_every": None, "lr": 2.0}
    _, _, history = trained(Checkpointer(tmp_path / "all", keep=9), **settings)
    losses = {record.step: record.loss for record in history.of("valid")}
    best = history.best.step
    assert best != STEPS, losses  # else nothing need be put back
    disk.at, disk.error = best, CheckpointLostError("shard 0 died while it wrote")
    disk.is_free.set()
    saver = Checkpointer(tmp_path / "beside", keep=9, asynchronous=True)
    with pytest.warns(CheckpointSkippedWarning, match="left out: shard 0 died"):
        _, _, history = trained(saver, **settings)
    del losses[best]
    assert history.best.step == min(
        (step for step in losses if step in [*saver.steps(), STEPS]), key=losses.__getitem__
    )
