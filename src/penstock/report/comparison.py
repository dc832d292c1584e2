"""Several runs on one page: their figures side by side, their curves in one chart, the settings that differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.core.metric_names import metric_heading
from penstock.core.pages.document import asset, card, document, section
from penstock.core.pages.markup import Markup, joined, table, tag
from penstock.report.charts import bar
from penstock.report.plots import Series, line_chart
from penstock.report.records import metric_names
from penstock.report.run_stages import stage_title, whole_run
from penstock.report.setting_sections import flat_settings
from penstock.report.words import DASH, count, data_sizes, durations, plural, whole

Reports = Mapping[str, Mapping[str, Any]]
_LOOKS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
# What every run has another value of without being asked for another thing.
_PLACES = ("output",)


def render_comparison(reports: Reports) -> str:
    """The page.

    Args:
        reports: the data of each run's `report.json`, by the run's name.

    Returns:
        HTML.

    >>> page = render_comparison({"a": {"headline": {"auc": 0.7}}, "b": {"headline": {"auc": 0.8}}})
    >>> "2 runs" in page and "0.8000" in page
    True
    """
    return document(
        f"{plural(len(reports), 'run')} compared · Penstock",
        [_headline(reports), _figures(reports), _curves(reports), _settings(reports), _time(reports)],
        links={"figures": "Figures", "curves": "Curves", "settings": "Settings", "time": "Time"},
        footer=tag("p", "Penstock · from the report.json of each run"),
        style=asset("penstock.report", "report.css"),
        script=asset("penstock.report", "report.js"),
    )


def best_run(reports: Reports, figure: str, smaller: bool = False) -> str | None:
    """The run with the largest or smallest figure of its headline; None where none has it.

    >>> best_run({"a": {"headline": {"auc": 0.7}}, "b": {"headline": {"auc": 0.8}}, "c": {}}, "auc")
    'b'
    """
    known = {name: value for name, report in reports.items() if (value := _headline_of(report).get(figure)) is not None}
    return (min if smaller else max)(known, key=lambda name: known[name]) if known else None


OTHER_ROWS = "not measured on the same rows: their AUC and log loss do not tell which model is better"


def held_out_alike(reports: Reports) -> bool:
    """Whether runs were measured on the same rows, as far as their number and the share of clicks tell.

    >>> told = {"a": {"training": {"valid_rows": 10}}, "b": {"training": {"valid_rows": 12}}, "c": {}}
    >>> held_out_alike(told), held_out_alike({"a": told["a"], "c": told["c"]})
    (False, True)
    """
    found = [
        ((report.get("training") or {}).get("valid_rows"), (report.get("labels") or {}).get("valid_share"))
        for report in reports.values()
    ]
    return all(len({one[part] for one in found if one[part] is not None}) < 2 for part in range(2))


def differing_settings(reports: Reports) -> dict[str, list[str]]:
    """The settings in which runs differ, with the value that each run has.

    >>> told = {"a": {"configuration": {"epochs": 1, "seed": 0}}, "b": {"configuration": {"epochs": 3, "seed": 0}}}
    >>> differing_settings(told)
    {'epochs': ['1', '3']}
    """
    flat = [dict(flat_settings(report.get("configuration") or {})) for report in reports.values()]
    names = dict.fromkeys(name for settings in flat for name in settings if name not in _PLACES)
    values = {name: [settings.get(name, DASH) for settings in flat] for name in names}
    return {name: given for name, given in values.items() if len(set(given)) > 1}


def _headline_of(report: Mapping[str, Any]) -> Mapping[str, Any]:
    return report.get("headline") or {}


def _headline(reports: Reports) -> Markup:
    cards = []
    is_alike = held_out_alike(reports)
    for figure, title, smaller, form in _HEADLINE:
        if not is_alike and figure in _MEASURED:
            continue
        if (name := best_run(reports, figure, smaller)) is not None:
            cards.append(card(title, form(_headline_of(reports[name])[figure]), name))
    listed = [
        tag("li", tag("i", class_=f"key {look}"), tag("strong", name), f" {report.get('title') or ''} ", _when(report))
        for (name, report), look in zip(reports.items(), _looks(reports), strict=True)
    ]
    top = tag("div", tag("h1", f"{plural(len(reports), 'run')} compared"), class_="title")
    runs = tag("ul", *listed, class_="runs")
    kind = tag("strong", "other rows", class_="kind")
    remark = [] if is_alike else [tag("div", kind, f"The runs were {OTHER_ROWS}.", class_="callout")]
    return tag("section", top, runs, tag("dl", *cards, class_="cards"), *remark, id="headline")


def _when(report: Mapping[str, Any]) -> Markup:
    state = report.get("state")
    words = [str(report.get("started") or "")[:16].replace("T", " ")]
    words += [] if state in ("done", None) else [str(state)]
    return tag("span", " · ".join(word for word in words if word), class_="quiet-text")


def _four(value: float) -> str:
    return f"{value:.4f}"


_HEADLINE: tuple[tuple[str, str, bool, Callable[[float], str]], ...] = (
    ("auc", "Best AUC", False, _four),
    ("log_loss", "Lowest log loss", True, _four),
    ("rows_per_second", "Fastest training, rows/s", False, count),
    ("seconds", "Shortest run", True, lambda value: durations([value])[0]),
)


_MEASURED = ("auc", "log_loss")  # on held-out rows


def _figures(reports: Reports) -> Markup:
    """A row for each run, a column for each figure; the best of a column stands out."""
    heads = [_headline_of(report) for report in reports.values()]
    is_alike = held_out_alike(reports)
    metrics = list(dict.fromkeys(name for head in heads for name in head.get("metrics") or {}))
    columns: list[tuple[str, list[Any], list[str]]] = []
    for name in metrics:
        values = [(head.get("metrics") or {}).get(name) for head in heads]
        columns.append((metric_heading(name), values, [DASH if v is None else _four(v) for v in values]))
    for title, figure, write in _COLUMNS:
        values = [head.get(figure) for head in heads]
        columns.append((title, values, write(values)))
    rows = []
    for number, name in enumerate(reports):
        cells = [
            _cell(title, values, texts, number) if is_alike or place >= len(metrics) else texts[number]
            for place, (title, values, texts) in enumerate(columns)
        ]
        rows.append([tag("span", tag("i", class_=f"key {_looks(reports)[number]}"), name, class_="name"), *cells])
    head = ["run", *(title for title, _, _ in columns)]
    listed = table(head, rows, "The figures of each run", "compared", numeric=range(1, len(head)))
    about = "The best is bold." if is_alike else "The best is bold, but for what was measured on other rows."
    return section("figures", "Figures", tag("div", listed, class_="scroll", tabindex=0), about=about)


_COLUMNS: tuple[tuple[str, str, Callable[[Sequence[float | None]], list[str]]], ...] = (
    ("Rows trained", "rows_trained", lambda values: [whole(v) for v in values]),
    ("Rows/s", "rows_per_second", lambda values: [whole(v) for v in values]),
    ("Time", "seconds", durations),
    ("Embedding rows", "embedding_rows", lambda values: [whole(v) for v in values]),
    ("Embedding memory", "embedding_bytes", data_sizes),
)
_SMALLER_IS_BETTER = frozenset({"Log loss", "Time", "Embedding memory"})
_NEITHER = frozenset({"Rows trained", "Embedding rows", "Calibration"})


def _cell(title: str, values: Sequence[float | None], texts: Sequence[str], number: int) -> Any:
    known = [value for value in values if value is not None]
    if title in _NEITHER or len(set(known)) < 2:
        return texts[number]
    best = min(known) if title in _SMALLER_IS_BETTER else max(known)
    return tag("strong", texts[number], class_="best") if values[number] == best else texts[number]


def _curves(reports: Reports) -> Markup:
    """The held-out metrics of all runs over the rows trained on: batches may be of several sizes."""
    records = {name: report.get("records") or [] for name, report in reports.items()}
    metrics = metric_names([record for own in records.values() for record in own if record["kind"] == "valid"])
    charts = [_chart(reports, metric_heading(name), "valid", name) for name in metrics]
    charts.append(_chart(reports, "Loss on training rows", "train", "loss"))
    about = "On held-out rows, over the rows trained on." if metrics else None
    return section("curves", "Curves", tag("div", *charts, class_="charts"), about=about)


def _chart(reports: Reports, title: str, kind: str, figure: str) -> Markup:
    lines = []
    for (name, report), look in zip(reports.items(), _looks(reports), strict=True):
        batch = (report.get("training") or {}).get("batch_size") or 1
        points = [
            (record["step"] * batch, record[figure])
            for record in report.get("records") or []
            if record["kind"] == kind and record.get(figure) is not None
        ]
        lines.append(Series(name, look, points, marked=kind == "valid"))
    return line_chart(title, lines, lambda y: f"{y:.4g}", axis="rows")


def _settings(reports: Reports) -> Markup:
    differing = differing_settings(reports)
    if not differing:
        return section(
            "settings", "Settings that differ", tag("p", "None: the runs were asked for the same.", class_="empty")
        )
    rows = [[tag("code", name), *values] for name, values in differing.items()]
    listed = table(["setting", *reports], rows, "Settings that differ", "differing")
    return section("settings", "Settings that differ", tag("div", listed, class_="scroll", tabindex=0))


def _time(reports: Reports) -> Markup:
    """Each run's seconds by stage, in one unit and on one scale."""
    stages: dict[str, dict[str, float]] = {}
    for name, report in reports.items():
        own: dict[str, float] = {}
        for stage in whole_run(report.get("stages") or [], report.get("seconds") or 0.0):
            own[stage["name"]] = own.get(stage["name"], 0.0) + stage["seconds"]
        stages[name] = own
    longest = max((seconds for own in stages.values() for seconds in own.values()), default=0.0) or 1.0
    keys = list(dict.fromkeys(key for own in stages.values() for key in own))
    seconds = [own.get(key, 0.0) for key in keys for own in stages.values()]
    texts = iter(durations(seconds))  # one unit for all
    blocks = []
    for key in keys:
        rows = [
            [joined([tag("i", class_=f"key {look}"), name]), bar(0, own.get(key, 0.0) / longest, look), next(texts), ""]
            for (name, own), look in zip(stages.items(), _looks(reports), strict=True)
        ]
        figures = table(["run", "share", "time", ""], rows, stage_title(key), "waterfall", numeric=(2,))
        blocks.append(tag("div", tag("h3", stage_title(key).capitalize()), figures, class_="lane"))
    return section("time", "Where the time went", *blocks)


def _looks(reports: Reports) -> list[str]:
    return [_LOOKS[number % len(_LOOKS)] for number in range(len(reports))]
