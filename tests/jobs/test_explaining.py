"""What columns are worth: planted ones are found, on features and on raw rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from penstock.core.errors import ArtefactError, DataError, ParameterError
from penstock.jobs import RunRecorder, TrainJob
from penstock.jobs.comparing import compare_runs, read_reports
from penstock.jobs.explaining import Explanation, explain_model
from penstock.report.comparison import differing_settings
from penstock.report.explanation import render_explanation

RECIPE: dict[str, Any] = {
    "recipe": 1,
    "input": {"roles": {"label": ["click"]}},
    "nodes": {
        "ids": {"columns": ["user", "noise", "tags"], "ops": ["Categorify"]},
        "price": {"columns": ["price"], "ops": ["FillMissing", "Normalize"]},
        "label": {"columns": ["click"]},
    },
    "output": ["ids", "price", "label"],
}
SETTINGS: dict[str, Any] = {"model": {"name": "MLP", "hidden": [16]}, "batch_size": 128, "device": "cpu"}


def clicks(rows: int = 2_000, seed: int = 0) -> pl.DataFrame:
    """Clicks that depend on the user most, on the price less, on nothing else."""
    rng = np.random.default_rng(seed)
    user, price = rng.integers(0, 12, rows), rng.normal(size=rows)
    odds = 2.5 * np.where(user % 2, 1.0, -1.0) + 1.5 * price
    return pl.DataFrame(
        {
            "user": [f"u{number}" for number in user],
            "noise": rng.integers(0, 5, rows),
            "tags": [rng.integers(0, 6, 2).tolist() for _ in range(rows)],
            "price": price.astype(np.float32),
            "click": (rng.random(rows) < 1 / (1 + np.exp(-odds))).astype(np.int8),
        }
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs beside each other, and the rows that they were trained on."""
    place = tmp_path_factory.mktemp("runs")
    clicks().write_parquet(place / "clicks.parquet")
    for name, epochs in (("first", 6), ("second", 1)):
        job = TrainJob(
            place / "clicks.parquet", place / name, RECIPE, settings={**SETTINGS, "epochs": epochs}, progress=False,
            listener=RunRecorder(place / name),
        )  # fmt: skip
        job.run()
    return place


def worth(found: Explanation) -> dict[str, float]:
    return {entry.column: entry.auc for entry in found.columns}


def test_planted_columns_are_found(place: Path) -> None:
    found = explain_model(place / "first")
    assert not found.is_raw and found.rows == 200 and not found.is_sample
    by_name = worth(found)
    assert set(by_name) == {"user", "noise", "tags", "price"}
    assert [entry.column for entry in found.columns[:2]] == ["user", "price"]
    assert by_name["user"] > 0.2 and abs(by_name["noise"]) < 0.05
    assert found.metrics["auc"] > 0.8 and not found.columns[0].is_noise
    page = render_explanation(json.loads(json.dumps(found.to_dict())))
    assert "What matters to" in page and "user" in page


def test_raw_rows_have_their_raw_columns_shuffled(place: Path) -> None:
    fresh = clicks(3_000, seed=1)
    fresh.write_parquet(place / "more.parquet")
    found = explain_model(place / "first", place / "more.parquet", num_rows=1_000, repeats=2)
    assert found.is_raw and found.rows == 1_000 and found.is_sample and found.repeats == 2
    assert [entry.column for entry in found.columns[:2]] == ["user", "price"]
    again = explain_model(place / "first" / "model", place / "more.parquet", num_rows=1_000, repeats=2)
    assert worth(again) == worth(found)  # the model alone, the same draw
    other = explain_model(place / "first", place / "more.parquet", num_rows=1_000, repeats=2, seed=5)
    assert worth(other) != worth(found)


def test_what_cannot_be_explained_is_said(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="without the run that trained it: give labelled rows"):
        explain_model(place / "first" / "model")
    one = clicks(300).filter(pl.col("click") == 1)
    one.write_parquet(tmp_path / "one.parquet")
    with pytest.raises(DataError, match="'click' has one value only"):
        explain_model(place / "first", tmp_path / "one.parquet")
    with pytest.raises(ParameterError, match="repeats"):
        explain_model(place / "first", repeats=0)


# Runs side by side.


def test_two_runs_on_one_page(place: Path, tmp_path: Path) -> None:
    reports = compare_runs([place / "first", place / "second" / "report.json"], tmp_path / "pages" / "both.html")
    assert list(reports) == ["first", "second"]
    assert differing_settings(reports) == {"epochs": ["6", "1"]}
    page = (tmp_path / "pages" / "both.html").read_text()
    assert "2 runs compared" in page and "epochs" in page and "http" not in page.replace("http-equiv", "")


def test_runs_are_named_as_short_as_can_be(place: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "run").mkdir(parents=True)
        (tmp_path / name / "run" / "report.json").write_bytes((place / "first" / "report.json").read_bytes())
    assert list(read_reports([tmp_path / "a" / "run", tmp_path / "b" / "run"])) == ["a/run", "b/run"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "not valid JSON"),
        ("[]", "not the report of a run"),
        ('{"version": 99, "kind": "run"}', "not the report of a run"),
        ('{"version": 1, "kind": "run", "records": 3}', "'records' must be a list"),
        ('{"version": 1, "kind": "run", "records": [3]}', "not what a run writes"),
        ('{"version": 1, "kind": "run", "headline": {"auc": "high"}}', "not what a run writes"),
    ],
)
def test_a_report_that_is_none_is_refused(place: Path, tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "report.json").write_text(content)
    with pytest.raises(ArtefactError, match=reason):
        compare_runs([place / "first", tmp_path], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_what_cannot_be_compared_is_said(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="at least two"):
        compare_runs([place / "first"], tmp_path / "page.html")
    with pytest.raises(ParameterError, match="named twice"):
        compare_runs([place / "first", place / "second" / ".." / "first"], tmp_path / "page.html")
    with pytest.raises(ArtefactError, match=r"nowhere has no report\.json"):
        compare_runs([place / "first", tmp_path / "nowhere"], tmp_path / "page.html")
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtefactError, match="choose another output"):
        compare_runs([place / "first", place / "second"], tmp_path / "file" / "page.html")


def test_the_model_knows_what_it_was_trained_on(place: Path) -> None:
    from penstock.serve import Predictor

    with Predictor(place / "first" / "model") as predictor:
        card = predictor.saved.card
        assert card.data == ["clicks.parquet"] and card.rows == 1_800 and 0.5 < card.metrics["auc"] < 1
        assert set(card.example) == {"user", "noise", "tags", "price"}
        assert 0 < predictor.predict_row(card.example) < 1
