"""A training that a test starts as a process of its own, kills and starts again: resume_job.py DIRECTORY STALENESS."""

from __future__ import annotations

import sys
import time
from importlib import util
from pathlib import Path

spec = util.spec_from_file_location("training_setup", Path(__file__).with_name("conftest.py"))
assert spec is not None and spec.loader is not None
training_setup = util.module_from_spec(spec)
spec.loader.exec_module(training_setup)

STEPS, EVERY = 100, 10


def run(directory: str, staleness: int, wait_at: int = STEPS):
    """100 steps over five epochs, a checkpoint every tenth; dropout draws from torch's generator at each.

    From step `wait_at` on it waits to be killed.
    """
    from penstock.embedding import LazyAdam
    from penstock.train import Checkpointer, fit

    setup = training_setup.Setup(optimizer=LazyAdam(lr=0.02), dropout=0.2)

    def slowly(record) -> None:
        time.sleep(600 if wait_at <= record.step < STEPS else 0)

    history = fit(
        setup.model, setup.loader, setup.store, dense_optimizer=setup.optimizer, epochs=5, staleness=staleness,
        checkpoint_dir=Checkpointer(directory, full_every=3), checkpoint_every=EVERY, log_every=5, valid=setup.valid,
        callbacks=[slowly], progress=False,
    )  # fmt: skip
    return setup, history


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), wait_at=65)
