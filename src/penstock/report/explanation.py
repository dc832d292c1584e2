"""Which columns matter to a model: as a page, and as words in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.core.errors import ArtefactError
from penstock.core.pages.document import asset, card, document, section
from penstock.core.pages.markup import Markup, joined, table, tag
from penstock.report.words import duration, plural, whole

_MOST = 400  # columns that the page holds
_TERMINAL_BAR = 24  # characters
_NOTE = (
    "A column’s worth is what the model loses when its values are shuffled among the rows, so that they say nothing "
    "about them any more. Columns that say the same share their worth: each seems dispensable while the other is there."
)


def render_explanation(found: Mapping[str, Any]) -> str:
    """The page.

    Args:
        found: plain data, as `Explanation.to_dict` gives it.

    Returns:
        HTML.

    Raises:
        ArtefactError: it is no explanation.

    >>> entry = {"column": "user", "auc": 0.1, "auc_spread": 0.0, "log_loss": 0.2, "log_loss_spread": 0.0}
    >>> told = {"kind": "explanation", "model": "run", "rows": 10, "is_sample": False, "is_raw": True, "repeats": 3}
    >>> told |= {"metrics": {"auc": 0.7, "log_loss": 0.5}, "columns": [{**entry, "is_noise": False}], "seconds": 1.0}
    >>> "<code>user</code>" in render_explanation(told)
    True
    """
    if found.get("kind") != "explanation":
        raise ArtefactError("this does not tell what columns are worth; write it again with penstock explain")
    return document(
        f"What matters to {_name(found)} · Penstock",
        [_headline(found), _columns(found)],
        links={"columns": "Columns"},
        footer=tag("p", "Penstock · the same as data: ", tag("code", "explain.json")),
        style=asset("penstock.report", "report.css"),
        script=asset("penstock.report", "report.js"),
    )


def _name(found: Mapping[str, Any]) -> str:
    """The run, or the model where it stands by itself."""
    path = PurePath(str(found["model"]))
    return (path.parent if path.name == "model" and path.parent.name else path).name or str(path)


def _headline(found: Mapping[str, Any]) -> Markup:
    columns, metrics = found["columns"], found["metrics"]
    kind = "raw column" if found["is_raw"] else "feature"
    useful = [entry for entry in columns if not entry["is_noise"]]
    first = columns[0]["column"] if useful else "none"
    cards = [
        card("Matters most", tag("span", first, class_="name", title=first), useful and _fall(useful[0]), wide=True),
        card("AUC on these rows", f"{metrics['auc']:.4f}", f"log loss {metrics['log_loss']:.4f}"),
        card("Above chance", f"{len(useful)}", f"of {plural(len(columns), kind)}"),
    ]
    sample = "a sample of " if found["is_sample"] else ""
    words = f"{sample}{whole(found['rows'])} rows · each {kind} shuffled {plural(found['repeats'], 'time')}"
    words += f" · {duration(found['seconds'])}"
    words += f" · {found['model']}"
    top = tag("div", tag("h1", f"What matters to {_name(found)}"), class_="title")
    return tag("section", top, tag("p", words, class_="subtitle"), tag("dl", *cards, class_="cards"), id="headline")


def _fall(entry: Mapping[str, Any]) -> str:
    return f"AUC falls by {max(0.0, entry['auc']):.4f} without it"


def _columns(found: Mapping[str, Any]) -> Markup:
    columns = found["columns"][:_MOST]
    most = max([entry["auc"] + entry["auc_spread"] for entry in columns], default=0.0) or 1.0
    rows = [
        [
            tag("code", entry["column"]),
            _bar(entry, most),
            f"{entry['auc']:+.4f} ± {entry['auc_spread']:.4f}",
            f"{entry['log_loss']:+.4f}",
        ]
        for entry in columns
    ]
    head = ["column", "worth", "AUC lost", "log loss added"]
    figures = table(head, rows, "What each column is worth", "importance", numeric=(2, 3))
    more = len(found["columns"]) - len(columns)
    rest = tag("p", f"{plural(more, 'more column')} in explain.json.", class_="empty") if more else None
    note = tag("p", _NOTE, " Grey bars are no more than chance gives.", class_="note")
    return section("columns", "What each column is worth", tag("div", figures, class_="panel"), rest, note)


def _bar(entry: Mapping[str, Any], most: float) -> Markup:
    """The mean as a bar, what the repetitions differ by as a thin line about its end."""
    worth, spread = max(0.0, entry["auc"]) / most, entry["auc_spread"] / most
    begin, end = max(0.0, worth - spread), min(1.0, worth + spread)
    fill = tag("span", class_=f"fill {'quiet' if entry['is_noise'] else 'one'}", style=f"width:{100 * worth:.2f}%")
    line = tag("span", class_="whisker", style=f"left:{100 * begin:.2f}%;width:{100 * (end - begin):.2f}%")
    return tag("span", joined([fill, line]), class_="track", aria_hidden="true")


def show_explanation(found: Mapping[str, Any], console: Console) -> None:
    """The same in the terminal, with a bar for each column.

    Args:
        found: as of `render_explanation`.
        console: where to.
    """
    most = max([entry["auc"] for entry in found["columns"]], default=0.0) or 1.0
    kind = "raw columns" if found["is_raw"] else "features"
    console.print(
        f"AUC {found['metrics']['auc']:.4f}, log loss {found['metrics']['log_loss']:.4f} on {found['rows']:,} rows; "
        f"what the model loses when {kind} are shuffled, one at a time:",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    shown = Table(box=None, pad_edge=False)
    shown.add_column("column", overflow="fold")
    for name in ("AUC lost", "±", "log loss added"):
        shown.add_column(name, justify="right")
    shown.add_column("")
    for entry in found["columns"]:
        bar = "█" * round(_TERMINAL_BAR * max(0.0, entry["auc"]) / most)
        drawn = "[dim]no more than chance" if entry["is_noise"] else f"[cyan]{bar}"
        figures = (f"{entry['auc']:.4f}", f"{entry['auc_spread']:.4f}", f"{entry['log_loss']:.4f}")
        shown.add_row(escape(entry["column"]), *figures, drawn)
    console.print(shown)
