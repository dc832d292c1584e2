"""For the documentation site: pages link to `../examples/…`, which is right in the repository; the site gets a copy."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

_EXAMPLES = Path(__file__).parents[1] / "examples"


def on_page_content(html: str, **_: Any) -> str:
    """Links to the examples stay inside the site."""
    return html.replace('href="../examples/', 'href="examples/')


def on_post_build(config: Any) -> None:
    """The examples themselves."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(_EXAMPLES, Path(config["site_dir"]) / "examples", dirs_exist_ok=True, ignore=ignored)
