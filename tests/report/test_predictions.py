"""Predictions on the page: by label, against what happened; and whatever is missing leaves the rest."""

from __future__ import annotations

import json

import pytest

from penstock.jobs import RunRecorder
from penstock.report import render
from penstock.report.prediction_sections import prediction_charts


def found(recorder: RunRecorder) -> dict:
    return json.loads((recorder.directory / "report.json").read_text())["figures"]["predictions"]


def test_a_run_tells_how_its_predictions_lie(recorded: RunRecorder) -> None:
    told = found(recorded)
    assert told["rows"] == 1500 and not told["is_sample"]
    assert sum(map(sum, told["counts"].values())) == 1500
    assert len(told["edges"]) == len(told["counts"]["0"]) + 1
    assert sum(entry["rows"] for entry in told["calibration"]["bins"]) == 1500
    page = recorded.path.read_text()
    assert "Predictions by label" in page and "Calibration" in page and "1,500 held-out rows" in page


def test_labels_that_are_told_apart_lie_apart(recorded: RunRecorder) -> None:
    told = found(recorded)
    middles = [(a + b) / 2 for a, b in zip(told["edges"], told["edges"][1:], strict=False)]

    def mean(label: str) -> float:
        counts = told["counts"][label]
        return sum(m * n for m, n in zip(middles, counts, strict=True)) / sum(counts)

    assert mean("1") > mean("0") + 0.1


@pytest.mark.parametrize("change", [{"counts": {"0": [3, 1]}}, {"counts": {"0": [0, 0], "1": [0, 0]}}, {"rows": 0}])
def test_odd_ones_are_drawn(change: dict) -> None:
    nothing = {"predicted": None, "clicked": None, "ratio": None, "expected_error": None, "bins": []}
    told = {"rows": 4, "edges": [0, 0.5, 1], "counts": {"0": [1, 1], "1": [1, 1]}, "calibration": nothing, **change}
    drawn = "".join(prediction_charts({"figures": {"predictions": told}}))
    assert "Predictions by label" in drawn and "nan" not in drawn.lower()


def test_without_held_out_rows_there_is_none(recorded: RunRecorder) -> None:
    report = recorded.report()
    page = render({**report, "figures": {**report["figures"], "predictions": None}})
    assert "Predictions by label" not in page and "A few predictions" in page
