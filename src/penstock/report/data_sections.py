"""The parts of a run's page that tell of its data: profiles, the workflow, the embedding tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.core.pages.document import section
from penstock.core.pages.markup import Markup, joined, table, tag
from penstock.report.charts import bar, histogram_chart
from penstock.report.drawing import draw_graph
from penstock.report.sections import Report, missing
from penstock.report.words import DASH, count, data_size, data_sizes, extremes, plural, share, short, whole

_ROLES = {"label": "Label", "continuous": "Numbers", "categorical": "Categories", "other": "Other columns"}
_LONG, _FIRST, _MOST = 14, 8, 400  # entries from which a table is folded, those shown, those that the page holds


def data(report: Report) -> Markup:
    """Profiles of the raw rows and of the features made from them."""
    raw, features = report.get("raw"), report.get("features")
    if raw is None and features is None:
        return section("data", "Data", missing(report, "Data profile", "the run handed over no data set"))
    blocks = []
    if raw is not None:
        blocks.append(_profile("Raw rows", raw, opened=True))
    if features is not None:
        blocks.append(_profile("Features", features, opened=raw is None))
    about = None if raw is not None else "The run began with features that were made before; there are no raw rows."
    return section("data", "Data", *blocks, about=about)


def _profile(title: str, profile: Mapping[str, Any], opened: bool) -> Markup:
    columns = profile["columns"]
    known = profile.get("rows") is not None
    rows = f"{whole(profile['rows'])} rows" if known else f"about {count(profile.get('estimated_rows'))} rows"
    words = f"{rows} · {plural(len(columns), 'column')} · {data_size(profile['bytes'])}"
    if profile.get("is_sample"):
        words += f" · profiled on {whole(profile['sampled_rows'])} rows spread over the data"
    tables = []
    for role, name in _ROLES.items():
        own = [column for column in columns if column["role"] == role]
        if own:
            tables.append(tag("h3", name, tag("small", plural(len(own), "column"))))
            tables += _folded(own, partial(_columns, caption=f"{title}: {name}"), "column")
    summary = tag("summary", tag("strong", title), " ", tag("span", words, class_="quiet-text"))
    return tag("details", summary, *tables, open=opened, class_="panel", id=f"data-{title.split()[0].lower()}")


def _folded(entries: Sequence[Any], draw: Callable[[Sequence[Any]], Markup], noun: str) -> list[Markup]:
    """A table of the first entries, and the others behind a fold where they are many."""
    if len(entries) <= _LONG:
        return [tag("div", draw(entries), class_="scroll")]
    others = entries[_FIRST:_MOST]
    out = [
        tag("div", draw(entries[:_FIRST]), class_="scroll"),
        tag("details", tag("summary", plural(len(others), f"more {noun}")), tag("div", draw(others), class_="scroll")),
    ]
    if len(entries) > _MOST:
        out.append(tag("p", f"{plural(len(entries) - _MOST, f'more {noun}')} in report.json.", class_="empty"))
    return out


def _columns(columns: Sequence[Mapping[str, Any]], caption: str) -> Markup:
    rows = []
    for column in columns:
        nulls = column["null_share"]
        rows.append(
            [
                tag("span", column["name"], class_="name", title=column["name"]),
                column["dtype"],
                whole(column["distinct"]),
                joined([bar(0, nulls, "warn"), share(nulls)]) if nulls else tag("span", "none", class_="quiet-text"),
                histogram_chart(column["histogram"], column["name"]),
                _range(column),
            ]
        )
    head = ["column", "type", "distinct", "missing", "distribution", "range or most frequent"]
    return table(head, rows, caption, "profile", numeric=(2,))


def _range(column: Mapping[str, Any]) -> Markup:
    histogram = column["histogram"]
    parts: list[Any] = []
    if column.get("mean_length") is not None:
        parts.append(f"{short(column['mean_length'])} values a list; ")
    if histogram["scale"] == "frequency":
        chips = [tag("code", str(value)[:24]) for value in histogram["values"][:3]]
        parts.append(joined(chips, " ") if chips else "no values")
    elif not histogram["counts"]:
        parts.append("no values")
    else:
        scale = " (log bins)" if histogram["scale"] == "log" else ""
        parts.append(extremes(column["min"], column["max"], column["mean"], " to ") + scale)
    return tag("span", *parts, class_="range")


def workflow(report: Report) -> Markup:
    """The graph from columns to features."""
    graph = report.get("workflow")
    if graph is None:
        return section("workflow", "Workflow", missing(report, "Workflow", "the run began with features made before"))
    drawings = tag("div", draw_graph(graph), draw_graph(graph, downwards=True), class_="scroll drawing", tabindex=0)
    rows = [
        [node["title"], node["kind"], node["arguments"] or DASH, _names(node["columns"])]
        for node in graph["nodes"]
        if node["kind"] != "join"
    ]
    listed = table(["step", "kind", "settings", "columns"], rows, "Workflow, step by step", "steps")
    details = tag("details", tag("summary", "Step by step"), tag("div", listed, class_="scroll"))
    return section("workflow", "Workflow", drawings, details, about="How each row becomes features.")


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 60 else f"{', '.join(names[:60])}, … ({len(names)} in all)"


def embeddings(report: Report) -> Markup:
    """The tables: rows, memory, hits, hot ids."""
    store = report.get("store")
    if store is None or not store.get("tables"):
        why = "the model has none, or keeps them to itself"
        return section("embeddings", "Embedding tables", missing(report, "Embedding tables", why))
    tables, cache = store["tables"], store.get("cache")
    known = [
        store.get("kind"),
        f"{whole(store['rows'])} rows in {plural(len(tables), 'table')}",
        data_size(store["bytes"]),
        store.get("optimizer"),
        store.get("storage"),
        cache and f"{whole(cache['rows'])} of them on the device, which had {share(cache['hit_rate'])} of the ids",
        store.get("evicted") and f"{whole(store['evicted'])} rows evicted",
        store.get("waiting") and f"{whole(store['waiting'])} ids wait for admission",
        store.get("restarts") and f"{plural(len(store['restarts']), 'shard')} restarted",
    ]
    about = " · ".join(str(part) for part in known if part)
    most, hot = max(entry["rows"] for entry in tables) or 1, report.get("hot_ids") or {}
    head = ["table", "rows", "width", "memory", "known", "unseen", "hot ids"]

    def draw(part: Sequence[Mapping[str, Any]]) -> Markup:
        memory = data_sizes([entry["bytes"] for entry in largest])  # one unit for all, those behind the fold too
        sizes = dict(zip((entry["name"] for entry in largest), memory, strict=True))
        rows = [_table_row(entry, sizes[entry["name"]], most, hot.get(entry["name"]) or []) for entry in part]
        return table(head, rows, "Embedding tables, the largest first", "tables", numeric=(2, 3))

    largest = sorted(tables, key=lambda entry: -entry["rows"])
    content = tag("div", *_folded(largest, draw, "table"), class_="panel")
    notes = tag(
        "p",
        "Known: of the distinct ids of a training batch, the share that had a row already. "
        "Unseen: of those of an evaluation batch, the share that had none. "
        "Hot ids: the most frequent in the training data, with their share of its rows.",
        class_="note",
    )
    return section("embeddings", "Embedding tables", content, notes, about=about)


def _table_row(entry: Mapping[str, Any], memory: str, most: int, hot: Sequence[Mapping[str, Any]]) -> list[Any]:
    hits, missed = entry.get("hit_rate"), entry.get("missed")
    return [
        tag("span", entry["name"], class_="name", title=entry["name"]),
        joined([bar(0, entry["rows"] / most, "two"), whole(entry["rows"])]),
        entry["dim"],
        memory,
        DASH if hits is None else joined([bar(0, hits, "three"), share(hits)]),
        share(missed),
        joined([_hot(item) for item in hot[:3]], " ") if hot else DASH,
    ]


def _hot(item: Mapping[str, Any]) -> Markup:
    if item.get("meaning"):
        shown = tag("em", item["meaning"])
    else:
        shown = tag("code", str(item["value"] if item.get("value") is not None else f"#{item['id']}")[:20])
    return tag("span", shown, f" {share(item['share'])}", class_="hot", title=f"id {item['id']}")
