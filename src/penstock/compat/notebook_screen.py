"""What a notebook puts out, as lines on a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_REWRITES = re.compile(r"[\r\b]+")  # how progress bars go back to the beginning of their line
_INDENT = "    "


class Screen:
    """Shows outputs as they come: whole lines only, so that a progress bar is one line and not hundreds.

    >>> screen = Screen(print)
    >>> screen.show({"output_type": "stream", "text": "1/2"})
    >>> screen.show({"output_type": "stream", "text": "\\r2/2 done\\nnext"})
        2/2 done
    >>> screen.line("[2/2] x = 1")
        next
    [2/2] x = 1
    """

    def __init__(self, show: Callable[[str], None], most: int = 20) -> None:
        self._show, self._most, self._open = show, most, ""

    def line(self, text: str) -> None:
        """A line of our own, after what is still open."""
        self._finish()
        self._show(text)

    def show(self, output: Any) -> None:
        """An output of the kernel: text as it is, of anything else its plain form; what is long is cut."""
        if output["output_type"] == "stream":
            *lines, self._open = (self._open + output["text"]).split("\n")
            self._print([_REWRITES.split(line)[-1] for line in lines])
            return
        self._finish()
        if output["output_type"] == "error":
            self._print("\n".join(output["traceback"]).splitlines(), cut=False)
        else:
            data = output.get("data", {})
            self._print(str(data.get("text/plain") or f"<{', '.join(data)}>").splitlines())

    def _finish(self) -> None:
        left, self._open = _REWRITES.split(self._open)[-1], ""
        self._print([left] if left else [])

    def _print(self, lines: list[str], cut: bool = True) -> None:
        shown = lines[: self._most] if cut else lines
        if more := len(lines) - len(shown):
            shown = [*shown, f"… ({more} more lines)"]
        for line in shown:
            self._show(_INDENT + _COLOURS.sub("", line))


def head_of(source: str, width: int = 100) -> str:
    """The first line of a cell that says something.

    >>> head_of("# load\\nimport os\\nimport sys")
    'import os … (3 lines)'
    """
    lines = [line for line in source.splitlines() if line.strip()]
    line = next((line for line in lines if not line.lstrip().startswith("#")), lines[0])
    more = "" if len(lines) == 1 else f" … ({len(lines)} lines)"
    return line[:width] + ("…" if len(line) > width else "") + more
