"""Errors in the words of the interface that was used."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from penstock import Dataset
from penstock.cli.words import in_options
from penstock.core.errors import PenstockError
from penstock.jobs import TrainJob
from penstock.jobs.run_folder import RunFolder
from penstock.report.profile import profile_dataset

from .conftest import call, fails, ok

RECIPE = """
recipe: 1
input: {roles: {label: [click]}}
nodes:
  ids: {columns: [user, shop], ops: [Categorify]}
  price: {columns: [price], ops: [Normalize]}
  label: {columns: [click]}
"""
SMALL = ("--epochs", 1, "--batch-size", 64, "--embedding-dim", 4)
LINES = [f"{i % 7},{i % 5},{i}.5,{i % 2}" for i in range(200)]


def written(path: Path, lines: list[str], head: str = "user,shop,price,click") -> Path:
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "r.yaml").write_text(RECIPE)
    return tmp_path / "r.yaml"


def refused(tmp_path: Path, recipe: Path, lines: list[str], *options: object) -> str:
    said = fails(
        1, "train", written(tmp_path / "a.csv", lines), "--recipe", recipe, "-o", tmp_path / "run", *SMALL, *options
    )
    assert "=True" not in said and "='" not in said
    return said


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        ("x exists; pass overwrite=True to replace it", "x exists; pass --overwrite to replace it"),
        ("resume from them (resume=True)", "resume from them (--resume)"),
        ("pass on_error='skip'", "pass --on-error skip"),
        ("pass dtypes={'x': …} to read both", "say input.dtypes: {DTYPE: [x]} in a recipe to read both"),
        ("pass header=False and names= if", "say in a recipe input.header: false and input.names if"),
        ("pass format='parquet', 'csv'", "say in a recipe input.format 'parquet', 'csv'"),
        ("pass encoding= with its own", "say in a recipe input.encoding with its own"),
        ("trust=['a.b'] (--trust a.b)", "--trust a.b"),
        ("name='x' stays", "name='x' stays"),
        ("must be a file, or None, got 5", "must be a file, got 5"),
        ("a field; pass separator=',' to cut", "a field; say in a recipe input.separator ',' to cut"),
    ],
)
def test_arguments_become_options(said, instead):
    assert in_options(said) == instead


def test_an_output_that_is_there(tmp_path, recipe):
    data = written(tmp_path / "a.csv", LINES)
    common = ("train", data, "--recipe", recipe, "-o", tmp_path / "run", *SMALL)
    ok(*common)
    assert "--overwrite to replace it, --resume to go on" in fails(1, *common)
    with pytest.raises(PenstockError, match=r"overwrite=True to replace it, TrainJob\.resumed"):
        TrainJob(data, tmp_path / "run").run()
    ok("predict", tmp_path / "run", data, "-o", tmp_path / "s.csv")
    assert "pass --overwrite" in fails(1, "predict", tmp_path / "run", data, "-o", tmp_path / "s.csv")
    for place in ("/proc/nowhere/s.csv", "/proc/s.csv", tmp_path / "no" / "s.csv", tmp_path):
        assert "cannot" in fails(1, "predict", tmp_path / "run", data, "-o", place)
    assert RunFolder(tmp_path / "run").is_run()


def test_a_malformed_line(tmp_path, recipe):
    said = refused(tmp_path, recipe, [*LINES, "1,2", *LINES])
    assert "line 202" in said and "--on-error skip" in said


def test_a_wrong_separator_is_not_to_be_skipped(tmp_path, recipe):
    recipe.write_text(RECIPE.replace("{roles", '{separator: ";", names: [user, shop, price, click], roles'))
    said = refused(tmp_path, recipe, LINES)
    assert "skip" not in said and "separator ';'" in said


@pytest.mark.parametrize(("value", "words"), [("", "missing values"), ("nan", "missing values"), ("7", "Binarize")])
def test_a_label_that_is_none_names_file_and_line(tmp_path, recipe, value, words):
    said = refused(tmp_path, recipe, [*LINES[:100], f"1,2,3.5,{value}", *LINES[100:]])
    assert words in said and "a.csv, line 102" in said
    assert not (tmp_path / "run" / "features").exists()


def test_a_label_of_text_names_its_values(tmp_path, recipe):
    said = refused(tmp_path, recipe, [line[:-1] + ("yes" if line[-1] == "1" else "no") for line in LINES])
    assert "'yes' (100)" in said and "Binarize: {ones: ['yes']}" in said


def test_numbers_that_are_nan(tmp_path, recipe):
    pl.read_csv(written(tmp_path / "a.csv", LINES)).with_columns(
        price=pl.when(pl.col("user") == 1).then(float("nan")).otherwise(pl.col("price"))
    ).write_parquet(tmp_path / "a.parquet")
    said = call("train", tmp_path / "a.parquet", "--recipe", recipe, "-o", tmp_path / "run", *SMALL)
    assert said.exit_code == 1
    assert "'price' is NaN" in said.stderr and "FillMissing" in said.stderr


def test_several_labels_come_later(tmp_path, recipe):
    recipe.write_text(RECIPE.replace("[click]}}", "[click, shop]}}"))
    assert "several are not there yet" in refused(tmp_path, recipe, LINES)


def test_raw_rows_without_a_recipe(tmp_path):
    """Where no column is called as labels are: which have two values is told."""
    said = fails(1, "train", written(tmp_path / "a.csv", LINES, "user,shop,price,kind"), "-o", tmp_path / "run")
    assert "--label COLUMN" in said and "two values: kind" in said and not (tmp_path / "run").exists()


def test_inspect_shows_whole_words_and_ids_as_they_are(tmp_path, monkeypatch):
    lines = [f"{14102100 + i},{10**19 + i},a_long_word_{i % 3}" for i in range(50)]
    data = written(tmp_path / "a.csv", lines, "hour,identifier,category_name")
    monkeypatch.setenv("COLUMNS", "80")
    said = ok("inspect", data)
    assert "14102100 … 14102149" in said
    for word in ("category_name", "identifier", "string", "uint64", "other"):
        assert word in said
    columns = profile_dataset(Dataset(data))["columns"]
    assert columns[1]["max"] == 10**19 + 49


def test_predict_takes_the_path_of_a_file(tmp_path, recipe):
    from penstock.serve import Predictor

    data = written(tmp_path / "a.csv", LINES)
    ok("train", data, "--recipe", recipe, "-o", tmp_path / "run", *SMALL)
    frame = pl.read_csv(data)
    frame.drop("click").write_parquet(tmp_path / "new.parquet")
    with Predictor(tmp_path / "run" / "model") as predictor:
        expected = predictor.predict(frame)
        assert predictor.predict(str(tmp_path / "new.parquet")) == pytest.approx(expected)
        assert predictor.predict(data) == pytest.approx(expected)


def test_settings_are_spoken_of_as_options(tmp_path: Path) -> None:
    data = written(tmp_path / "a.csv", LINES)
    assert "error: --valid-share must be" in fails(1, "train", data, "-o", tmp_path / "run", "--valid-share", 2)
    assert "error: --epochs must be" in fails(1, "train", data, "-o", tmp_path / "run", "--epochs", 0)
    said = ok("train", data, "-o", tmp_path / "run", *SMALL, "--valid-share", 0)
    assert "a smaller --batch-size makes" in " ".join(said.split())


def test_text_that_is_no_time_is_not_split_by(tmp_path: Path) -> None:
    data = written(tmp_path / "a.csv", [f"u{line}" for line in LINES])
    said = fails(1, "train", data, "-o", tmp_path / "run", *SMALL, "--valid-by", "time:user")
    assert "--valid-by 'time:user': 'user' holds no times that can be told, such as 'u0'" in said


def test_figures_of_rows_that_were_learned_from_are_told_apart(tmp_path: Path) -> None:
    data, other = (written(tmp_path / name, LINES) for name in ("a.csv", "b.csv"))
    ok("train", data, "-o", tmp_path / "run", *SMALL)
    for command in ("evaluate", "explain"):
        assert "was trained on rows of" in call(command, tmp_path / "run", data).stderr
        assert "was trained on rows of" not in call(command, tmp_path / "run", other).stderr


def test_a_label_that_is_no_number_is_missing_also_where_it_is_turned_into_0_and_1(tmp_path: Path) -> None:
    label = [float("nan") if i == 55 else float(i % 3) for i in range(200)]
    pl.DataFrame({"user": ["a", "b"] * 100, "rating": label}).write_parquet(tmp_path / "a.parquet")
    said = fails(1, "train", tmp_path / "a.parquet", "-o", tmp_path / "run", *SMALL, "--label", "rating")
    assert "the label 'rating' has missing values, first in row 55" in said


def test_a_feature_that_is_infinite_is_said_before_training(tmp_path: Path, recipe: Path) -> None:
    lines = [f"{i % 7},{i % 5},{'inf' if i == 7 else i}.0,{i % 2}".replace("inf.0", "inf") for i in range(200)]
    recipe.write_text(RECIPE.replace("input: {", "input: {dtypes: {float64: [price]}, "))
    said = call("train", written(tmp_path / "a.csv", lines), "--recipe", recipe, "-o", tmp_path / "run", *SMALL).stderr
    assert "the feature 'price' is infinite in" in said and "Clip: {min_value: …, max_value: …}" in said
