"""Where a training's time goes: every stage is seen, nothing is counted twice, evaluation is not training."""

from __future__ import annotations

import time

import pytest

from penstock.train import fit
from penstock.train.timing import LOOP_STAGES, THREAD_STAGES


class Slow:
    """A loader whose batches take their time."""

    def __init__(self, loader, seconds: float) -> None:
        self.loader, self.seconds, self.schema = loader, seconds, loader.schema

    def __iter__(self):
        for batch in self.loader:
            time.sleep(self.seconds)
            yield batch


def test_every_stage_is_timed_and_the_loop_stages_fit_into_the_total(make) -> None:
    setup = make()
    history = fit(setup.model, setup.loader, setup.store, dense_optimizer=setup.optimizer, epochs=2, log_every=5)
    for record in history.of("train"):
        seconds = record.seconds
        assert set(seconds) == {"total", *LOOP_STAGES, *THREAD_STAGES}
        assert sum(seconds[stage] for stage in LOOP_STAGES) <= seconds["total"]
        assert all(seconds[stage] > 0 for stage in ("forward", "backward", "optimizer", "update"))
    total = history.stats["seconds"]
    told = {stage: sum(record.seconds[stage] for record in history.of("train")) for stage in total if stage != "total"}
    assert told["forward"] == pytest.approx(total["forward"], abs=1e-4)  # the last record comes after the last step
    for stage in THREAD_STAGES:  # the thread beside the loop goes on after the last record
        assert told[stage] <= total[stage] + 1e-4


def test_a_slow_loader_shows_as_fetching_and_waiting(make) -> None:
    setup = make()
    history = fit(setup.model, Slow(setup.loader, 0.02), setup.store, dense_optimizer=setup.optimizer, staleness=2)
    seconds = history.stats["seconds"]
    assert seconds["fetch"] >= 20 * 0.02
    assert seconds["wait"] > 0


def test_evaluation_and_checkpoints_are_left_out_of_the_training_rate(make, tmp_path) -> None:
    setup = make()
    began = time.perf_counter()
    history = fit(
        setup.model, setup.loader, setup.store, dense_optimizer=setup.optimizer, valid=Slow(setup.valid, 0.1),
        eval_every=10, log_every=10, checkpoint_dir=tmp_path / "checkpoints",
    )  # fmt: skip
    assert all(record.seconds >= 0.4 for record in history.of("valid"))
    assert history.last("checkpoint").seconds > 0
    trained = sum(record.seconds["total"] for record in history.of("train"))
    others = sum(record.seconds for kind in ("valid", "checkpoint") for record in history.of(kind))
    assert trained + others <= time.perf_counter() - began  # what was counted twice would not fit
    fetched = sum(record.seconds["fetch"] for record in history.of("train"))
    assert fetched <= history.stats["seconds"]["fetch"] + 1e-4
