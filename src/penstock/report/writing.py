"""A report on disk: its data and its page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.core.artefact import replacing
from penstock.report.html import render
from penstock.report.plain import plain


def write(report: Mapping[str, Any], directory: str | Path) -> Path:
    """`report.json` and `report.html` in `directory`, each replaced in one step; the page's path.

    Args:
        report: plain data.
        directory: where to.

    Returns:
        The path of the page.

    >>> import tempfile
    >>> write({"version": 1, "title": "empty"}, tempfile.mkdtemp()).name
    'report.html'
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    data = plain(report)
    with replacing(directory / "report.json") as partial:
        partial.write_text(json.dumps(data, indent=1, allow_nan=False), encoding="utf-8")
    with replacing(directory / "report.html") as partial:
        partial.write_text(render(data), encoding="utf-8", errors="backslashreplace")  # halves of characters
    return directory / "report.html"
