"""`penstock sign` and `--verify` on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from penstock import Workflow, ops
from penstock.core.signing import SIGNATURE
from penstock.data import Dataset
from penstock.embedding import SGD, Store, slots_from_schema
from penstock.nn import MLP
from penstock.serve import save_model

from .conftest import fails, ok


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
    return root


def test_signed_models_and_workflows_go_through_every_command(place: Path, tmp_path: Path) -> None:
    run, key = shutil.copytree(place / "run", tmp_path / "run"), tmp_path / "key"
    said = ok("sign", run, "--key", key, "--new-key")
    assert said.count("signed with key") == 3  # the model, its store and the workflow
    rows, with_key = place / "rows.parquet", ("--verify", key)
    assert json.loads(ok("evaluate", run, rows, *with_key, "--json"))["rows"] == 8
    ok("predict", run, rows, "--output", tmp_path / "scores.csv", *with_key)
    ok("etl", rows, tmp_path / "features", "--apply", run / "workflow", *with_key)
    assert "user" in ok("inspect", run / "workflow", *with_key)


def test_unsigned_ones_are_refused_by_every_command(place: Path, tmp_path: Path) -> None:
    run, rows, key = place / "run", place / "rows.parquet", tmp_path / "key"
    (tmp_path / "thing").mkdir()
    fails(1, "sign", tmp_path / "thing", "--key", key, "--new-key")  # makes the key, and finds nothing to sign
    for command in (
        ("evaluate", run, rows),
        ("predict", run, rows, "--output", tmp_path / "scores.csv"),
        ("serve", run, "--port", 0),
        ("etl", rows, tmp_path / "features", "--apply", run / "workflow"),
        ("inspect", run / "workflow"),
    ):
        assert "is not signed (it has no signature.json)" in fails(1, *command, "--verify", key)
    assert not (tmp_path / "scores.csv").exists()
    assert not (tmp_path / "features").exists()


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
    recipe = ("etl", place / "rows.parquet", tmp_path / "out", "--preset", "criteo", *with_key)
    assert "it goes with --apply" in fails(2, *recipe)
