"""Pages beside the report of one run: whole, safe and readable with whatever runs and columns there are."""

from __future__ import annotations

import io

from rich.console import Console

from penstock.jobs import RunRecorder
from penstock.report.comparison import best_run, differing_settings, render_comparison
from penstock.report.explanation import render_explanation, show_explanation
from penstock.report.side_by_side import show_comparison

from .test_html import Reader

HOSTILE = "</script><img src=x onerror=alert(1)>"


def explanation(*names: str) -> dict:
    columns = [
        {
            "column": name, "auc": 0.1 / (number + 1), "auc_spread": 0.01, "log_loss": 0.1, "log_loss_spread": 0.01,
            "is_noise": number > 2,
        }
        for number, name in enumerate(names)
    ]  # fmt: skip
    about = {"kind": "explanation", "model": "run", "rows": 10, "is_sample": True, "is_raw": True, "repeats": 3}
    return {**about, "metrics": {"auc": 0.7, "log_loss": 0.5}, "columns": columns, "seconds": 1.0}


def shown(draw, *told) -> str:
    console = Console(width=160, record=True, file=io.StringIO())
    draw(*told, console)
    return console.export_text()


def test_runs_side_by_side(recorded: RunRecorder, hostile: RunRecorder) -> None:
    reports = {"good": recorded.report(), HOSTILE: hostile.report(), "empty": {"version": 1}}
    reader = Reader(render_comparison(reports))
    assert [section["id"] for section in reader.all("section")] == ["headline", "figures", "curves", "settings", "time"]
    assert not reader.all("img") and len(reader.all("script")) == 1
    told = shown(show_comparison, reports)
    assert "AUC" in told and "settings that differ" in told and "epochs" in told


def test_many_runs_are_drawn(recorded: RunRecorder) -> None:
    reports = {f"run {number}": recorded.report() for number in range(12)}
    assert differing_settings(reports) == {}
    page = render_comparison(reports)
    assert "the runs were asked for the same" in page and "12 runs compared" in page


def test_the_best_run_of_a_figure() -> None:
    reports = {name: {"headline": {"log_loss": loss}} for name, loss in (("a", 0.5), ("b", 0.4), ("c", None))}
    assert best_run(reports, "log_loss", smaller=True) == "b" and best_run(reports, "auc") is None


def test_runs_on_other_rows_are_told_apart() -> None:
    def report(rows: int | None, share: float | None) -> dict:
        return {"headline": {"auc": 0.7}, "training": {"valid_rows": rows}, "labels": {"valid_share": share}}

    same = {"a": report(100, 0.25), "b": report(100, 0.25), "c": report(None, None)}
    for other in (report(101, 0.25), report(100, 0.24)):
        for reports, is_told in ((same, False), ({**same, "d": other}, True)):
            page = render_comparison(reports)
            assert ("not measured on the same rows" in page) == is_told and ("Best AUC" in page) != is_told
            assert ("not measured on the same rows" in shown(show_comparison, reports)) == is_told


def test_explanations() -> None:
    found = explanation("user", HOSTILE, "price", "noise")
    reader = Reader(render_explanation(found))
    assert not reader.all("img") and [section["id"] for section in reader.all("section")] == ["headline", "columns"]
    assert "What matters to first<" in render_explanation({**found, "model": "/runs/first/model"})
    told = shown(show_explanation, found)
    assert "user" in told and "█" in told and "no more than chance" in told
    wide = render_explanation(explanation(*(f"column {number}" for number in range(500))))
    assert "100 more columns in explain.json" in wide and len(wide) < 400_000
