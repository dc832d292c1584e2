"""For the API reference: the doctests of a docstring become code blocks, which Markdown would show as quotations."""

from __future__ import annotations

from typing import Any

import griffe


def fenced(text: str) -> str:
    """Every run of doctest lines between fences.

    >>> fenced("Adds.\\n\\n>>> 1\\n1").splitlines()
    ['Adds.', '', '```pycon', '>>> 1', '1', '```']
    """
    out: list[str] = []
    inside = False
    for line in [*text.splitlines(), ""]:
        if not inside and line.lstrip().startswith(">>>"):
            inside = True
            out.append("```pycon")
        elif inside and not line.strip():
            inside = False
            out.append("```")
        out.append(line)
    return "\n".join(out).rstrip()


class DoctestBlocks(griffe.Extension):
    """What mkdocs.yml names."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
