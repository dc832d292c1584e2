"""The fit loop and its checkpoints; a process that is killed goes on with the bits it would have had."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock.core.errors import ArtefactError, OutputExistsError, ParameterError
from penstock.embedding import SGD, EmbeddingTables, FusedEmbeddings, Store, slots_from_schema
from penstock.loader.torch import Loader
from penstock.train import Checkpointer, TrainContext, evaluate, fit

from . import resume_job
from .conftest import ROLES, SCHEMA, assert_same_bits, some_rows


def quick(setup, **settings):
    return fit(
        setup.model, setup.loader, setup.store, dense_optimizer=setup.optimizer, progress=False,
        **{"staleness": 1, **settings},
    )  # fmt: skip


def test_it_learns_and_reports(make) -> None:
    setup = make(rows=6400, batch_size=64)
    seen = []
    history = quick(
        setup, epochs=2, valid=setup.valid, eval_every=60, log_every=50, staleness=4, callbacks=[seen.append]
    )
    assert seen == history.records
    assert [r.step for r in history.of("train")] == [50, 100, 150, 200]
    assert [(r.step, r.epoch) for r in history.of("valid")] == [(60, 0), (100, 0), (120, 1), (180, 1), (200, 1)]
    assert history.last("valid").metrics["auc"] > 0.8 > history.of("train")[0].metrics["auc"]
    assert history.values("train", "loss")[-1] < history.values("train", "loss")[0]
    assert all(rate > 0 for rate in history.values("train", "rows_per_second"))
    assert history.stats["rows"] == 12800 and setup.loader.epoch == 2


def test_on_device_tables_learn_as_well(make) -> None:
    setup = make(rows=6400, batch_size=64)
    tables = EmbeddingTables(SCHEMA, 4, scale=0.1)
    parameters = [*setup.model.parameters(), *tables.parameters()]
    history = fit(
        setup.model, setup.loader, tables, dense_optimizer=torch.optim.Adam(parameters, lr=0.01), epochs=2,
        valid=setup.valid, progress=False,
    )  # fmt: skip
    assert history.last("valid").metrics["auc"] > 0.8


def test_a_callback_ends_the_training(make) -> None:
    setup = make()
    history = quick(setup, epochs=5, log_every=10, callbacks=[lambda record: record.step >= 10])
    assert history.stats["steps"] == 10
    assert quick(make(), epochs=5, max_steps=7).stats["steps"] == 7


# Resumption.


@pytest.mark.parametrize("staleness", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_killed_and_resumed_is_the_same_as_never_killed(tmp_path: Path, staleness) -> None:
    """kill -9 somewhere after step 50 of 100; the resumed process ends with the same bits."""
    whole, history = resume_job.run(str(tmp_path / "whole"), staleness)
    assert history.stats["steps"] == 100
    script, place = Path(resume_job.__file__), tmp_path / "killed"
    process = subprocess.Popen([sys.executable, str(script), str(place), str(staleness)])
    try:
        wait_for(lambda: list(place.glob("step-*")) and max(Checkpointer(place).steps()) >= 50, process)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    before = Checkpointer(place).steps()[-1]
    assert 50 <= before < 100
    resumed, history = resume_job.run(str(place), staleness)
    assert history.stats["steps"] == 100
    assert [r.step for r in history.of("valid")] == [20, 40, 60, 80, 100]
    assert_same_bits(resumed.weights(), whole.weights())
    assert resumed.store.stats()["steps"] == whole.store.stats()["steps"]
    assert list(place.glob(".*")) == [] and len(Checkpointer(place).steps()) == 2
    for setup in (whole, resumed):
        setup.store.close()


def wait_for(condition, process, seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the process ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_finished_training_is_left_as_it_is(make, tmp_path) -> None:
    first = make()
    quick(first, checkpoint_dir=tmp_path)
    again = make()
    history = quick(again, checkpoint_dir=tmp_path)
    assert history.stats["steps"] == 20 and len(history.of("train")) == 1
    assert_same_bits(first.weights(), again.weights())
    with pytest.raises(OutputExistsError, match="holds checkpoints already"):
        quick(make(), checkpoint_dir=tmp_path, resume=False)
    longer = quick(make(), checkpoint_dir=tmp_path, epochs=2)
    assert longer.stats["steps"] == 40


def test_mixed_precision_and_schedules_are_resumed(make, tmp_path) -> None:
    def parts(setup):
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=3)
        return {"grad_scaler": scaler, "scheduler": torch.optim.lr_scheduler.StepLR(setup.optimizer, 4, 0.5)}

    whole, half, rest = make(), make(), make()
    settings = parts(whole)
    quick(whole, checkpoint_dir=tmp_path / "a", checkpoint_every=7, **settings)
    quick(half, checkpoint_dir=tmp_path / "b", checkpoint_every=7, max_steps=7, **parts(half))
    resumed = parts(rest)
    quick(rest, checkpoint_dir=tmp_path / "b", checkpoint_every=7, **resumed)
    assert_same_bits(whole.weights(), rest.weights())
    assert resumed["grad_scaler"].get_scale() == settings["grad_scaler"].get_scale() != 16.0
    assert rest.optimizer.param_groups[0]["lr"] == whole.optimizer.param_groups[0]["lr"] < 0.01


def test_nothing_of_a_checkpoint_is_pickled(make, tmp_path) -> None:
    quick(make(), checkpoint_dir=tmp_path)
    kinds = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert kinds == {".json", ".safetensors", ".parquet"}


def saved(make, tmp_path) -> Path:
    quick(make(), checkpoint_dir=tmp_path)
    return tmp_path / "step-00000020"


def test_altered_and_incomplete_checkpoints_are_refused(make, tmp_path) -> None:
    place = saved(make, tmp_path)
    weights = place / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    with pytest.raises(ArtefactError, match=r"model\.safetensors is truncated or altered"):
        quick(make(), checkpoint_dir=tmp_path)
    weights.write_bytes(content)
    (tmp_path / "store-00000020").rename(tmp_path / "elsewhere")
    with pytest.raises(ArtefactError, match="store-00000020, which is not there"):
        quick(make(), checkpoint_dir=tmp_path)
    other = make()
    other.store.save(tmp_path / "store-00000020")
    with pytest.raises(ArtefactError, match="is not the store checkpoint that"):
        quick(make(), checkpoint_dir=tmp_path)


def test_checkpoints_of_another_training_are_refused(make, tmp_path) -> None:
    saved(make, tmp_path)
    with pytest.raises(ArtefactError, match="weights of another model"):
        setup = make()
        setup.model.top[0] = torch.nn.Linear(7, 3)
        quick(setup, checkpoint_dir=tmp_path)
    with pytest.raises(ArtefactError, match="without a scaler, and this training has one"):
        quick(make(), checkpoint_dir=tmp_path, grad_scaler=torch.amp.GradScaler("cpu"))
    with pytest.raises(ArtefactError, match="was saved with Adagrad"):
        setup = make()
        setup.store = Store(setup.store.config, SGD())
        quick(setup, checkpoint_dir=tmp_path)
    with pytest.raises(ParameterError, match="batch_size=32 and this loader has batch_size=64"):
        quick(make(batch_size=64), checkpoint_dir=tmp_path)


def test_a_loader_without_a_position_cannot_be_resumed(make, tmp_path) -> None:
    setup = make()
    setup.loader = list(setup.loader)
    assert quick(setup).stats["steps"] == 20
    with pytest.raises(ParameterError, match="a loader that knows its position"):
        quick(setup, checkpoint_dir=tmp_path)


def test_incremental_checkpoints_keep_their_base(make, tmp_path) -> None:
    setup = make()
    saver = Checkpointer(tmp_path, keep=1, full_every=4)
    quick(setup, checkpoint_dir=saver, checkpoint_every=4)
    assert saver.steps() == [20]
    bases = {p.name: json.loads((p / "store.json").read_text())["base"] for p in tmp_path.glob("store-*")}
    assert {name: base and base["path"] for name, base in bases.items()} == {"store-00000020": None}
    setup = make()
    saver = Checkpointer(tmp_path / "more", keep=1, full_every=8)
    quick(setup, checkpoint_dir=saver, checkpoint_every=8)
    assert sorted(p.name for p in (tmp_path / "more").glob("store-*")) == [
        f"store-000000{n}" for n in ("08", "16", "20")
    ]
    again = make()
    quick(again, checkpoint_dir=Checkpointer(tmp_path / "more"))
    assert_same_bits(setup.weights(), again.weights())


def test_evaluate_by_itself(make) -> None:
    setup = make()
    with TrainContext(setup.model, setup.store, None) as ctx:
        figures = evaluate(ctx, setup.valid)
    assert figures["rows"] == 400 and figures["loss"] == pytest.approx(figures["log_loss"], rel=1e-5)
    assert setup.store.stats()["rows"] == 0


@pytest.mark.parametrize("part", ["one row", "the model"])
def test_predictions_that_are_nan_leave_no_figure(make, part) -> None:
    setup = make()
    rows = {name: values.copy() for name, values in some_rows(400, seed=1).items()}
    if part == "one row":
        rows["price"][7] = math.nan
    else:
        next(setup.model.parameters()).data.fill_(math.nan)
    with TrainContext(setup.model, setup.store, None) as ctx:
        figures = evaluate(ctx, Loader(rows, 100, **ROLES))
    assert figures["nan_scores"] == (1 if part == "one row" else 400)
    assert all(math.isnan(figures[name]) for name in ("loss", "auc", "log_loss"))


def test_bad_settings(make) -> None:
    with pytest.raises(ParameterError, match=r"fit\.epochs must be an int ≥ 0, got -1"):
        quick(make(), epochs=-1)
    with pytest.raises(ParameterError, match=r"fit\.callbacks must be a list"):
        quick(make(), callbacks=[3])


def test_slots_follow_the_schema() -> None:
    assert [slot.name for slot in slots_from_schema(SCHEMA, 8)] == ["user", "item"]
    assert np.array_equal([slot.dim for slot in slots_from_schema(SCHEMA, 8)], [8, 8])


def test_a_stop_at_the_end_of_an_epoch_keeps_its_evaluation(make) -> None:
    setup = make(rows=640, batch_size=64)
    history = quick(setup, epochs=3, valid=setup.valid, max_steps=10)
    assert (history.stats["steps"], [r.step for r in history.of("valid")]) == (10, [10])
    setup = make(rows=640, batch_size=64)
    stopped = quick(setup, epochs=3, valid=setup.valid, log_every=5, callbacks=[lambda record: record.step >= 10])
    assert (stopped.stats["steps"], [r.step for r in stopped.of("valid")]) == (10, [10])


def test_records_of_a_resumed_training_cover_every_step(make, tmp_path) -> None:
    """A checkpoint between two records: what was measured before it is recorded, not forgotten."""
    whole = quick(make(), epochs=2, log_every=8, checkpoint_dir=tmp_path / "whole", checkpoint_every=5)
    quick(make(), epochs=2, log_every=8, checkpoint_dir=tmp_path / "cut", checkpoint_every=5, max_steps=12)
    resumed = quick(make(), epochs=2, log_every=8, checkpoint_dir=tmp_path / "cut", checkpoint_every=5)
    covered = [r.rows for r in resumed.of("train")]
    assert covered == sorted(set(covered)) and covered[-1] == resumed.stats["rows"] == whole.stats["rows"]
    losses = {r.step: r.loss for r in whole.of("train")}
    shared = [r for r in resumed.of("train") if r.step in losses and r.step not in (12, 15)]
    assert len(shared) > 4 and all(r.loss == pytest.approx(losses[r.step], rel=1e-6) for r in shared)


@pytest.mark.parametrize("home", ["store", "tables"])
def test_the_training_loss_counts_every_row_once(make, home) -> None:
    """A short last batch weighs as much as its rows: nothing is learned here, so the loss is that of an evaluation."""
    setup = make(rows=70, batch_size=64, optimizer=SGD(lr=0.0))
    setup.optimizer = torch.optim.SGD(setup.model.parameters(), lr=0.0)
    if home == "tables":
        setup.store = FusedEmbeddings(SCHEMA, 4, optimizer="sgd", lr=0.0)
    history = quick(setup)
    with TrainContext(setup.model, setup.store, None) as ctx:
        figures = evaluate(ctx, setup.loader)
    assert history.last("train").rows == figures["rows"] == 70
    assert history.last("train").loss == pytest.approx(figures["loss"], rel=1e-6)
