"""One self-contained page from a report's plain data: styles, script and drawings are all inside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from penstock.core.errors import ArtefactError
from penstock.report import data_sections, sections, setting_sections, training_sections
from penstock.report.markup import Markup, joined, tag

READABLE_VERSION = 1
_PARTS = {
    "headline": sections.headline,
    "training": training_sections.training,
    "time": training_sections.time,
    "workflow": data_sections.workflow,
    "embeddings": data_sections.embeddings,
    "data": data_sections.data,
    "configuration": setting_sections.configuration,
    "machine": setting_sections.machine,
}
_NAVIGATION = {
    "training": "Training",
    "time": "Time",
    "workflow": "Workflow",
    "embeddings": "Embeddings",
    "data": "Data",
    "configuration": "Configuration",
    "machine": "Machine",
}
# A pipe that falls to a turbine, in the colours of the page.
_MARK = Markup(
    '<svg viewBox="0 0 32 32" class="mark" aria-hidden="true"><path d="M4 5h7l8 14" fill="none" stroke="currentColor" '
    'stroke-width="4.5" stroke-linecap="round" stroke-linejoin="round"/><circle cx="22.5" cy="23" r="6.2" fill="none" '
    'stroke="currentColor" stroke-width="3"/><path d="M22.5 19.5v7M19 23h7" stroke="currentColor" stroke-width="2"/>'
    "</svg>"
)


def render(report: Mapping[str, Any], live: int | None = None) -> str:
    """The page. With `live`, the number of its state, it asks where it came from for what has changed since.

    Args:
        report: plain data, as `RunRecorder.report` gives it.
        live: the number of the state that is shown; None for a page that stays as it is.

    Returns:
        The page as HTML.

    Raises:
        ArtefactError: it is no report.

    >>> page = render({"version": 1, "title": "<script>alert(1)</script>", "state": "done"})
    >>> "<script>alert" in page, "&lt;script&gt;alert(1)" in page
    (False, True)
    """
    if report.get("version") != READABLE_VERSION:
        raise ArtefactError(
            f"this is not a run's report of version {READABLE_VERSION} (its version is {report.get('version')!r}); "
            "write it again with this version of Penstock"
        )
    title = str(report.get("title") or "Training run")
    head = joined(
        [
            Markup('<meta charset="utf-8">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{_policy(live is not None)}">'),
            Markup('<link rel="icon" href="data:,">'),
            tag("title", f"{title} · Penstock"),
            tag("style", _asset("style.css")),
        ]
    )
    body = joined(
        [
            tag("a", "Skip to the figures", href="#headline", class_="skip"),
            _header(),
            tag("main", *render_parts(report).values(), id="main"),
            _footer(report),
            tag("div", id="tip", role="status", aria_live="polite"),
            tag("script", _asset("page.js")),
        ]
    )
    page = tag("html", tag("head", head), tag("body", body, data_live=live), lang="en")
    return f"<!doctype html>\n{page}\n"


def render_parts(report: Mapping[str, Any]) -> dict[str, Markup]:
    """The page's parts by name: what a live page exchanges."""
    return {name: part(report) for name, part in _PARTS.items()}


def _header() -> Markup:
    links = [tag("a", name, href=f"#{key}") for key, name in _NAVIGATION.items()]
    toggle = tag("button", "Theme", type="button", id="theme", title="Light, dark, or as the system is")
    brand = tag("a", _MARK, "Penstock", href="#headline", class_="brand")
    return tag("header", tag("div", brand, tag("nav", *links, aria_label="Sections"), toggle, class_="bar"))


def _footer(report: Mapping[str, Any]) -> Markup:
    version = ((report.get("machine") or {}).get("versions") or {}).get("penstock")
    made = f"Penstock {version}" if version else "Penstock"
    note = tag("span", id="live-note", class_="quiet-text")
    return tag("footer", tag("p", f"{made} · the same as data: ", tag("code", "report.json"), " ", note))


@cache
def _asset(name: str) -> Markup:
    return Markup((files("penstock.report") / "page" / name).read_text(encoding="utf-8"))


def _policy(live: bool) -> str:
    """Nothing from outside, and no script but the page's own: whatever a column may be called."""
    digest = base64.b64encode(hashlib.sha256(_asset("page.js").encode()).digest()).decode()
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
