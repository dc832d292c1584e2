"""The parts of a run's page that tell of the run: headline, curves, time, configuration, machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from penstock.report.charts import Series, bar, gauge, line_chart
from penstock.report.markup import Markup, joined, table, tag
from penstock.report.words import DASH, count, data_size, duration, plural, share, whole

Report = Mapping[str, Any]
STATES = {"running": "running", "done": "finished", "failed": "failed", "interrupted": "stopped"}
_Bar = tuple[str, float, float, str, str | None]  # name, begin, seconds, colour, bytes moved
_STAGES = {"etl": "features", "train": "training", "save": "saving", "predict": "prediction"}


def section(key: str, title: str, *content: Any, about: Any = None) -> Markup:
    """A part of the page with its heading."""
    said = tag("p", about, class_="about") if about else None
    return tag("section", tag("h2", title, id=f"{key}-title"), said, *content, id=key, aria_labelledby=f"{key}-title")


def missing(report: Report, what: str, why: str) -> Markup:
    """In place of a part that the run has not (yet) brought."""
    state = report.get("state")
    if state == "running":
        said = f"{what} will appear here: the run has not come to it yet."
    elif state in ("failed", "interrupted"):
        said = f"No {what[0].lower()}{what[1:]}: the run ended before it came to it."
    else:
        said = f"No {what[0].lower()}{what[1:]}: {why}."
    return tag("p", said, class_="empty")


# The headline.


def headline(report: Report) -> Markup:
    """The first screen: state, the few figures that matter, the verdict."""
    state = str(report.get("state", "done"))
    top = tag(
        "div",
        tag("h1", report.get("title") or "Training run"),
        tag("span", STATES.get(state, state), class_=f"state {state}", id="state"),
        class_="title",
    )
    cards = tag("dl", *_cards(report), class_="cards")
    return tag(
        "section", top, _subtitle(report), _failure(report), _progress(report), cards, _verdict(report), id="headline"
    )


def _subtitle(report: Report) -> Markup:
    parts = [str(report.get("started") or "").replace("T", " ").replace("+00:00", " UTC")]
    source = (report.get("configuration") or {}).get("data")
    if source:
        parts.insert(0, ", ".join(map(str, source)) if isinstance(source, list) else str(source))
    return tag("p", " · ".join(part for part in parts if part), class_="subtitle")


def _failure(report: Report) -> Markup | None:
    if report.get("state") not in ("failed", "interrupted"):
        return None
    return tag("p", tag("strong", "The run did not finish. "), report.get("error") or "", class_="callout failed")


def _progress(report: Report) -> Markup | None:
    head = report.get("headline") or {}
    step, steps = head.get("step"), head.get("steps")
    if report.get("state") != "running":
        return None
    if not step or not steps:
        running = [stage["name"] for stage in report.get("stages") or [] if stage["seconds"] is None]
        return tag("p", f"Now: {_STAGES.get(running[-1], running[-1])}…" if running else "Starting…", class_="progress")
    done = min(1.0, step / steps)
    words = f"step {whole(step)} of {whole(steps)}, {share(done)}"
    return tag("p", bar(0, done, "accent"), words, class_="progress", role="status")


def _card(name: str, value: Any, *more: Any, wide: bool = False) -> Markup:
    words = tag("dd", joined(more), class_="more") if any(more) else None
    return tag("div", tag("dt", name), tag("dd", value, class_="value"), words, class_="card wide" if wide else "card")


def _cards(report: Report) -> list[Markup]:
    head = report.get("headline") or {}
    auc, best, reached = head.get("auc"), head.get("best_auc"), head.get("auc_reached")
    said = f"{share(reached)} of the way from guessing to the best reachable" if reached is not None else None
    meter = gauge(auc, best) if auc is not None else None
    value = DASH if auc is None else joined([f"{auc:.4f}", best and tag("small", f" of {best:.4f}")])
    loss, speed, memory = head.get("log_loss"), head.get("rows_per_second"), head.get("embedding_bytes")
    rows, trained = head.get("rows"), head.get("rows_trained")
    passes = f"{trained / rows:.3g} × {whole(rows)} rows" if rows and trained else None
    batch, tables = (report.get("training") or {}).get("batch_size"), (report.get("store") or {}).get("tables") or []
    pace = f"{speed / batch:.3g} steps of {whole(batch)} rows a second" if speed and batch else None
    return [
        _card("AUC on held-out rows", value, meter, said, wide=True),
        _card("Log loss", DASH if loss is None else f"{loss:.4f}", _base_rate(report)),
        _card("Training speed", joined([count(speed), tag("small", " rows/s")]) if speed else DASH, pace),
        _card("Rows trained", count(trained), passes),
        _card("Time", duration(head.get("seconds")), _stage_words(report)),
        _card("Embedding rows", count(head.get("embedding_rows")), tables and f"in {plural(len(tables), 'table')}"),
        _card("Embedding memory", data_size(memory) if memory else DASH, _largest(tables)),
    ]


def _largest(tables: Iterable[Mapping[str, Any]]) -> str | None:
    largest = max(tables, key=lambda table: table["bytes"], default=None)
    return None if largest is None else f"the largest: {largest['name']}, {data_size(largest['bytes'])}"


def _base_rate(report: Report) -> str | None:
    """How many labels are 1: what a log loss must be compared with."""
    for profile in (report.get("features"), report.get("raw")):
        for column in (profile or {}).get("columns", ()):
            values = column["histogram"].get("values")
            if column["role"] == "label" and values and set(values) <= {0, 1}:
                counts = dict(zip(values, column["histogram"]["counts"], strict=True))
                return f"{share(counts.get(1, 0) / max(1, sum(counts.values())))} of the labels are 1"
    return None


def _stage_words(report: Report) -> str | None:
    done = [stage for stage in report.get("stages") or [] if stage["seconds"]]
    longest = sorted(done, key=lambda stage: -stage["seconds"])[:2]
    return ", ".join(f"{_STAGES.get(s['name'], s['name'])} {duration(s['seconds'])}" for s in longest) or None


def _verdict(report: Report) -> Markup | None:
    verdict = (report.get("time") or {}).get("verdict") or {}
    if not verdict or verdict.get("kind") == "unknown":
        return None
    return tag(
        "p", tag("strong", verdict["kind"], class_="kind"), verdict["text"], " ", verdict["advice"], class_="callout"
    )


# Training.


def training(report: Report) -> Markup:
    """Curves of loss, AUC and speed; the same figures as a table."""
    records = report.get("records") or []
    if not any(record["kind"] in ("train", "valid") for record in records):
        return section("training", "Training", missing(report, "Training curves", "the run trained nothing"))
    charts = [
        line_chart("Loss", _series(records, "loss"), lambda y: f"{y:.4g}"),
        line_chart("AUC", _series(records, "auc"), lambda y: f"{y:.4g}"),
        line_chart("Rows per second", _series(records, "rows_per_second"), count, from_zero=True),
    ]
    setting = report.get("training") or {}
    known = [
        setting.get("model"),
        setting.get("parameters") is not None and f"{whole(setting['parameters'])} dense parameters",
        setting.get("batch_size") and f"batches of {whole(setting['batch_size'])} rows",
        setting.get("valid_rows") and f"{whole(setting['valid_rows'])} rows held out",
    ]
    about = " · ".join(str(part) for part in known if part)
    figures = [tag("div", *charts, class_="charts"), _examples(report), _figures(records)]
    return section("training", "Training", *figures, about=about)


def _examples(report: Report) -> Markup | None:
    """Held-out rows through the saved model."""
    examples = (report.get("figures") or {}).get("examples") or []
    rows = [
        [f"row {number}", bar(0, e["probability"], "accent"), share(e["probability"]), _outcome(e.get("label"))]
        for number, e in enumerate(examples[:10], 1)
        if e.get("probability") is not None
    ]
    if not rows:
        return None
    head = ["row", "probability", "in figures", "what happened"]
    figures = table(head, rows, "Predictions of the saved model on held-out rows", "waterfall", numeric=(2, 3))
    title = tag("h3", "Predictions", tag("small", "held-out rows through the saved model"))
    return tag("div", title, figures, class_="lane")


def _outcome(label: Any) -> str:
    return {0: "no click", 1: "click"}.get(label, f"label {label}") if label is not None else ""


def _series(records: Iterable[Mapping[str, Any]], figure: str) -> list[Series]:
    found: dict[str, list[tuple[float, float]]] = {"train": [], "valid": []}
    for record in records:
        if record["kind"] in found and record.get(figure) is not None:
            found[record["kind"]].append((record["step"], record[figure]))
    return [
        Series("training rows", "one", found["train"]),
        Series("held-out rows", "two", found["valid"], marked=True),
    ]


def _figures(records: Iterable[Mapping[str, Any]]) -> Markup:
    """The evaluations in figures; training records where there was none."""
    records = list(records)
    shown = [r for r in records if r["kind"] == "valid"] or [r for r in records if r["kind"] == "train"][-20:]

    def number(value: Any, digits: int = 4) -> str:
        return DASH if value is None else f"{value:.{digits}f}"

    rows = [
        [whole(r["step"]), number(r.get("loss")), number(r.get("auc")), number(r.get("log_loss")), whole(r.get("rows"))]
        for r in shown[-50:]
    ]
    kind = "Evaluations" if shown and shown[0]["kind"] == "valid" else "Latest training records"
    figures = table(["step", "loss", "AUC", "log loss", "rows"], rows, kind, "figures", numeric=range(5))
    return tag("details", tag("summary", f"{kind} in figures"), tag("div", figures, class_="scroll"))


# Time.


def time(report: Report) -> Markup:
    """The run as a waterfall of stages, and training as lanes of what ran beside what."""
    stages = [stage for stage in report.get("stages") or [] if stage["seconds"] is not None]
    lanes = (report.get("time") or {}).get("lanes") or []
    if not stages and not lanes:
        return section("time", "Where the time went", missing(report, "Timings", "none were taken"))
    blocks = []
    if stages:
        total = max(stage["begin"] + stage["seconds"] for stage in stages)
        rows: list[_Bar] = [
            (_STAGES.get(s["name"], s["name"]), s["begin"] / (total or 1), s["seconds"], "four", None) for s in stages
        ]
        blocks.append(_waterfall("The run", "one stage after the other", rows, total))
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
    if key in ("forward", "backward", "optimizer"):
        return "one"
    if key in ("lookup", "update"):
        return "two"
    return "three" if key in ("read", "decode", "shuffle", "copy", "prepare") else "four"


def _waterfall(
    title: str,
    about: str,
    rows: Iterable[_Bar],
    total: float,
    of: float | None = None,
) -> Markup:
    lines = [
        [
            joined([name, moved and tag("small", moved)]),
            bar(begin, seconds / (total or 1), look),
            duration(seconds),
            share(seconds / ((of or total) or 1)),
        ]
        for name, begin, seconds, look, moved in rows
    ]
    figures = table(["stage", "when", "time", "share"], lines, f"{title}: {about}", "waterfall", numeric=(2, 3))
    return tag("div", tag("h3", title, tag("small", about)), figures, class_="lane")


# Configuration and machine.


def configuration(report: Report) -> Markup:
    """Every setting of the run."""
    settings = dict(report.get("configuration") or {})
    recipe = settings.pop("recipe", None)
    found = list(_flat(settings))
    if not found:
        return section("configuration", "Configuration", tag("p", "None was handed over.", class_="empty"))
    rows = [[tag("code", key), value] for key, value in found]
    places = {"output": report.get("output"), "model": report.get("saved")}
    about = joined([joined([f"{name}: ", tag("code", place)]) for name, place in places.items() if place], " · ")
    content = [tag("div", table(["setting", "value"], rows, "Configuration", "settings"), class_="scroll")]
    if recipe:
        shown = recipe if isinstance(recipe, str) else yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True)
        content.append(tag("details", tag("summary", "Recipe"), tag("pre", shown, class_="scroll", tabindex=0)))
    return section("configuration", "Configuration", *content, about=about or None)


def _flat(value: Any, name: str = "") -> Iterable[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and not any(isinstance(item, (Mapping, list)) for item in value):
        shown = ", ".join(map(str, value[:40])) + (f", … ({len(value)} in all)" if len(value) > 40 else "")
        yield name, shown or "none"
    elif isinstance(value, list):
        for number, item in enumerate(value[:40]):
            yield from _flat(item, f"{name}[{number}]")
    else:
        yield (
            name,
            {True: "yes", False: "no", None: "not set"}.get(value, str(value)) if _is_word(value) else str(value),
        )


def _is_word(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def machine(report: Report) -> Markup:
    """What the run ran on, and what it could not collect."""
    facts = report.get("machine") or {}
    rows = [
        ["processor", f"{facts.get('processor', DASH)}, {plural(facts.get('cores') or 0, 'core')}"],
        ["memory", data_size(facts["memory_bytes"]) if facts.get("memory_bytes") else DASH],
        ["GPU", ", ".join(facts.get("gpus") or []) or "none used"],
        ["system", f"{facts.get('system', DASH)}, Python {facts.get('python', DASH)}"],
        *[[name, version] for name, version in (facts.get("versions") or {}).items()],
    ]
    content = [tag("div", table(["part", "what"], rows, "Machine and versions", "settings"), class_="scroll")]
    if report.get("problems"):
        listed = [tag("li", problem) for problem in report["problems"]]
        content.append(tag("div", tag("h3", "Not collected"), tag("ul", *listed), class_="problems"))
    return section("machine", "Machine and versions", *content)
