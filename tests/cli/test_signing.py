"""`penstock sign` and `--verify` on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
import typer

from penstock import Workflow, ops
from penstock.cli import app
from penstock.core.signing import SIGNATURE
from penstock.data import Dataset
from penstock.embedding import SGD, Store, slots_from_schema
from penstock.nn import MLP
from penstock.serve import save_model

from .conftest import fails, ok

QUICK = (
    "--model",
    "MLP",
    "--embedding-dim",
    4,
    "--batch-size",
    4,
    "--epochs",
    1,
    "--valid-share",
    0,
    "--device",
    "cpu",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as in the folder of a run, its workflow apart, and rows."""
    root = tmp_path_factory.mktemp("signing")
    rows = pl.DataFrame({"user": ["ann", "bob"] * 4, "click": [0, 1] * 4})
    rows.write_parquet(root / "rows.parquet")
    data = Dataset(rows).with_roles(label=["click"])
    workflow = Workflow((["user"] >> ops.Categorify()) + ["click"]).fit(data)
    model = MLP(workflow.output_schema, 4, hidden=())
    embeddings = Store(slots_from_schema(workflow.output_schema, 4), SGD())
    save_model(root / "run" / "model", workflow, model, embeddings)
    workflow.save(root / "run" / "workflow")
    workflow.transform(data).to_parquet(root / "features", progress=False)
    return root


def test_signed_models_and_workflows_go_through_every_command(place: Path, tmp_path: Path) -> None:
    run, key = shutil.copytree(place / "run", tmp_path / "run"), tmp_path / "key"
    said = ok("sign", run, "--key", key, "--new-key")
    assert said.count("signed with key") == 3  # the model, its store and the workflow
    rows, with_key = place / "rows.parquet", ("--verify", key)
    assert json.loads(ok("evaluate", run, rows, *with_key, "--json"))["rows"] == 8
    ok("predict", run, rows, "--output", tmp_path / "scores.csv", *with_key)
    ok("etl", rows, "-o", tmp_path / "features", "--apply", run / "workflow", *with_key)
    assert "user" in ok("inspect", run / "workflow", *with_key)
    assert json.loads(ok("explain", run, rows, "--repeats", 1, *with_key, "--json"))["page"]


def test_unsigned_ones_are_refused_by_every_command(place: Path, tmp_path: Path) -> None:
    run, rows, key = place / "run", place / "rows.parquet", tmp_path / "key"
    (tmp_path / "thing").mkdir()
    fails(1, "sign", tmp_path / "thing", "--key", key, "--new-key")  # makes the key, and finds nothing to sign
    for command in (
        ("evaluate", run, rows),
        ("predict", run, rows, "--output", tmp_path / "scores.csv"),
        ("serve", run, "--port", 0),
        ("etl", rows, "-o", tmp_path / "features", "--apply", run / "workflow"),
        ("inspect", run / "workflow"),
        ("explain", run, rows),
        ("train", place / "features", "--workflow", run / "workflow", "--output", tmp_path / "trained", *QUICK),
    ):
        assert "is not signed (it has no signature.json)" in fails(1, *command, "--verify", key)
    assert not (tmp_path / "scores.csv").exists()
    assert not (tmp_path / "features").exists()
    assert not (tmp_path / "trained").exists()


def test_whatever_takes_trust_takes_verify_in_the_same_words() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    options = {name: {o.name: o.help for o in command.params} for name, command in commands.items()}
    taking = {name for name, own in options.items() if "trust" in own}
    assert taking == {"etl", "inspect", "train", "evaluate", "predict", "explain", "serve"}
    assert {name for name, own in options.items() if "verify" in own} == taking
    assert len({(options[name]["trust"], options[name]["verify"]) for name in taking}) == 1


@pytest.fixture(scope="module")
def trained(place: Path) -> Path:
    """The folder of a run whose artefacts are all signed with the key beside it."""
    run = place / "trained"
    ok("sign", shutil.copytree(place / "run", place / "signed"), "--key", place / "key", "--new-key")
    features, workflow = place / "features", place / "signed" / "workflow"
    ok("train", features, "--workflow", workflow, "--output", run, *QUICK, "--verify", place / "key")
    ok("sign", run, "--key", place / "key")
    return run


def test_a_run_is_resumed_when_all_it_saved_is_signed(trained: Path, tmp_path: Path) -> None:
    run, with_key = shutil.copytree(trained, tmp_path / "run"), ("--verify", trained.parent / "key")
    resumed = ("train", "--output", run, "--resume", *with_key, "--json")
    assert json.loads(ok(*resumed))["steps"] == 2
    assert "is not signed" in fails(1, *resumed)  # what was saved since


def test_a_run_with_anything_unsigned_is_not_resumed(trained: Path, tmp_path: Path) -> None:
    with_key = ("--resume", "--verify", trained.parent / "key")
    for number, inner in enumerate(sorted(trained.rglob(SIGNATURE))):
        run = shutil.copytree(trained, tmp_path / str(number))
        (run / inner.relative_to(trained)).unlink()
        assert f"{(run / inner.relative_to(trained)).parent} is not signed" in fails(1, "train", "-o", run, *with_key)
    run = shutil.copytree(trained, tmp_path / "linked")
    step = next(run.glob("checkpoints/step-*"))
    step.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / SIGNATURE).unlink()
    step.symlink_to(tmp_path / "elsewhere")
    assert "is not signed" in fails(1, "train", "-o", run, *with_key)


def test_the_configuration_of_a_signed_run_names_nothing_that_is_not_trusted(trained: Path, tmp_path: Path) -> None:
    """It is not signed itself: whoever can write it must not make the training run what it likes."""
    for reference in ("subprocess:getoutput", "elsewhere.features:evil"):
        run = shutil.copytree(trained, tmp_path / reference.replace(":", "-"))
        config = (run / "config.yaml").read_text()
        assert "name: MLP" in config
        (run / "config.yaml").write_text(config.replace("name: MLP", f"name: '{reference}'"))
        said = fails(1, "train", "-o", run, "--resume", "--verify", trained.parent / "key")
        assert f"config.yaml: the workflow names '{reference}'" in said


def test_what_cannot_be_signed_or_verified_says_so(place: Path, tmp_path: Path) -> None:
    run = shutil.copytree(place / "run", tmp_path / "run")
    assert "penstock sign --new-key makes one" in fails(1, "sign", run, "--key", tmp_path / "key")
    ok("sign", run, "--key", tmp_path / "key", "--new-key")
    assert "a key that is replaced is lost" in fails(1, "sign", run, "--key", tmp_path / "key", "--new-key")
    (run / "workflow" / "workflow.json").write_text("{}")
    assert "workflow.json is truncated or altered" in fails(1, "sign", run, "--key", tmp_path / "key")
    assert "holds no signing key" in fails(1, "inspect", run / "workflow", "--verify", run / "workflow" / SIGNATURE)
    with_key = ("--verify", tmp_path / "key")
    assert "only a saved workflow is signed" in fails(2, "inspect", place / "rows.parquet", *with_key)
    recipe = ("etl", place / "rows.parquet", "-o", tmp_path / "out", "--preset", "criteo", *with_key)
    assert "it goes with --apply" in fails(2, *recipe)
    recipe = ("train", place / "rows.parquet", "--output", tmp_path / "out", "--preset", "criteo", *with_key)
    assert "it goes with features or --resume" in fails(2, *recipe)
