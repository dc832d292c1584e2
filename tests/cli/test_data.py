"""The command line: what it writes, what it says when something is wrong, and what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from typer.main import get_command

from penstock import Dataset, Role, Workflow, ops
from penstock.cli import app
from penstock.data.synthetic import criteo

from .conftest import call, fails, ok

ROWS = 3_000


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "day.tsv"
    criteo(path, ROWS, cardinalities=200, progress=False)
    return path


@pytest.fixture(scope="module")
def features(logs: Path) -> Path:
    output = logs.parent / "features"
    ok("etl", logs, "-o", output, "--preset", "criteo")
    return output


# synth


@pytest.mark.parametrize(("kind", "first"), [("criteo", "label"), ("multihot", "label"), ("movielens", "user")])
def test_synth_writes_each_kind(kind: str, first: str, tmp_path: Path) -> None:
    out = tmp_path / "data.parquet"
    said = ok("synth", out, "--rows", 500, "--kind", kind, "--format", "parquet", "--cardinality-cap", 50)
    assert "500 rows" in said
    data = Dataset(out)
    assert (data.num_rows, data.schema.names[0]) == (500, first)


def test_synth_is_repeatable_and_seeded(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        ok("synth", tmp_path / f"{name}.tsv", "--rows", 100, "--seed", seed, "--cardinality-cap", 50)
    a, b, c = ((tmp_path / f"{name}.tsv").read_bytes() for name in "abc")
    assert a == b != c


def test_synth_files_make_a_folder(tmp_path: Path) -> None:
    ok("synth", tmp_path / "days", "--rows", 100, "--files", 3, "--cardinality-cap", 50)
    assert [p.name for p in sorted((tmp_path / "days").glob("*.tsv"))] == [f"part-0000{i}.tsv" for i in range(3)]


def test_synth_refuses_lists_in_tsv_and_what_is_there(tmp_path: Path) -> None:
    assert "list columns" in fails(2, "synth", tmp_path / "a.tsv", "--kind", "multihot", "--format", "tsv")
    (tmp_path / "b.tsv").write_text("mine")
    fails(1, "synth", tmp_path / "b.tsv", "--rows", 10)
    assert (tmp_path / "b.tsv").read_text() == "mine"


# etl


def test_etl_writes_features_schema_and_workflow(features: Path) -> None:
    data = Dataset(features)
    frame = data.to_polars()
    assert frame.height == ROWS
    assert data.schema["label"].role is Role.LABEL
    assert data.schema["C1"].dtype == "int32"
    assert frame["C1"].max() < data.schema["C1"].cardinality
    assert frame["I1"].dtype == pl.Float32
    assert abs(frame["I1"].mean()) < 1e-5
    workflow = Workflow.load(f"{features}-workflow")
    assert workflow.output_schema["C1"].cardinality == data.schema["C1"].cardinality


def test_etl_is_what_the_library_does(logs: Path, features: Path) -> None:
    from penstock.etl import presets
    from penstock.etl.input_section import open_input

    recipe = presets.load("criteo")
    by_hand = Workflow.from_recipe(recipe).fit_transform(open_input(str(logs), recipe["input"])).to_polars()
    assert Dataset(features).to_polars().equals(by_hand)


def test_etl_summary(logs: Path, tmp_path: Path) -> None:
    said = ok("etl", logs, "-o", tmp_path / "out", "--preset", "criteo")
    assert f"{ROWS:,} rows in " in said
    assert "bad lines: 0" in said
    assert re.search(r"C2 +int32 +categorical +\d+ +\d+ × \d+", said)


def test_etl_apply_transforms_without_fitting(logs: Path, features: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.tsv"
    criteo(other, 200, cardinalities=200, seed=9)
    ok("etl", other, "-o", tmp_path / "out", "--apply", f"{features}-workflow", "--preset", "criteo")
    assert Dataset(tmp_path / "out").num_rows == 200
    assert Dataset(tmp_path / "out").schema["C1"].cardinality == Dataset(features).schema["C1"].cardinality
    assert not (tmp_path / "out-workflow").exists()


def test_etl_with_a_recipe_file_several_inputs_and_a_shuffle(tmp_path: Path) -> None:
    for number in range(2):
        frame = pl.DataFrame({"user": [f"u{i % 7}" for i in range(50)], "n": range(number * 50, number * 50 + 50)})
        frame.write_parquet(tmp_path / f"in{number}.parquet")
    Workflow(["n"] + (["user"] >> ops.Categorify())).to_yaml(tmp_path / "recipe.yaml")
    out = tmp_path / "out"
    ok(
        "etl", tmp_path / "in0.parquet", tmp_path / "in1.parquet", "-o", out, "--recipe", tmp_path / "recipe.yaml",
        "--shuffle", "full", "--row-group-size", 10, "--files", 2, "--workflow", tmp_path / "kept",
    )  # fmt: skip
    numbers = Dataset(out).to_polars()["n"].to_list()
    assert sorted(numbers) == list(range(100))
    assert numbers != list(range(100))
    assert len(list(out.glob("*.parquet"))) == 2
    assert (tmp_path / "kept" / "manifest.json").is_file()


def test_etl_reads_criteo_parquet_with_the_same_preset(logs: Path, features: Path, tmp_path: Path) -> None:
    criteo(tmp_path / "day.parquet", ROWS, cardinalities=200, format="parquet", raw_hex=False)
    ok("etl", tmp_path / "day.parquet", "-o", tmp_path / "out", "--preset", "criteo")
    assert Dataset(tmp_path / "out").to_polars().equals(Dataset(features).to_polars())


# etl: what goes wrong


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    said = fails(1, "etl", tmp_path / "nope.tsv", "-o", tmp_path / "out", "--preset", "criteo")
    assert said.startswith("error: ")
    assert "nope.tsv does not exist" in said
    assert said.count("\n") == 1


@pytest.fixture
def ragged(logs: Path, tmp_path: Path) -> Path:
    lines = logs.read_text().splitlines(keepends=True)[:100]
    lines[41] = "1\t2\t3\n"
    path = tmp_path / "ragged.tsv"
    path.write_text("".join(lines))
    return path


def test_a_ragged_line_is_named_with_its_file_and_line(ragged: Path, tmp_path: Path) -> None:
    said = fails(1, "etl", ragged, "-o", tmp_path / "out", "--preset", "criteo")
    assert "ragged.tsv" in said
    assert re.search(r"\bline 42\b", said)
    assert [p.name for p in tmp_path.iterdir()] == ["ragged.tsv"]


@pytest.mark.parametrize(("on_error", "rows"), [("skip", 99), ("null", 100)])
def test_bad_lines_are_counted(ragged: Path, tmp_path: Path, on_error: str, rows: int) -> None:
    result = call("etl", ragged, "-o", tmp_path / "out", "--preset", "criteo", "--on-error", on_error)
    assert result.exit_code == 0, result.output
    assert f"{rows} rows in" in result.stdout
    assert "bad lines: 1" in result.stdout
    assert Dataset(tmp_path / "out").num_rows == rows
    assert result.stderr.count("warning: 1 malformed line") == 1


def test_an_existing_output_is_refused_unless_overwritten(logs: Path, tmp_path: Path) -> None:
    ok("etl", logs, "-o", tmp_path / "out", "--preset", "criteo")
    before = sorted(p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir())
    assert "exists already" in fails(1, "etl", logs, "-o", tmp_path / "out", "--preset", "criteo")
    assert sorted(p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()) == before
    ok("etl", logs, "-o", tmp_path / "out", "--preset", "criteo", "--overwrite")


def test_overwrite_spares_folders_that_are_not_ours(logs: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.txt").write_text("years of work")
    assert "not written by Penstock" in fails(1, "etl", logs, "-o", home, "--preset", "criteo", "--overwrite")
    assert (home / "thesis.txt").exists()


def test_the_output_must_not_hold_the_input(features: Path, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("recipe: 1\nnodes: {a: {columns: [C1]}}\n")
    said = fails(
        1, "etl", features, "-o", features, "--recipe", tmp_path / "r.yaml", "--overwrite", "--workflow", tmp_path / "w"
    )
    assert "lies inside the output" in said


def test_unknown_names_get_suggestions(logs: Path, tmp_path: Path) -> None:
    assert "did you mean 'criteo'" in fails(1, "etl", logs, "-o", tmp_path / "out", "--preset", "critoe")
    (tmp_path / "r.yaml").write_text("recipe: 1\ninput: {nmaes: [a]}\nnodes: {a: {columns: [C1]}}\n")
    assert "did you mean 'names'" in fails(1, "etl", logs, "-o", tmp_path / "out", "--recipe", tmp_path / "r.yaml")
    assert "unknown engine" in fails(1, "etl", logs, "-o", tmp_path / "out", "--preset", "criteo", "--engine", "spark")


def test_usage_errors_exit_with_2(logs: Path, tmp_path: Path) -> None:
    fails(2, "etl", logs, "-o", tmp_path / "out")
    fails(2, "etl", logs, "-o", tmp_path / "out", "--preset", "criteo", "--recipe", "r.yaml")
    fails(2, "etl", logs, "-o", tmp_path / "out", "--preset", "criteo", "--on-error", "ignore")
    fails(2, "etl", logs, "-o", tmp_path / "out", "--apply", "w", "--workflow", "v")
    fails(2, "synth", tmp_path / "a", "--rows", -1)


def test_debug_prints_the_traceback(tmp_path: Path) -> None:
    result = call("--debug", "etl", tmp_path / "nope.tsv", "-o", tmp_path / "out", "--preset", "criteo")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr


def test_what_nobody_foresaw_is_one_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("penstock.data.synthetic.criteo", breaks)
    said = fails(1, "synth", tmp_path / "a.tsv")
    assert said == "error: ZeroDivisionError: division by zero (unexpected; penstock --debug … prints where)\n"
    assert "Traceback" in call("--debug", "synth", tmp_path / "a.tsv").stderr


# inspect


def test_inspect_json_counts_exactly(tmp_path: Path) -> None:
    values = ["a"] * 6 + ["b"] * 3 + [None]
    pl.DataFrame({"cat": values, "x": range(10), "tags": [["p", "q"]] * 9 + [None]}).write_parquet(
        tmp_path / "d.parquet"
    )
    found = json.loads(ok("inspect", tmp_path / "d.parquet", "--json"))
    assert (found["kind"], found["rows"], found["is_sample"]) == ("dataset", 10, False)
    cat, x, tags = found["columns"]
    assert (cat["distinct"], cat["null_share"]) == (2, 0.1)
    assert cat["histogram"] == {"scale": "frequency", "values": ["a", "b"], "counts": [6, 3]}
    assert (x["min"], x["max"], x["mean"], sum(x["histogram"]["counts"])) == (0, 9, 4.5, 10)
    assert (tags["dtype"], tags["distinct"], tags["mean_length"]) == ("list[string]", 2, 2.0)


def test_inspect_states_that_it_sampled(tmp_path: Path) -> None:
    pl.DataFrame({"x": range(1000)}).write_parquet(tmp_path / "d.parquet", row_group_size=100)
    assert "sample of 250 rows" in ok("inspect", tmp_path / "d.parquet", "--rows", 250)
    found = json.loads(ok("inspect", tmp_path / "d.parquet", "--rows", 250, "--json"))
    assert (found["rows"], found["sampled_rows"], found["is_sample"]) == (1000, 250, True)


def test_inspect_raw_logs_and_features(logs: Path, features: Path) -> None:
    raw = json.loads(ok("inspect", logs, "--preset", "criteo", "--json"))
    assert raw["rows"] == ROWS
    by_name = {c["name"]: c for c in raw["columns"]}
    assert by_name["C1"]["role"] == "categorical"
    assert re.fullmatch(r"[0-9a-f]{8}", by_name["C1"]["histogram"]["values"][0])
    assert by_name["I12"]["null_share"] > 0.5
    shown = ok("inspect", features)
    assert re.search(r"C9 +int32 +categorical +3 +6 +0\.0%  *█", shown)


def test_inspect_finds_the_schema_beside_a_single_file(tmp_path: Path) -> None:
    ok("synth", tmp_path / "day.parquet", "--rows", 100, "--format", "parquet", "--cardinality-cap", 20)
    found = json.loads(ok("inspect", tmp_path / "day.parquet", "--json"))
    assert {c["name"]: c["role"] for c in found["columns"]}["C1"] == "categorical"


def test_inspect_a_saved_workflow(features: Path) -> None:
    shown = ok("inspect", f"{features}-workflow")
    assert "Categorify(freq_threshold=6)" in shown
    found = json.loads(ok("inspect", f"{features}-workflow", "--json"))
    sizes = {c["name"]: c["embedding"] for c in found["outputs"]}
    assert sizes["C9"] == [6, 16]
    assert sizes["label"] is None


def test_inspect_refuses_an_altered_workflow(logs: Path, tmp_path: Path) -> None:
    ok("etl", logs, "-o", tmp_path / "out", "--preset", "criteo")
    content = tmp_path / "out-workflow" / "workflow.json"
    content.write_text(content.read_text().replace("categories", "Categories"))
    assert "workflow.json was altered" in fails(1, "inspect", tmp_path / "out-workflow")


# demo, help and version


def test_demo_reaches_a_model_and_ends_with_its_report(tmp_path: Path) -> None:
    said = ok("demo", "--rows", 3_000, "--output", tmp_path / "demo")
    assert "best reachable AUC" in said
    assert re.search(r"AUC +0\.\d{4} of 0\.\d{4} reachable", said)
    assert re.search(r"26 categories with [\d,]+ codes, 13 numbers", said)
    assert said.count("predicted 0.") == 3
    assert said.splitlines()[-1] == f"report: {tmp_path / 'demo' / 'report.html'}"
    parts = {"clicks.tsv", "features", "valid", "workflow", "checkpoints", "model", "config.yaml"}
    assert {p.name for p in (tmp_path / "demo").iterdir()} == {*parts, "report.html", "report.json"}
    report = json.loads((tmp_path / "demo" / "report.json").read_text())
    assert report["state"] == "done" and report["headline"]["best_auc"] > 0.7


def test_demo_runs_again_and_speaks_json(tmp_path: Path) -> None:
    for _ in range(2):
        found = json.loads(ok("demo", "--rows", 1_000, "--output", tmp_path / "demo", "--json"))
    assert found["rows"] == {"train": 900, "valid": 100}
    assert Path(found["report"]).is_file() and set(found["seconds"]) >= {"synth", "etl", "train", "total"}


def test_version() -> None:
    assert re.fullmatch(r"penstock \d+\.\d+\.\d+\S*\n", ok("--version"))


@pytest.mark.parametrize(
    "command", [c.name or c.callback.__name__ for c in app.registered_commands if c.add_help_option]
)
def test_help_gives_every_option_a_default(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for those that must be given, and flags that only switch something on."""
    monkeypatch.setenv("COLUMNS", "400")
    shown = ok(command, "--help")
    for option in get_command(app).commands[command].params:
        if option.param_type_name != "option":
            continue
        line = next(line for line in shown.splitlines() if re.search(rf" {option.opts[0]}[ ,]", line))
        is_switch = option.is_flag and not option.secondary_opts and not option.default
        assert is_switch or "[default:" in line or "[required]" in line, line
        assert option.help, option.name


# the real thing


def start(*arguments: object, **environment: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "penstock", *map(str, arguments)]
    env = {**os.environ, **environment}
    # A shell starts background jobs, which a test run may be, with SIGINT ignored, and children inherit that.
    default = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True, preexec_fn=default)


def test_a_real_process(logs: Path, tmp_path: Path) -> None:
    process = start("etl", logs, "-o", tmp_path / "out", "--preset", "criteo")
    out, err = process.communicate(timeout=600)
    assert (process.returncode, err) == (0, "")
    assert f"{ROWS:,} rows in" in out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "out-workflow"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_the_middle_leaves_nothing(logs: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Stopped while it writes: the staging folders are there, so the run is in the middle of things."""
    process = start(
        "etl", *[logs] * 60, "-o", tmp_path / "out", "--preset", "criteo", "--engine", "local:1", "--files", 60
    )
    try:
        deadline = time.monotonic() + 600
        while not list(tmp_path.glob(".out.*.partial/*")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "writing never began"
            time.sleep(0.001)
        process.send_signal(number)
        _, err = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == code
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
