"""A page as one self-contained document: its styles and its script are inside, and nothing else may run or load."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from penstock.core.pages.markup import Markup, joined, tag

# A pipe that falls to a turbine, in the colours of the page.
_MARK = Markup(
    '<svg viewBox="0 0 32 32" class="mark" aria-hidden="true"><path d="M4 5h7l8 14" fill="none" stroke="currentColor" '
    'stroke-width="4.5" stroke-linecap="round" stroke-linejoin="round"/><circle cx="22.5" cy="23" r="6.2" fill="none" '
    'stroke="currentColor" stroke-width="3"/><path d="M22.5 19.5v7M19 23h7" stroke="currentColor" stroke-width="2"/>'
    "</svg>"
)


def document(
    title: str,
    main: Iterable[Markup],
    *,
    links: Mapping[str, str],
    footer: Markup,
    style: str = "",
    script: str = "",
    connects: bool = False,
    **attributes: Any,
) -> str:
    """The whole page.

    Args:
        title: of the window.
        main: its sections, the first of them called `headline`.
        links: sections by their ids, for the bar at the top.
        footer: what stands at the end.
        style: CSS beside what all pages have.
        script: JavaScript beside what all pages have.
        connects: whether the script may ask the place that the page came from.
        attributes: of the body.

    Returns:
        HTML.

    >>> page = document("A & B", [tag("p", "hello")], links={}, footer=tag("p", "bye"))
    >>> "<title>A &amp; B</title>" in page, "connect-src 'none'" in page
    (True, True)
    """
    own = asset("penstock.core.pages", "base.js") + script
    head = joined(
        [
            Markup('<meta charset="utf-8">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{content_policy(own, connects)}">'),
            Markup('<link rel="icon" href="data:,">'),
            tag("title", title),
            tag("style", Markup(asset("penstock.core.pages", "base.css") + style)),
        ]
    )
    body = joined(
        [
            tag("a", "Skip to the figures", href="#headline", class_="skip"),
            _header(links),
            tag("main", *main, id="main"),
            tag("footer", footer),
            tag("div", id="tip", role="status", aria_live="polite"),
            tag("script", Markup(own)),
        ]
    )
    page = tag("html", tag("head", head), tag("body", body, **attributes), lang="en")
    return f"<!doctype html>\n{page}\n"


def section(key: str, title: str, *content: Any, about: Any = None) -> Markup:
    """A part of a page with its heading.

    Args:
        key: its id.
        title: its heading.
        content: what it shows.
        about: a line under the heading.

    Returns:
        HTML.
    """
    said = tag("p", about, class_="about") if about else None
    return tag("section", tag("h2", title, id=f"{key}-title"), said, *content, id=key, aria_labelledby=f"{key}-title")


def card(name: str, value: Any, *more: Any, wide: bool = False) -> Markup:
    """A figure in a list of class `cards`.

    Args:
        name: what it is.
        value: the figure.
        more: smaller words under it; None is left out.
        wide: whether it takes two places.

    Returns:
        HTML.
    """
    words = tag("dd", joined(more), class_="more") if any(more) else None
    return tag("div", tag("dt", name), tag("dd", value, class_="value"), words, class_="card wide" if wide else "card")


def content_policy(script: str, connects: bool) -> str:
    """Nothing from outside, and no script but the page's own: whatever a column may be called."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    connect = "'self'" if connects else "'none'"
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


@cache
def asset(package: str, name: str) -> str:
    """A file in the folder `look` of a package."""
    return (files(package) / "look" / name).read_text(encoding="utf-8")


def _header(links: Mapping[str, str]) -> Markup:
    toggle = tag("button", "Theme", type="button", id="theme", title="Light, dark, or as the system is")
    brand = tag("a", _MARK, "Penstock", href="#headline", class_="brand")
    named = tag("nav", *(tag("a", name, href=f"#{key}") for key, name in links.items()), aria_label="Sections")
    onward = tag("button", "›", type="button", class_="onward", aria_label="More sections")
    return tag("header", tag("div", brand, named, onward, toggle, class_="bar"))
