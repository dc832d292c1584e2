"""Every file of a job is read as the recipe's input section says, and with the dtypes of the rows trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from penstock import Workflow
from penstock.core.errors import ColumnNotFoundError
from penstock.data.synthetic import criteo
from penstock.etl import presets
from penstock.jobs import TrainJob
from penstock.jobs.etl import EtlJob
from penstock.jobs.scoring import evaluate_model, predict_files

SETTINGS = {"model": {"name": "MLP", "hidden": [8]}, "epochs": 1, "batch_size": 256, "embedding_dim": 4}
RECIPE = {
    "recipe": 1,
    "input": {"dtypes": {"string": ["zip"]}, "roles": {"label": ["click"]}},
    "nodes": {"ids": {"columns": ["zip"], "ops": ["Categorify"]}, "label": {"columns": ["click"]}},
}


def clicks(path: Path, seed: int, rows: int = 1500) -> Path:
    """Zip codes, of which those with a leading zero click more."""
    draw = np.random.default_rng(seed)
    codes = draw.integers(0, 200, rows)
    click = draw.random(rows) < np.where(codes < 100, 0.8, 0.2)
    text = [f"{c:03d}" for c in codes]
    pl.DataFrame({"zip": text, "click": click.astype(int)}).write_csv(path, quote_style="never")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    place = tmp_path_factory.mktemp("clicks")
    train, valid = clicks(place / "train.csv", 0), clicks(place / "valid.csv", 1)
    return TrainJob(train, place / "run", RECIPE, valid=valid, settings=SETTINGS).run(), valid


def test_valid_is_read_as_the_input_section_says(trained):
    result, valid = trained
    assert result.auc == pytest.approx(evaluate_model(result.model, valid).auc, abs=1e-4)  # a pair of rows may tie
    assert result.auc > 0.7


def test_criteo_text_is_valid_as_well(tmp_path):
    for name, seed in (("a", 0), ("b", 1)):
        criteo(tmp_path / f"{name}.tsv", 600, cardinalities=20, seed=seed, progress=False)
    preset = presets.load("criteo")
    found = TrainJob(tmp_path / "a.tsv", tmp_path / "run", preset, valid=tmp_path / "b.tsv", settings=SETTINGS).run()
    assert found.rows == {"train": 600, "valid": 600}


def test_other_files_have_the_dtypes_of_the_rows_trained_on(tmp_path):
    """A small file may look like numbers where the rows trained on held text."""
    recipe = {**RECIPE, "input": {"roles": {"label": ["click"]}}}
    (tmp_path / "train.csv").write_text("zip,click\n" + "A1,1\n12,0\n7,1\n" * 200)
    (tmp_path / "valid.csv").write_text("zip,click\n" + "12,0\n7,1\n" * 50)
    (tmp_path / "new.csv").write_text("zip\n12\n7\n")
    settings = {**SETTINGS, "epochs": 20, "learning_rate": 0.05, "embedding_learning_rate": 0.5}
    found = TrainJob(
        tmp_path / "train.csv", tmp_path / "run", recipe, valid=tmp_path / "valid.csv", settings=settings
    ).run()
    assert found.auc == 1.0
    predict_files(found.model, tmp_path / "new.csv", tmp_path / "out.csv", keep=["zip"])
    rows = pl.read_csv(tmp_path / "out.csv")["probability"].to_list()
    assert rows[0] < 0.5 < rows[1]


def test_apply_uses_the_section_that_the_workflow_keeps(tmp_path):
    train, other = clicks(tmp_path / "train.csv", 0), tmp_path / "other.txt"
    EtlJob([str(train)], str(tmp_path / "features"), recipe=RECIPE).run()
    other.write_text("zip;click\n007;1\n7;0\n")
    done = EtlJob([str(other)], str(tmp_path / "applied"), apply=str(tmp_path / "features-workflow")).run()
    codes = pl.read_parquet(tmp_path / "applied" / "*.parquet")["zip"].to_list()
    assert codes[0] != codes[1] == 2  # 7 was never seen, 007 was
    assert "';'" in done.assumed


def test_the_workflow_keeps_the_dtypes_that_were_found(tmp_path):
    (tmp_path / "a.csv").write_text("zip,age,click,unused\n007,3,1,x\n010,4,0,y\n")
    recipe = {**RECIPE, "input": {"roles": {"label": ["click"]}}}
    EtlJob([str(tmp_path / "a.csv")], str(tmp_path / "out"), recipe=recipe).run()
    kept = Workflow.load(tmp_path / "out-workflow").input
    assert kept["dtypes"] == {"string": ["zip"], "int64": ["click"]}


@pytest.mark.parametrize("key", ["roles", "dtypes"])
def test_a_misspelt_column_of_the_input_section_is_an_error(tmp_path, key):
    section = {"roles": {"label": ["clik"]}} if key == "roles" else {"dtypes": {"string": ["zop"]}}
    clicks(tmp_path / "train.csv", 0, 20)
    with pytest.raises(ColumnNotFoundError, match=r"did you mean '(click|zip)'"):
        EtlJob([str(tmp_path / "train.csv")], str(tmp_path / "out"), recipe={**RECIPE, "input": section}).run()
