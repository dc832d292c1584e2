"""The page that a browser sees first: what is served here, a form to try it, and how to ask. It loads nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.core.metric_names import metric_heading
from penstock.core.pages.document import asset, card, document, section
from penstock.core.pages.markup import Markup, joined, table, tag
from penstock.serve.card import ModelCard

_PATHS = (
    ("healthz", "health"), ("metrics", "metrics"), ("schema", "schema"), ("openapi.json", "OpenAPI as JSON"),
)  # fmt: skip
_FORM_FIELDS = 200  # columns beyond them are sent as in the example
_METRICS_SHOWN = 4
_WIDE = 15  # characters of an example that a field cannot show
_NUMBERS = ("int", "uint", "float")


def front_page(health: Mapping[str, Any], schema: Mapping[str, Any], url: str, about: ModelCard | None = None) -> str:
    """The page.

    Args:
        health: what `/healthz` says.
        schema: what `/schema` says.
        url: where the service was asked, with a slash at its end.
        about: what the saved model says of itself.

    Returns:
        HTML.
    """
    about = about or ModelCard()
    model = health["model"]["class"]
    return document(
        f"{about.title(model)} · Penstock",
        [_headline(health, schema, about), _form(schema), _by_http(schema, url), _columns(schema)],
        links={"try": "Try it", "ask": "Ask by HTTP", "columns": "Columns"},
        footer=tag("p", f"Penstock {health['penstock']} · ", *_links()),
        style=asset("penstock.serve.http", "service.css"),
        script=asset("penstock.serve.http", "service.js"),
        connects=True,
    )


def _links() -> list[Any]:
    parts: list[Any] = [joined([tag("a", name, href=path), " · "]) for path, name in _PATHS]
    return [*parts, tag("a", "OpenAPI page", href="docs"), " (loads its scripts from the net)"]


def _headline(health: Mapping[str, Any], schema: Mapping[str, Any], about: ModelCard) -> Markup:
    model, feed = health["model"], health["feed"]
    is_ready = health["ready"]
    state = tag("span", "ready" if is_ready else "not ready", class_="state" if is_ready else "state running")
    top = tag("div", tag("h1", about.name(model["class"])), state, class_="title")
    when = about.trained and about.trained[:16].replace("T", " ") + (" UTC" if about.trained.endswith("+00:00") else "")
    words = [
        when and f"trained {when}",
        about.rows is not None and f"on {about.rows:,} rows",
        f"model {model['fingerprint']} in {model['directory']}",
        feed is not None and f"feed: packet {feed['packet']}",
    ]
    known = [(name, value) for name, value in about.metrics.items() if value is not None][:_METRICS_SHOWN]
    constant = about.constant_log_loss
    beside = {} if constant is None else {"log_loss": f"; a constant has {constant:.4f}"}
    cards = [
        card(metric_heading(name), f"{value:.4f}", f"on held-out rows{beside.get(name, '')}") for name, value in known
    ]
    cards.append(card("Columns of a row", f"{len(schema['columns'])}"))
    subtitle = tag("p", " · ".join(word for word in words if word), class_="subtitle")
    return tag("section", top, subtitle, tag("dl", *cards, class_="cards"), id="headline")


def _form(schema: Mapping[str, Any]) -> Markup:
    """A field for each column, filled with the example; the script sends them as JSON."""
    row = schema["example"]["rows"][0]
    fields = [_field(number, column, row.get(column["name"])) for number, column in enumerate(schema["columns"])]
    shown = fields[:_FORM_FIELDS]
    more = len(fields) - len(shown)
    note = tag("p", f"{more:,} more columns are sent as in the example.", class_="empty") if more else None
    buttons = tag(
        "div",
        tag("button", "Predict", type="submit", class_="main"),
        tag("button", "As in the example", type="reset"),
        class_="buttons",
    )
    answer = tag("div", id="answer", role="status", aria_live="polite")
    script = tag("noscript", tag("p", "The form needs JavaScript; the command below does not.", class_="empty"))
    form = tag(
        "form", buttons, answer, script, tag("div", *shown, class_="fields"), note, class_="panel",
        data_row=json.dumps(row, ensure_ascii=False),
    )  # fmt: skip
    return section("try", "Try it", form, about="An empty field is a missing value (null).")


def _field(number: int, column: Mapping[str, Any], value: Any) -> Markup:
    name, kind = column["name"], _kind(column)
    shown = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    key = f"field-{number}"
    box = tag("input", id=key, value=shown, data_name=name, data_kind=kind, autocomplete="off", spellcheck="false")
    is_hex = column["accepts"].startswith("hexadecimal")
    short = "hexadecimal" if is_hex else f"list of {column['dtype']}" if column["is_list"] else column["dtype"]
    label = tag("label", tag("span", name, class_="name", title=name), tag("small", short), for_=key)
    field = Markup(box.removesuffix("</input>"))
    look = "field wide" if len(shown) > _WIDE else "field"
    return tag("div", label, field, class_=look, title=column["accepts"])


def _kind(column: Mapping[str, Any]) -> str:
    """How the script writes a field as JSON: as it stands, or as text."""
    if column["is_list"]:
        return "list"
    if column["dtype"].startswith(_NUMBERS) and not column["accepts"].startswith("hexadecimal"):
        return "number"
    return "bool" if column["dtype"] == "bool" else "text"


def _by_http(schema: Mapping[str, Any], url: str) -> Markup:
    example = json.dumps(schema["example"], ensure_ascii=False).replace("'", "'\\''")
    line = f"curl -s {url}predict -H 'Content-Type: application/json' -d '{example}'"
    answer = '{"probabilities": [0.2423], "model": "…", "packet": null}'
    words = tag("p", "Rows go in as JSON, one probability for each comes back: ", tag("code", answer))
    return section("ask", "Ask by HTTP", tag("div", words, tag("pre", line), class_="panel ask"))


def _columns(schema: Mapping[str, Any]) -> Markup:
    row = schema["example"]["rows"][0]
    rows = [
        [
            tag("code", column["name"]),
            f"list of {column['dtype']}" if column["is_list"] else column["dtype"],
            column["accepts"],
            tag("code", _short(row.get(column["name"]))),
        ]
        for column in schema["columns"]
    ]
    listed = table(["column", "type", "takes", "example"], rows, "Columns of a row", "row-columns")
    return section("columns", "Columns of a row", tag("div", listed, class_="panel"))


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:59] + "…"
