"""The parts of a run's page that tell of its training: curves, predictions, where the time went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.core.metric_names import metric_heading, metric_title
from penstock.core.pages.document import section
from penstock.core.pages.markup import Markup, joined, table, tag
from penstock.report.charts import bar
from penstock.report.plots import Mark, Series, line_chart
from penstock.report.prediction_sections import examples, prediction_charts
from penstock.report.records import metric_names
from penstock.report.run_stages import stage_title, whole_run
from penstock.report.sections import Report, missing, selected_words
from penstock.report.words import DASH, count, data_size, duration, durations, share, whole

_Bar = tuple[str, float, float, str, str | None]  # name, begin, seconds, colour, bytes moved


def training(report: Report) -> Markup:
    """Curves of loss, metrics and speed; the same figures as a table."""
    records = report.get("records") or []
    if not any(record["kind"] in ("train", "valid") for record in records):
        return section("training", "Training", missing(report, "Training curves", "the run trained nothing"))
    best = _best(report)
    charts = [
        line_chart("Loss", _series(records, "loss"), lambda y: f"{y:.4g}", marks=best),
        *(
            line_chart(metric_heading(name), _series(records, name), lambda y: f"{y:.4g}", marks=best)
            for name in metric_names(records)
        ),
        line_chart("Rows per second", _series(records, "rows_per_second"), count, from_zero=True),
    ]
    setting = report.get("training") or {}
    known = [
        setting.get("model"),
        setting.get("parameters") is not None and f"{whole(setting['parameters'])} dense parameters",
        setting.get("batch_size") and f"batches of {whole(setting['batch_size'])} rows",
        setting.get("valid_rows") and f"{whole(setting['valid_rows'])} rows held out",
        selected_words(report),
    ]
    about = " · ".join(str(part) for part in known if part)
    drawn = tag("div", *charts, *prediction_charts(report), class_="charts")
    return section("training", "Training", drawn, examples(report), _figures(report, records), about=about)


def _best(report: Report) -> list[Mark]:
    """Where the saved model is from, in words that say why."""
    chosen = report.get("selected") or {}
    if chosen.get("is_start"):
        return [Mark(0, "the regression, kept")]
    if not chosen.get("step"):
        return []
    why = "last, kept" if chosen.get("by") == "last" else "kept" if chosen.get("is_surer") else "best, kept"
    return [Mark(chosen["step"], why)]


def _series(records: Iterable[Mapping[str, Any]], figure: str) -> list[Series]:
    found: dict[str, list[tuple[float, float]]] = {"train": [], "valid": []}
    for record in records:
        if record["kind"] in found and record.get(figure) is not None:
            found[record["kind"]].append((record["step"], record[figure]))
    return [
        Series("training rows", "one", found["train"]),
        Series("held-out rows", "two", found["valid"], marked=True),
    ]


def _figures(report: Report, records: Iterable[Mapping[str, Any]]) -> Markup:
    """The evaluations in figures; training records where there was none."""
    records = list(records)
    shown = [r for r in records if r["kind"] == "valid"] or [r for r in records if r["kind"] == "train"][-20:]

    def number(value: Any, digits: int = 4) -> str:
        return DASH if value is None else f"{value:.{digits}f}"

    kept = (report.get("selected") or {}).get("step")

    def step(record: Mapping[str, Any]) -> Markup:
        is_kept = record["kind"] == "valid" and record["step"] == kept
        return joined([whole(record["step"]), tag("strong", " kept", class_="best") if is_kept else None])

    names = ["loss", *metric_names(shown)]
    rows = [[step(r), *(number(r.get(name)) for name in names), whole(r.get("rows"))] for r in shown[-50:]]
    kind = "Evaluations" if shown and shown[0]["kind"] == "valid" else "Latest training records"
    head = ["step", *map(metric_title, names), "rows"]
    figures = table(head, rows, kind, "figures", numeric=range(len(head)))
    return tag("details", tag("summary", f"{kind} in figures"), tag("div", figures, class_="scroll"))


# Time.


def time(report: Report) -> Markup:
    """The run as a waterfall of stages, and training as lanes of what ran beside what."""
    seconds = report.get("seconds") or 0.0
    stages = whole_run(report.get("stages") or [], seconds) if report.get("stages") else []
    lanes = (report.get("time") or {}).get("lanes") or []
    if not stages and not lanes:
        return section("time", "Where the time went", missing(report, "Timings", "none were taken"))
    blocks = []
    if stages:
        rows: list[_Bar] = [
            (stage_title(s["name"]), s["begin"] / (seconds or 1), s["seconds"], _run_look(s["name"]), None)
            for s in stages
        ]
        about = f"every second of it, one stage after the other: {duration(seconds)} in all"
        blocks.append(_waterfall("The run", about, rows, seconds))
    total = max((lane["seconds"] for lane in lanes), default=0.0)
    for lane in lanes:
        rows, at = [], 0.0
        for stage in lane["stages"]:
            if stage["seconds"]:
                moved = data_size(stage["bytes"]) if stage.get("bytes") else None
                rows.append((stage["name"], at / (total or 1), stage["seconds"], _look(stage["key"]), moved))
            at += stage["seconds"]
        blocks.append(_waterfall(lane["name"].capitalize(), lane["about"], rows, total, lane["seconds"]))
    note = None
    if (report.get("machine") or {}).get("gpus"):
        note = "On a GPU the model’s stages are the time to order the work; the device’s own shows in the rest."
    return section("time", "Where the time went", *blocks, about=note)


def _look(key: str) -> str:
    """A colour for what a stage is: waiting, dense work, embeddings, data, the rest."""
    if key in ("wait", "fetch", "idle"):
        return "quiet"
    if key in ("forward", "backward", "optimizer", "step"):
        return "one"
    if key in ("lookup", "update"):
        return "two"
    return "three" if key in ("read", "decode", "shuffle", "copy", "prepare") else "four"


def _run_look(name: str) -> str:
    return "four" if name in ("etl", "regression", "train", "second", "save", "predict") else "quiet"


def _waterfall(
    title: str,
    about: str,
    rows: Iterable[_Bar],
    total: float,
    of: float | None = None,
) -> Markup:
    rows = list(rows)
    times = durations([seconds for _, _, seconds, _, _ in rows])
    lines = [
        [
            joined([name, moved and tag("small", moved)]),
            bar(begin, seconds / (total or 1), look),
            time,
            share(seconds / ((of or total) or 1)),
        ]
        for (name, begin, seconds, look, moved), time in zip(rows, times, strict=True)
    ]
    figures = table(["stage", "when", "time", "share"], lines, f"{title}: {about}", "waterfall", numeric=(2, 3))
    return tag("div", tag("h3", title, tag("small", about)), figures, class_="lane")
