"""The parts of a run's page: what they share, and the headline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.core.metric_names import metric_heading
from penstock.core.pages.document import card
from penstock.core.pages.markup import Markup, joined, tag
from penstock.report.charts import bar, gauge
from penstock.report.learning import best_words, notable_error, start_words
from penstock.report.run_stages import stage_title
from penstock.report.words import DASH, count, data_size, duration, plural, share, whole

Report = Mapping[str, Any]
STATES = {"running": "running", "done": "finished", "failed": "failed", "interrupted": "stopped"}


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
        "section", top, _subtitle(report), _failure(report), _progress(report), cards, *_verdicts(report), id="headline"
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
        return tag("p", f"Now: {stage_title(running[-1])}…" if running else "Starting…", class_="progress")
    done = min(1.0, step / steps)
    words = f"step {whole(step)} of {whole(steps)}, {share(done)}"
    batch, speed = (report.get("training") or {}).get("batch_size"), head.get("rows_per_second")
    if batch and speed and done < 1:
        words += f", about {duration((steps - step) * batch / speed)} left"
    return tag("p", bar(0, done, "accent"), words, class_="progress", role="status")


def _cards(report: Report) -> list[Markup]:
    head = report.get("headline") or {}
    auc, best, reached = head.get("auc"), head.get("best_auc"), head.get("auc_reached")
    said = f"{share(reached)} of the way from guessing to the best reachable" if reached is not None else None
    said = said or _auc_error_words(report, auc)
    meter = gauge(auc, best) if auc is not None else None
    value = DASH if auc is None else joined([f"{auc:.4f}", best and tag("small", f" of {best:.4f}")])
    speed, memory = head.get("rows_per_second"), head.get("embedding_bytes")
    rows, trained = head.get("rows"), head.get("rows_trained")
    passes = f"{trained / rows:.3g} × {whole(rows)} rows" if rows and trained else None
    batch, tables = (report.get("training") or {}).get("batch_size"), (report.get("store") or {}).get("tables") or []
    pace = f"{speed / batch:.3g} steps of {whole(batch)} rows a second" if speed and batch else None
    metrics = head.get("metrics") or {"auc": auc, "log_loss": head.get("log_loss")}
    return [
        *([card("AUC on held-out rows", value, meter, said, wide=True)] if "auc" in metrics else []),
        *(_metric_card(report, name, figure) for name, figure in metrics.items() if name != "auc"),
        card("Training speed", joined([count(speed), tag("small", " rows/s")]) if speed else DASH, pace),
        card("Rows trained", count(trained), passes),
        card("Time", duration(head.get("seconds")), _stage_words(report)),
        card("Embedding rows", count(head.get("embedding_rows")), tables and f"in {plural(len(tables), 'table')}"),
        card("Embedding memory", data_size(memory) if memory else DASH, _largest(tables)),
    ]


def _auc_error_words(report: Report, auc: float | None) -> str | None:
    rows = (report.get("training") or {}).get("valid_rows")
    error = notable_error(auc, rows, (report.get("labels") or {}).get("valid_share"))
    return None if error is None else f"± {error:.2g}, its standard error: {whole(rows)} rows are held out"


def _metric_card(report: Report, name: str, figure: float | None) -> Markup:
    about = _log_loss_beside(report) if name == "log_loss" else None
    return card(metric_heading(name), DASH if figure is None else f"{figure:.4f}", about)


def _log_loss_beside(report: Report) -> str | None:
    """What a log loss must be compared with: that of a constant, which knows the share of clicks and nothing else."""
    constant = (report.get("labels") or {}).get("constant_log_loss")
    words = [None if constant is None else f"a constant has {constant:.4f}", _base_rate(report)]
    return "; ".join(word for word in words if word) or None


def _largest(tables: Iterable[Mapping[str, Any]]) -> str | None:
    largest = max(tables, key=lambda table: table["bytes"], default=None)
    return None if largest is None else f"the largest: {largest['name']}, {data_size(largest['bytes'])}"


def _base_rate(report: Report) -> str | None:
    """How many labels are 1."""
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
    return ", ".join(f"{stage_title(s['name'])} {duration(s['seconds'])}" for s in longest) or None


def _verdicts(report: Report) -> list[Markup]:
    """What was learned, and what the pace depends on."""
    verdicts = (report.get("learning"), (report.get("time") or {}).get("verdict"))
    told = [verdict for verdict in verdicts if verdict and verdict.get("kind") not in (None, "unknown")]
    return [
        tag("p", tag("strong", t["kind"], class_="kind"), f"{t['text']} {t['advice']}", class_="callout") for t in told
    ]


def selected_words(report: Report) -> str | None:
    """Which evaluation the saved model is of.

    >>> selected_words({"selected": {"by": "auc", "step": 120, "epoch": 2, "epochs": 5}})
    'the model is that of step 120, epoch 2 of 5: the best AUC'
    """
    chosen = report.get("selected") or {}
    if chosen.get("is_start"):
        return f"the model is {start_words(chosen)}"
    if not chosen.get("step"):
        return None
    epochs = f" of {chosen['epochs']}" if chosen.get("epochs") else ""
    epoch = f", epoch {chosen['epoch']}{epochs}" if chosen.get("epoch") else ""
    early = "; training stopped early" if chosen.get("stopped_early") else ""
    return f"the model is that of step {whole(chosen['step'])}{epoch}: {best_words(chosen)}{early}"
