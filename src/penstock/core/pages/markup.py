"""HTML and SVG from Python. Text is escaped unless it is `Markup` already, so names and values can hold anything."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: Any) -> Markup:
    """Anything as HTML text; markup stays as it is.

    >>> text("</script>"), text(Markup("<b>ok</b>"))
    ('&lt;/script&gt;', '<b>ok</b>')
    """
    return value if isinstance(value, Markup) else Markup(escape(str(value), quote=True))


def joined(parts: Iterable[Any], between: str = "") -> Markup:
    """Parts one after the other; None is left out.

    >>> joined(["a<", None, tag("br")], " ")
    'a&lt; <br></br>'
    """
    return Markup(between.join(text(part) for part in parts if part is not None))


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
    """An element. `class_` is the attribute class, `data_x` is data-x; None and False leave an attribute out.

    >>> tag("a", "x < y", href="#top", class_="link", hidden=True, title=None)
    '<a href="#top" class="link" hidden>x &lt; y</a>'
    """
    shown = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.removesuffix("_").replace("_", "-")
        shown.append(f" {key}" if value is True else f' {key}="{escape(str(value), quote=True)}"')
    return Markup(f"<{name}{''.join(shown)}>{joined(children)}</{name}>")


def table(
    head: Iterable[Any], rows: Iterable[Any], caption: str, class_: str = "", numeric: Iterable[int] = ()
) -> Markup:
    """A table whose cells carry their column's name, which narrow screens show beside them.

    The first cell of a row is its header. `rows` are lists of cells, or Markup (whole rows).
    """
    head, right = [str(cell) for cell in head], set(numeric)
    lines = []
    for row in rows:
        if isinstance(row, Markup):
            lines.append(row)
            continue
        cells = [
            tag("th", cell, scope="row")
            if i == 0
            else tag("td", cell, data_label=head[i], class_="number" if i in right else None)
            for i, cell in enumerate(row)
        ]
        lines.append(tag("tr", *cells))
    titles = [tag("th", cell, scope="col", class_="number" if i in right else None) for i, cell in enumerate(head)]
    return tag(
        "table",
        tag("caption", caption, class_="unseen"),
        tag("thead", tag("tr", *titles)),
        tag("tbody", *lines),
        class_=class_ or None,
    )
