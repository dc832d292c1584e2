"""A run of some rows is trained without its regression, too; held-out rows say which of the two is the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from penstock.jobs import TrainingStopped, TrainJob, defaults, second_try, training_run
from penstock.jobs.events import StageBegan
from penstock.jobs.progress_lines import ProgressLines
from penstock.jobs.run_folder import RunFolder

RECIPE = {
    "recipe": 1,
    "input": {"roles": {"label": ["click"]}},
    "nodes": {"label": {"columns": ["click"]}, "ids": {"columns": ["user", "item"], "ops": ["Categorify"]}},
    "output": ["label", "ids"],
}
SETTINGS = {"model": {"name": "MLP", "hidden": [8]}, "embedding_dim": 4, "epochs": 2, "device": "cpu", "staleness": 1}


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """So few that tests are short; what is done with them is what is done with many."""
    monkeypatch.setattr(defaults, "_FEW_ROWS", 500)
    rng = np.random.default_rng(0)
    user, item = rng.integers(0, 20, (2, 1_000))
    clicks = rng.random(1_000) < 1 / (1 + np.exp(-rng.normal(0, 1, 20)[user] - rng.normal(0, 1, 20)[item]))
    pl.DataFrame({"click": clicks.astype(int), "user": user, "item": item}).write_parquet(tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def job(rows: Path, place: str, **hooks: Any) -> TrainJob:
    settings = {**SETTINGS, **hooks.pop("settings", {})}
    return TrainJob(rows, rows.parent / place, RECIPE, settings=settings, progress=False, num_examples=0, **hooks)


def configuration(place: Path) -> dict[str, Any]:
    return yaml.safe_load((place / "config.yaml").read_text())


def always(is_better: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_run, "is_better", lambda second, first: is_better)


def test_the_second_is_kept_where_it_is_better(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    always(True, monkeypatch)
    found = job(rows, "run").run()
    run = RunFolder(rows.parent / "run")
    settings = configuration(run.path)
    assert settings["linear_start"] is False and "init" not in settings["store"]
    assert not run.second.exists() and not found.selected.get("is_start")
    alone = job(rows, "alone", settings={"linear_start": False, "select_by": "log_loss"}).run()
    assert (found.auc, found.log_loss, found.selected) == (alone.auc, alone.log_loss, alone.selected)
    again = TrainJob.resumed(run.path, progress=False).run()
    assert (again.auc, again.log_loss) == (found.auc, found.log_loss)


def test_the_first_is_kept_where_the_second_is_not(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    always(False, monkeypatch)
    found = job(rows, "run").run()
    assert configuration(rows.parent / "run")["linear_start"] is True
    assert not RunFolder(rows.parent / "run").second.exists()
    asked = job(rows, "asked", settings={"linear_start": True}).run()
    assert (found.auc, found.log_loss, found.selected) == (asked.auc, asked.log_loss, asked.selected)


def test_the_report_tells_of_the_one_that_is_kept(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.jobs.recorder import RunRecorder

    always(True, monkeypatch)
    recorder = RunRecorder(rows.parent / "page")
    found = job(rows, "run", listener=recorder).run()
    told = json.loads((rows.parent / "page" / "report.json").read_text())
    evaluated = [record for record in told["records"] if record["kind"] == "valid"]
    assert [record["epoch"] for record in evaluated] == [0, 1]  # none of them of the regression
    assert told["selected"]["step"] == found.selected["step"] and not told["problems"]
    assert [stage["name"] for stage in told["stages"]] == ["etl", "regression", "train", "second", "save", "predict"]


@pytest.mark.parametrize("is_better", [False, True])
def test_somebody_who_waits_is_told(rows: Path, monkeypatch: pytest.MonkeyPatch, is_better: bool) -> None:
    always(is_better, monkeypatch)
    said: list[str] = []
    job(rows, "run", listener=ProgressLines(said.append)).run()
    after = said[said.index(next(line for line in said if line.startswith("a second training"))) + 1 :]
    assert after[0].startswith("training MLP" if is_better else "the training beside the regression is kept")


@pytest.mark.parametrize("settings", [{"linear_start": True}, {"linear_start": False}, {"max_steps": 3}])
def test_what_is_asked_for_is_done_once(rows: Path, settings: dict[str, Any]) -> None:
    stages: list[str] = []
    hooks = {"listener": lambda event: stages.append(event.name) if isinstance(event, StageBegan) else None}
    job(rows, "run", settings=settings, **hooks).run()
    assert "train" in stages and "second" not in stages


@pytest.mark.parametrize("is_better", [False, True])
def test_stopped_in_the_second_it_ends_as_never_stopped(
    rows: Path, monkeypatch: pytest.MonkeyPatch, is_better: bool
) -> None:
    always(is_better, monkeypatch)
    whole = job(rows, "whole").run()
    stages: list[str] = []

    def in_the_second() -> bool:
        return "second" in stages

    def listen(event: Any) -> None:
        if isinstance(event, StageBegan):
            stages.append(event.name)

    with pytest.raises(TrainingStopped):
        job(rows, "stopped", listener=listen, stop=in_the_second).run()
    again = TrainJob.resumed(rows.parent / "stopped", progress=False).run()
    assert not RunFolder(rows.parent / "stopped").second.exists()
    assert (again.auc, again.log_loss, again.selected) == (whole.auc, whole.log_loss, whole.selected)


def test_what_a_killed_second_training_leaves_goes_with_the_next_run(rows: Path) -> None:
    job(rows, "run", settings={"linear_start": False}).run()
    left = RunFolder(rows.parent / "run").second
    (left / "checkpoints").mkdir(parents=True)
    TrainJob.resumed(rows.parent / "run", progress=False).run()
    assert not left.exists()


@pytest.mark.parametrize("moment", ["settle", "sync"])
def test_whenever_it_is_interrupted_checkpoints_are_those_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    folder = RunFolder(tmp_path)
    for place, training_of in ((folder.checkpoints, "first"), (RunFolder(folder.second).checkpoints, "second")):
        place.mkdir(parents=True)
        (place / "whose").write_text(training_of)
    settled: list[str] = []

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    if moment == "sync":
        monkeypatch.setattr(second_try, "sync_folder", interrupt)
    with pytest.raises(KeyboardInterrupt):
        second_try.take_place(folder, interrupt if moment == "settle" else lambda: settled.append("second"))
    assert not folder.checkpoints.exists() and not settled
    second_try.shutil.rmtree(folder.second)  # what the next run does first
