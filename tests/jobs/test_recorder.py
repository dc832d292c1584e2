"""A recorder keeps what a run hands over as plain data, whatever becomes of the run."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import polars as pl
import pytest
import torch

from penstock import ColumnSchema, Dataset, Schema
from penstock.jobs import RunRecorder
from penstock.jobs.events import DataOpened, DataPrepared, Recorded, RunBegan, RunDone, RunFailed, StageBegan, Trained
from penstock.jobs.progress_lines import ProgressLines
from penstock.report import render, write
from penstock.train import History, TrainRecord, ValidRecord, record_from_dict


def read(place: Path) -> dict:
    def refuse(text: str) -> None:
        raise AssertionError(f"report.json holds {text}")

    return json.loads((place / "report.json").read_text(), parse_constant=refuse)


def test_a_finished_run_is_told_in_full(recorded: RunRecorder) -> None:
    report = read(recorded.directory)
    assert (report["version"], report["state"], report["error"], report["problems"]) == (1, "done", None, [])
    head = report["headline"]
    assert 0.6 < head["auc"] < 0.9 and head["auc_reached"] == pytest.approx((head["auc"] - 0.5) / 0.4)
    assert (head["rows"], head["rows_trained"], head["step"], head["steps"]) == (1500, 3000, 60, 60)
    assert head["rows_per_second"] > 0 and head["embedding_rows"] == report["store"]["rows"]
    assert [column["name"] for column in report["raw"]["columns"]] == ["user", "item", "price", "click"]
    assert report["raw"]["columns"][2]["null_share"] == pytest.approx(0.1, abs=0.03)
    assert [node["title"] for node in report["workflow"]["nodes"] if node["kind"] == "operator"] == [
        "Categorify", "FillMissing", "Normalize",
    ]  # fmt: skip
    assert [stage["name"] for stage in report["stages"]] == ["etl", "train"]
    assert all(stage["seconds"] > 0 for stage in report["stages"])
    assert report["machine"]["versions"]["penstock"] and report["machine"]["cores"] >= 1


def test_tables_tell_hits_and_hot_ids(recorded: RunRecorder) -> None:
    report = recorded.report()
    tables = {table["name"]: table for table in report["store"]["tables"]}
    assert set(tables) == {"user", "item"}
    assert tables["user"]["rows"] == 40 and 0.5 < tables["user"]["hit_rate"] < 1 and tables["user"]["missed"] == 0
    counts = recorded.report()["raw"]["columns"][0]["histogram"]
    hot = report["hot_ids"]["user"]
    assert [entry["value"] for entry in hot[:3]] == counts["values"][:3]  # the codes stand for the raw values
    assert hot[0]["share"] == pytest.approx(counts["counts"][0] / 1500)


def test_the_time_of_training_adds_up(recorded: RunRecorder) -> None:
    report = recorded.report()
    lanes = {lane["name"]: lane for lane in report["time"]["lanes"]}
    assert list(lanes) == ["training loop", "embedding thread", "loader threads"]
    trained = next(stage["seconds"] for stage in report["stages"] if stage["name"] == "train")
    assert 0 < lanes["training loop"]["seconds"] <= trained  # kernels may be compiled before the first step
    assert {stage["key"] for stage in lanes["training loop"]["stages"]} >= {"wait", "forward", "backward", "evaluation"}
    assert report["time"]["verdict"]["kind"] in ("dense-bound", "loader-bound", "look-up-bound", "update-bound")


def test_a_report_never_stops_the_run(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path)
    recorder(DataOpened("no data set"))
    recorder(DataPrepared("no data set"))
    with pytest.raises(TypeError, match="no event of a job"):  # a mistake in the code, and not in the run
        recorder("unheard of")
    recorder(RunFailed("column 'C27' is not in train.tsv"))
    report = read(tmp_path)
    assert report["state"] == "failed" and report["error"] == "column 'C27' is not in train.tsv"
    assert [problem.split(":")[0] for problem in report["problems"]] == ["data_opened", "data_prepared"]
    page = recorder.path.read_text()
    assert "Not collected" in page and "column &#x27;C27&#x27; is not in train.tsv" in page


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    recorder = RunRecorder(tmp_path / "file" / "run")
    with pytest.warns(UserWarning, match=r"the report could not be written to .*file.run"):
        recorder(RunDone({}))


def test_figures_that_are_not_finite_become_nothing(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path)
    recorder(RunBegan({"lr": float("inf"), "path": Path("a")}, Path("run")))
    nothing = float("nan")
    recorder(Recorded(TrainRecord(step=50, rows=10, loss=nothing, metrics={"auc": nothing})))
    recorder(Recorded(ValidRecord(step=50, epoch=0, rows=10, loss=nothing, metrics={"auc": 0.6}, seconds=0.1)))
    recorder(RunDone({"auc": float("nan"), "log_loss": float("nan")}))
    report = read(tmp_path)
    assert report["configuration"] == {"lr": None, "path": "a"}
    assert report["records"][0]["loss"] is None and report["headline"]["auc"] is None


@pytest.mark.parametrize(
    ("interrupted", "state", "word"), [(True, "interrupted", "stopped"), (False, "failed", "failed")]
)
def test_a_run_that_ends_early_says_so(tmp_path: Path, interrupted: bool, state: str, word: str) -> None:
    recorder = RunRecorder(tmp_path)
    recorder(StageBegan("etl"))
    recorder(RunFailed("stopped at step 3", interrupted))
    assert read(tmp_path)["state"] == state
    page = recorder.path.read_text()
    assert f'class="state {state}" id="state">{word}<' in page and "the run ended before it came to it" in page


def test_a_resumed_run_shows_its_earlier_curves(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path)
    before = {"kind": "train", "step": 50, "loss": 0.7, "rows": 500}
    after = {"kind": "train", "step": 100, "loss": 0.6, "rows": 1000}
    recorder.record(record_from_dict(after))
    recorder(Trained(History([record_from_dict(before), record_from_dict(after)], {"rows": 1000})))
    assert [record["step"] for record in recorder.report()["records"]] == [50, 100]


def test_a_resumed_run_goes_on_from_its_last_report(tmp_path: Path) -> None:
    first = RunRecorder(tmp_path)
    for step in (50, 100, 150):
        first(Recorded(TrainRecord(step=step, rows=step, loss=1 / step)))
    first(RunFailed("stopped", True))
    second = RunRecorder(tmp_path)
    second(RunBegan({}, "run", is_resumed=True))
    assert [record["step"] for record in second.report()["records"]] == [50, 100, 150]
    second(Recorded(TrainRecord(step=100, rows=100, loss=0.5)))  # its checkpoint was of step 50
    second(Recorded(TrainRecord(step=150, rows=150, loss=0.4)))
    assert [(r["step"], r["loss"]) for r in second.report()["records"]] == [(50, 0.02), (100, 0.5), (150, 0.4)]
    lost = RunRecorder(tmp_path / "elsewhere")
    lost(RunBegan({}, "run", is_resumed=True))
    assert "report.json" in lost.report()["problems"][0]


def test_every_metric_of_a_record_is_shown(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path)
    recorder(Recorded(TrainRecord(step=10, rows=100, loss=0.7, metrics={"click/auc": 0.6})))
    measured = {"click/auc": 0.71, "buy/ndcg@10": 0.42}
    recorder(Recorded(ValidRecord(step=10, epoch=0, rows=50, loss=0.65, metrics=measured)))
    recorder(RunDone({}))
    report, page = read(tmp_path), recorder.path.read_text()
    assert report["headline"]["metrics"] == measured
    for words in ("click/AUC", "buy/NDCG@10", "0.7100", "0.4200"):
        assert words in page, words
    assert page.count("<title>click/AUC</title>") == 1 and "AUC on held-out rows" not in page


def test_lines_name_every_metric() -> None:
    said: list[str] = []
    lines = ProgressLines(said.append)
    lines(Recorded(TrainRecord(step=10, rows=100, loss=0.7, metrics={"auc": 0.6})))
    lines(Recorded(ValidRecord(step=1000, epoch=0, rows=50, loss=0.65, metrics={"auc": 0.6, "click/log_loss": 0.5})))
    lines(Recorded(ValidRecord(step=2000, epoch=0, rows=50, loss=0.6)))
    lines(Recorded(ValidRecord(step=3000, epoch=0, rows=50, loss=0.55, metrics={"log_loss": 0.55})))
    assert said == [
        "step 1,000: loss 0.6500, AUC 0.6000, click/log loss 0.5000 on 50 held-out rows",
        "step 2,000: loss 0.6000 on 50 held-out rows",
        "step 3,000: log loss 0.5500 on 50 held-out rows",  # and not twice
    ]


def test_tables_on_the_device(tmp_path: Path) -> None:
    from penstock.embedding import CachedEmbeddings, EmbeddingTables, FusedEmbeddings
    from penstock.jobs.table_figures import store_tables

    schema = Schema([ColumnSchema("user", "int64", role="categorical", cardinality=10)])
    for tables in (EmbeddingTables(schema, 4), FusedEmbeddings({"user": 10}, 4)):
        found = store_tables(tables)
        assert found is not None and (found["kind"], found["rows"]) == (type(tables).__name__, 10)
        assert (found["tables"][0]["bytes"], found["tables"][0]["hit_rate"]) == (160, None)
    cached = CachedEmbeddings({"user": 100}, dim=4, cache_rows=8)
    for _ in range(4):
        cached({"user": torch.tensor([1, 2, 3])}).sum().backward()
    found = store_tables(cached)
    assert found is not None and found["cache"] == {"rows": 3, "hit_rate": 0.75}
    page = render({"version": 1, "state": "done", "store": found})
    assert "3 of them on the device, which had 75 % of the ids" in page
    assert store_tables(None) is None and store_tables(torch.nn.Linear(1, 1)) is None


def test_odd_columns_are_shown(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path)
    odd = {
        "nothing": pl.Series([None, None, None], dtype=pl.Int32),
        "day": [datetime.date(2024, 1, day) for day in (1, 2, 3)],
        "real": [1.0, float("nan"), float("inf")],
        "lists": [[1, 2], [], None],
        "flag": [True, False, None],
    }
    recorder(DataOpened(Dataset(pl.DataFrame(odd))))
    recorder(DataOpened(Dataset(pl.DataFrame(odd).clear())))
    recorder(RunDone({}))
    page = recorder.path.read_text()
    assert recorder.report()["problems"] == [] and "no values" in page and "list[int64]" in page


def test_features_without_a_workflow(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path)
    recorder(DataPrepared(Dataset({"user": [1, 2, 1], "click": [0, 1, 0]})))
    recorder(RunDone({}))
    page = recorder.path.read_text()
    assert "features that were made before" in page and "No workflow: the run began with features made before" in page


def test_reports_of_another_version_are_refused(tmp_path: Path) -> None:
    from penstock.core.errors import ArtefactError

    for report in ({"version": 2}, {}, {"version": None}):
        with pytest.raises(ArtefactError, match="not a run's report of version 1"):
            render(report)
    assert write({"version": 1}, tmp_path / "new" / "folder").is_file()
