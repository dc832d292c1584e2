"""Training, evaluation and prediction on the command line."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import polars as pl
import pytest
import yaml

from penstock import Dataset
from penstock.cli.stopping import GracefulStop
from penstock.data.synthetic import criteo
from penstock.jobs import TrainSettings
from penstock.jobs.events import StageBegan, Trained
from penstock.serve import Predictor
from penstock.train import History

from .conftest import call, fails, ok

QUICK = ("--model", "MLP", "--embedding-dim", 4, "--batch-size", 256, "--epochs", 1, "--device", "cpu")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "day.tsv"
    criteo(path, 3_000, cardinalities=60, progress=False)
    return path


@pytest.fixture(scope="module")
def run(logs: Path) -> Path:
    """A trained run."""
    ok("train", logs, "--preset", "criteo", "--output", logs.parent / "run", *QUICK)
    return logs.parent / "run"


def test_a_run_and_its_model_are_inspected_as_their_workflow(run: Path) -> None:
    shown = {ok("inspect", run / part, "--json") for part in ("workflow", ".", "model", "model/model")}
    assert len({json.dumps(json.loads(found)["outputs"]) for found in shown}) == 1
    assert "Categorify" in ok("inspect", run)


# train


def test_train_writes_a_whole_run(logs: Path, tmp_path: Path) -> None:
    result = call("train", logs, "--preset", "criteo", "-o", tmp_path / "run", *QUICK)
    assert result.exit_code == 0, result.output
    said = result.stdout
    told = [
        r"making features",
        r"a logistic regression to begin with",
        r"training MLP on 2,700 rows, 11 steps of 256",
        r"step 0: AUC 0\.\d+, log loss 0\.\d+ on 300 held.*",
        r"step 11: AUC 0\.\d+, log loss 0\.\d+ on 300 held.*",
    ]
    assert all(re.fullmatch(e, line) for e, line in zip(told, result.stderr.splitlines(), strict=True)), result.stderr
    assert re.search(r"AUC +0\.\d{4}", said) and "2,700 to train on, 300 held out" in said
    assert said.splitlines()[-1] == f"report: {tmp_path / 'run' / 'report.html'}"
    parts = {"model", "features", "valid", "workflow", "checkpoints", "config.yaml", "report.json", "report.html"}
    assert {p.name for p in (tmp_path / "run").iterdir()} == parts
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert (report["state"], report["configuration"]["embedding_dim"]) == ("done", 4)
    assert [stage["name"] for stage in report["stages"]] == ["etl", "regression", "train", "save", "predict"]


def test_train_takes_settings_from_a_file_and_options_win(logs: Path, tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    config.write_text(
        f"data: {logs}\npreset: criteo\nlearning_rate: 0.3\nepochs: 1\nbatch_size: 64\n"
        "model: {name: MLP, hidden: [8]}\n"
        "embedding_optimizer: {name: LazyAdam, lr: 0.01}\nvalid_share: 0.5\n"
    )
    found = json.loads(
        ok("train", "--config", config, "-o", tmp_path / "run", "--batch-size", 300, "--lr", 0.5, "--json")
    )
    assert (found["steps"], found["rows"]) == (5, {"train": 1_500, "valid": 1_500})
    resolved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (resolved["batch_size"], resolved["dense_optimizer"]) == (300, {"name": "Adam", "lr": 0.5})
    assert resolved["embedding_optimizer"] == {"name": "LazyAdam", "lr": 0.01}
    assert resolved["model"] == {"name": "MLP", "hidden": [8], "dropout": 0.3, "linear": True}
    again = json.loads(ok("train", "--config", tmp_path / "run" / "config.yaml", "-o", tmp_path / "again", "--json"))
    assert yaml.safe_load((tmp_path / "again" / "config.yaml").read_text()) == resolved
    assert (again["steps"], again["rows"]) == (found["steps"], found["rows"])
    assert (again["auc"], again["log_loss"]) == (found["auc"], found["log_loss"])


def test_train_on_features_needs_no_recipe(logs: Path, tmp_path: Path) -> None:
    ok("etl", logs, "-o", tmp_path / "features", "--preset", "criteo")
    found = json.loads(ok("train", tmp_path / "features", "-o", tmp_path / "run", *QUICK, "--json"))
    assert found["rows"] == {"train": 2_700, "valid": 300}
    assert ok("predict", found["model"], logs, "--output", "-").count("\n") == 3_001  # raw rows, through the workflow
    found = json.loads(
        ok(
            "train",
            tmp_path / "features",
            "--valid",
            tmp_path / "run" / "valid",
            "-o",
            tmp_path / "b",
            *QUICK,
            "--json",
        )
    )
    assert found["rows"] == {"train": 3_000, "valid": 300}


def test_train_resumes_with_more_epochs_and_overwrites(logs: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    ok("train", logs, "--preset", "criteo", "-o", place, *QUICK)
    assert "--overwrite to replace it, --resume to go on" in fails(
        1, "train", logs, "--preset", "criteo", "-o", place, *QUICK
    )
    found = json.loads(ok("train", "--resume", "-o", place, "--epochs", 2, "--json"))
    assert found["steps"] == 22
    assert "cannot become 8" in fails(1, "train", "--resume", "-o", place, "--embedding-dim", 8)
    fails(2, "train", logs, "--resume", "-o", place)
    found = json.loads(ok("train", logs, "--preset", "criteo", "-o", place, *QUICK, "--overwrite", "--json"))
    assert found["steps"] == 11


def test_train_with_tables_on_the_device(logs: Path, tmp_path: Path) -> None:
    """The whole way; on a GPU `--tables fused` is what `--device cuda` means."""
    place, options = tmp_path / "run", (*QUICK, "--tables", "fused", "--autocast", "bfloat16")
    result = call("train", logs, "--preset", "criteo", "-o", place, *options)
    assert result.exit_code == 0 and "11 steps of 256, embeddings in tables on cpu" in result.stderr, result.output
    report = json.loads((place / "report.json").read_text())
    assert report["store"]["kind"] == "FusedEmbeddings" and report["headline"]["log_loss"] > 0
    config = yaml.safe_load((place / "config.yaml").read_text())
    assert (config["tables"], config["autocast"]) == ("fused", "bfloat16")
    found = json.loads(ok("train", "--resume", "-o", place, "--epochs", 2, "--json"))
    assert found["steps"] == 22
    figures = json.loads(ok("evaluate", place, place / "valid", "--json"))
    assert figures["auc"] == pytest.approx(found["auc"], abs=0.01)  # training evaluates in bfloat16
    assert ok("predict", place, logs, "--output", "-").count("\n") == 3_001
    config = tmp_path / "ftrl.yaml"
    config.write_text("embedding_optimizer: {name: FTRL}\n")
    said = fails(1, "train", logs, "--preset", "criteo", "-o", tmp_path / "b", "--config", config, *options)
    assert "embedding_optimizer is {'name': 'FTRL'}" in said and "--tables store" in said
    fails(2, "train", logs, "--preset", "criteo", "-o", tmp_path / "b", "--tables", "gpu")
    result = call("train", logs, "--preset", "criteo", "-o", tmp_path / "c", *QUICK, "--tables", "cached")
    assert result.exit_code == 0 and re.search("tables with [0-9,]+ rows cached on cpu", result.stderr), result.output
    assert "cannot become 'store'" in fails(1, "train", "--resume", "-o", place, "--tables", "store")


def test_train_tells_tensorboard(logs: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    ok("train", logs, "--preset", "criteo", "-o", tmp_path / "run", *QUICK, "--tensorboard", tmp_path / "events")
    assert list((tmp_path / "events").glob("events.out.tfevents*"))


def test_train_can_be_watched(logs: Path, tmp_path: Path) -> None:
    result = call("train", logs, "--preset", "criteo", "-o", tmp_path / "run", *QUICK, "--watch")
    assert result.exit_code == 0, result.output
    assert re.search(r"watch it at http://127\.0\.0\.1:\d+", result.stderr)


def test_a_port_that_is_taken_is_named_before_anything_is_written(logs: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = fails(1, "train", logs, "--preset", "criteo", "-o", tmp_path / "run", *QUICK, "--watch", "--port", port)
    assert str(port) in said and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--preset", "criteo"), 2, "give DATA"),
        (("nope.tsv",), 1, "nope.tsv does not exist"),
        (("nope.tsv", "--preset", "criteo"), 1, "nope.tsv does not exist"),
        (("{logs}", "--preset", "critoe"), 1, "did you mean 'criteo'"),
        (("{logs}", "--preset", "criteo", "--epochs", 0), 1, "epochs must be an int ≥ 1, got 0"),
        (("{logs}", "--preset", "criteo", "--model", "GPT"), 2, "GPT"),
        (("{logs}", "--preset", "criteo", "--device", "gpu"), 1, "which torch does not know"),
        (("{logs}", "--preset", "criteo", "--config", "nope.yaml"), 1, "nope.yaml does not exist"),
        (("{logs}", "--preset", "criteo", "--valid-share", 1), 1, "--valid-share must be"),
        (("{logs}", "--preset", "criteo", "--valid", "nope"), 1, "nope does not exist"),
        (("--resume",), 1, "is not the folder of a training run"),
        (("--resume", "--config", "a.yaml"), 2, "the configuration of the run"),
        (("--resume", "--overwrite"), 2, "the configuration of the run"),
    ],
)
def test_train_refuses_what_cannot_work(
    logs: Path, tmp_path: Path, arguments: tuple, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    given = [str(a).replace("{logs}", str(logs)) for a in arguments]
    assert said in fails(code, "train", *given, "-o", tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_file_with_a_wrong_key_is_named_with_the_nearest(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("learning_rat: 0.1\nepochs: 1\n")
    said = fails(1, "train", logs, "--preset", "criteo", "--config", tmp_path / "train.yaml", "-o", tmp_path / "run")
    assert "train.yaml: unknown key 'learning_rat'" in said
    (tmp_path / "train.yaml").write_text("embeding_dim: 8\n")
    said = fails(1, "train", logs, "--preset", "criteo", "--config", tmp_path / "train.yaml", "-o", tmp_path / "run")
    assert "did you mean 'embedding_dim'" in said


def test_help_tells_the_defaults_that_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown, holds = ok("train", "--help"), TrainSettings()
    expected = {
        "model": holds.model["name"], "embedding-dim": holds.embedding_dim, "staleness": holds.staleness,
        "valid-share": holds.valid_share, "seed": holds.seed, "epochs": "by the rows, until none is better",
        "batch-size": "by the rows", "learning-rate": "by the batch size",
        "embedding-learning-rate": "0.05",
    }  # fmt: skip
    for option, value in expected.items():
        assert re.search(rf"--{option}[ ,].*\[default: \({value}\)\]", shown), option


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_signal_in_training_keeps_a_checkpoint(logs: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    place = tmp_path / "run"
    arguments = ("train", logs, "--preset", "criteo", "-o", place, *QUICK, "--epochs", 2_000)
    command = [sys.executable, "-m", "penstock", *map(str, arguments)]
    default = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        command, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=default
    )
    try:
        deadline = time.monotonic() + 600
        while not list(place.glob("checkpoints/step-*")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "training never began"
            time.sleep(0.01)
        process.send_signal(number)
        _, said = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == code, said
    *before, last = said.splitlines()
    assert "stopping: a checkpoint of this step is written; once more stops at once" in before
    stopped = re.fullmatch(
        rf"stopped at step ([\d,]+) of 22,000; its checkpoint is in {place}; "
        rf"go on with: penstock train --resume --output {place}",
        last,
    )
    assert stopped, last
    steps = int(stopped[1].replace(",", ""))
    assert (place / "checkpoints" / f"step-{steps:08d}").is_dir() and not (place / "model").exists()
    assert json.loads((place / "report.json").read_text())["state"] == "interrupted"
    epochs = steps // 11 + 1
    found = json.loads(ok("train", "--resume", "-o", place, "--epochs", epochs, "--json"))
    assert found["steps"] == 11 * epochs


def test_the_second_signal_stops_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with GracefulStop() as stop, pytest.raises(KeyboardInterrupt):  # outside of training there is nothing to save
        signal.raise_signal(signal.SIGINT)
    with GracefulStop() as stop:
        stop.listen(StageBegan("train"))
        signal.raise_signal(signal.SIGTERM)
        assert stop() and stop.exit_code == 143
        assert "once more stops at once" in capsys.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.exit_code == 130
    with GracefulStop() as stop:
        stop.listen(StageBegan("train"))
        stop.listen(Trained(History()))
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


# evaluate


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(lines))
    return path


def test_rows_to_test_on_are_looked_at_before_the_training(logs: Path, tmp_path: Path) -> None:
    lines = [f"yes{line[1:]}" for line in logs.read_text().splitlines(keepends=True)[:20]]
    odd = written(tmp_path / "odd.tsv", lines)
    said = fails(1, "train", logs, "--preset", "criteo", "-o", tmp_path / "run", "--test", odd, *QUICK)
    assert f"{odd}, line 1: column 'label': not an integer" in said
    assert not (tmp_path / "run" / "features").exists()


def test_evaluate_agrees_with_training(run: Path, logs: Path) -> None:
    trained = json.loads((run / "report.json").read_text())["figures"]
    held_out = json.loads(ok("evaluate", run / "model", run / "valid", "--json"))
    assert held_out["rows"] == 300
    assert held_out["auc"] == pytest.approx(trained["auc"], abs=1e-4)
    assert held_out["log_loss"] == pytest.approx(trained["log_loss"], rel=1e-4)


def test_evaluate_reads_raw_rows_as_training_did(run: Path, logs: Path) -> None:
    from sklearn.metrics import log_loss, roc_auc_score

    found = json.loads(ok("evaluate", run, logs, "--json"))  # the folder of the run will do
    rows = list(csv.DictReader(io.StringIO(ok("predict", run, logs, "-o", "-", "--keep", "label"))))
    clicks, scores = [int(r["label"]) for r in rows], [float(r["probability"]) for r in rows]
    assert found["rows"] == len(rows) == 3_000
    assert found["auc"] == pytest.approx(roc_auc_score(clicks, scores), abs=2e-4)
    assert found["log_loss"] == pytest.approx(log_loss(clicks, scores), rel=1e-5)
    calibration = found["calibration"]
    assert calibration["predicted"] == pytest.approx(sum(scores) / 3_000, rel=1e-6)
    assert calibration["clicked"] == pytest.approx(sum(clicks) / 3_000)
    assert sum(b["rows"] for b in calibration["bins"]) == 3_000 and len(calibration["bins"]) == 10
    assert 0 < found["unknown"]["C3"] < 0.5
    said = ok("evaluate", run, logs)
    assert "unknown categories" in said and "expected error" in said


def test_evaluate_counts_categories_that_training_has_not_seen(run: Path, logs: Path, tmp_path: Path) -> None:
    lines = [line.split("\t") for line in logs.read_text().splitlines()[:100]]
    for fields in lines[:25]:
        fields[14] = "0badcafe"
    (tmp_path / "new.tsv").write_text("".join("\t".join(fields) + "\n" for fields in lines))
    (tmp_path / "old.tsv").write_text("".join(f"{line}\n" for line in logs.read_text().splitlines()[:100]))
    new, old = (json.loads(ok("evaluate", run, tmp_path / f"{n}.tsv", "--json"))["unknown"] for n in ("new", "old"))
    assert 0.2 < new["C1"] - old["C1"] <= 0.25
    assert {k: v for k, v in new.items() if k != "C1"} == {k: v for k, v in old.items() if k != "C1"}


def test_evaluate_says_what_is_wrong(run: Path, logs: Path, tmp_path: Path) -> None:
    unlabelled = _without_label(logs, tmp_path)
    assert f"column 'label' is not in {unlabelled}" in fails(1, "evaluate", run, unlabelled)
    assert "nope does not exist; name the folder of a training run" in fails(1, "evaluate", tmp_path / "nope", logs)
    assert "does not exist" in fails(1, "evaluate", run, tmp_path / "nope.tsv")
    lines = logs.read_text().splitlines(keepends=True)[:50]
    gap = written(
        tmp_path / "gap.tsv", [*lines[:40], lines[40].partition("\t")[1] + lines[40].partition("\t")[2], *lines]
    )
    assert f"missing values, first in {gap}, line 41" in fails(1, "evaluate", run, gap)
    frame = Dataset(run / "valid").to_polars().with_columns(label=pl.lit(3))
    frame.write_parquet(tmp_path / "odd.parquet")
    (tmp_path / "odd.parquet.schema.json").write_text((run / "valid" / "_schema.json").read_text())
    assert "must be 0 or 1 in every row, got 3" in fails(1, "evaluate", run, tmp_path / "odd.parquet", "--features")


# predict


def _without_label(logs: Path, tmp_path: Path) -> Path:
    path = tmp_path / "unlabelled.tsv"
    path.write_text("".join(line.split("\t", 1)[1] for line in logs.read_text().splitlines(keepends=True)[:200]))
    return path


@pytest.mark.parametrize("suffix", ["parquet", "csv", "tsv"])
def test_predict_writes_what_the_predictor_says(run: Path, logs: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"scores.{suffix}"
    said = ok("predict", run / "model", logs, "-o", out, "--keep", "C2", "--keep", "label", "--column", "p")
    assert said.startswith(f"{out}: 3,000 predictions in ")
    read = pl.read_parquet if suffix == "parquet" else partial(pl.read_csv, separator="\t" if suffix == "tsv" else ",")
    frame = read(out)
    assert frame.columns == ["C2", "label", "p"]
    fields = [line.split("\t") for line in logs.read_text().splitlines()]
    assert frame["C2"].fill_null("").to_list() == [f[15] for f in fields]
    with Predictor(run / "model") as predictor:
        names = [*(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
        rows = [
            {n: None if v == "" else (int(v) if n[0] == "I" else v) for n, v in zip(names, f[1:], strict=True)}
            for f in fields[:50]
        ]
        assert frame["p"].head(50).to_list() == pytest.approx(predictor.predict(rows).tolist(), rel=1e-6)
    assert sorted(p.name for p in tmp_path.iterdir()) == [out.name]


def test_predict_understands_rows_without_the_label(run: Path, logs: Path, tmp_path: Path) -> None:
    name, *with_label = ok("predict", run, logs, "-o", "-").splitlines()
    also_name, *without = ok("predict", run, _without_label(logs, tmp_path), "-o", "-").splitlines()
    assert (also_name, len(without)) == (name, 200)
    # Sums of a batch of another size may differ in their last bit.
    assert [float(said) for said in without] == pytest.approx([float(said) for said in with_label[:200]], rel=1e-6)


def test_predict_on_features_is_the_same(run: Path, logs: Path, tmp_path: Path) -> None:
    ok("etl", logs, "-o", tmp_path / "features", "--apply", run / "workflow", "--preset", "criteo")
    assert ok("predict", run, tmp_path / "features", "-o", "-") == ok("predict", run, logs, "-o", "-")


def test_predict_says_what_is_wrong(run: Path, logs: Path, tmp_path: Path) -> None:
    assert "use .parquet, .csv, .tsv or -" in fails(1, "predict", run, logs, "-o", tmp_path / "a.xls")
    assert "does not exist" in fails(1, "predict", run, logs, "-o", tmp_path / "no" / "a.csv")
    missing = f"column 'C99' is not in {logs}; did you mean 'C9'"
    assert missing in fails(1, "predict", run, logs, "-o", "-", "--keep", "C99")
    assert "name that another way" in fails(1, "predict", run, logs, "-o", "-", "--keep", "label", "--column", "label")
    (tmp_path / "a.csv").write_text("mine")
    assert "exists already" in fails(1, "predict", run, logs, "-o", tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "mine"
    ok("predict", run, logs, "-o", tmp_path / "a.csv", "--overwrite")
    fails(2, "predict", run, logs)


def test_predict_leaves_nothing_when_a_line_is_broken(run: Path, logs: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.tsv"
    bad.write_text(logs.read_text() + "1\t2\t3\n")
    assert "line 3001" in fails(1, "predict", run, bad, "-o", tmp_path / "a.parquet")
    assert [p.name for p in tmp_path.iterdir()] == ["bad.tsv"]
