"""A tiny training, raw rows to saved model, as a process that kills itself before one of the things it does.

`python killed_training.py DATA OUTPUT AT` begins the run in OUTPUT, or goes on with it, and ends by SIGKILL before the
AT-th event: a file-system call below OUTPUT or a record of a training step.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tests.faults.stopping import FileSystem

from penstock.core.errors import ArtefactError
from penstock.data.synthetic import criteo
from penstock.etl import presets
from penstock.jobs import TrainJob
from penstock.serve import Predictor

SETTINGS = {
    "model": {"name": "MLP", "hidden": [8]}, "embedding_dim": 4, "batch_size": 64, "epochs": 2, "staleness": 1,
    "checkpoint_every": 3, "log_every": 1, "valid_share": 0.2, "device": "cpu", "seed": 3,
}  # fmt: skip
ROWS = 600


class Killer(FileSystem):
    """Ends the process, as `kill -9` does, where `FileSystem` would only stop the writer."""

    def step(self, path: Path | None) -> None:
        if path is not None and not path.absolute().is_relative_to(self.root):
            return
        self.calls += 1
        if self.stop_at is not None and self.calls > self.stop_at:
            os.kill(os.getpid(), signal.SIGKILL)


def write_rows(path: Path) -> None:
    criteo(path, ROWS, cardinalities=20, progress=False)


def train(data: Path, output: Path, stop_at: int | None = None) -> int:
    """Begin the run in a folder, or go on with it, as whoever watches over a training would; the events it had."""
    output.mkdir(exist_ok=True)
    watcher = Killer(output, stop_at)
    about: dict[str, Any] = {"progress": False, "callbacks": [lambda record: watcher.step(None)]}
    try:
        job = TrainJob.resumed(output, **about)
    except ArtefactError:  # killed before it had written down what it was asked for
        job = TrainJob(str(data), output, presets.load("criteo"), settings=SETTINGS, overwrite=True, **about)
    watcher.run(job.run)
    return watcher.calls


def bits(output: Path) -> dict[str, bytes]:
    """Everything that a saved model has learned."""
    with Predictor(output / "model") as predictor:
        found = {name: tensor.numpy().tobytes() for name, tensor in predictor.model.state_dict().items()}
        assert predictor.store is not None
        ids = {slot.name: np.arange(32) for slot in predictor.store.config}
        rows = predictor.store.lookup(ids, train=False)
        return found | {name: np.asarray(rows[name]).tobytes() for name in ids}


if __name__ == "__main__":
    train(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
