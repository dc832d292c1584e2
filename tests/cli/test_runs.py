"""`penstock explain` and `penstock compare`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.data.synthetic import criteo

from .conftest import fails, ok

QUICK = ("--model", "MLP", "--embedding-dim", 4, "--batch-size", 256, "--device", "cpu")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    criteo(place / "day.tsv", 2_000, cardinalities=40, progress=False)
    for name, epochs in (("one", 1), ("two", 2)):
        ok("train", place / "day.tsv", "--preset", "criteo", "--epochs", epochs, "--output", place / name, *QUICK)
    return place


def test_explain(runs: Path, tmp_path: Path) -> None:
    said = ok("explain", runs / "one", "--rows", 100, "--repeats", 1)
    assert said.splitlines()[-1] == f"page: {runs / 'one' / 'explain.html'}" and "AUC lost" in said
    assert "What matters to" in (runs / "one" / "explain.html").read_text()
    found = json.loads(ok("explain", runs / "one", runs / "day.tsv", "--rows", 100, "--repeats", 1, "--json",
                          "--output", tmp_path / "why.html"))  # fmt: skip
    assert found["is_raw"] and len(found["columns"]) == 39 and Path(found["page"]).is_file()
    assert "give labelled rows" in fails(1, "explain", runs / "one" / "model")


def test_a_new_run_takes_the_explanation_of_the_old_one_away(runs: Path) -> None:
    ok("explain", runs / "two", "--rows", 50, "--repeats", 1)
    ok("train", runs / "day.tsv", "--preset", "criteo", "--epochs", 1, "--output", runs / "two", "--overwrite", *QUICK)
    assert not (runs / "two" / "explain.html").exists() and not (runs / "two" / "explain.json").exists()


def test_compare(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "both.html"
    said = ok("compare", runs / "one", runs / "two", "--output", page)
    assert "log loss" in said and said.splitlines()[-1] == f"page: {page}"
    found = json.loads(ok("compare", runs / "one", runs / "two", "--output", page, "--json"))
    assert set(found["runs"]) == {"one", "two"} and found["page"] == str(page)
    assert "at least two" in fails(1, "compare", runs / "one", "--output", page)
