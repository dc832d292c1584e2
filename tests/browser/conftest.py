"""A real Chromium, without a window. Where there is none these tests are skipped, and say so."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# The runs that the report's own tests look at.
_RUNS = runpy.run_path(str(Path(__file__).parents[1] / "report" / "conftest.py"))
recorded, hostile = _RUNS["recorded"], _RUNS["hostile"]
_PATIENCE = 300_000  # milliseconds until something that never comes is given up: a busy machine takes its time


@pytest.fixture(scope="session")
def train_some() -> Callable[..., Any]:
    return _RUNS["train_some"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the pages were not opened")
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((found for name in names if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"none of {', '.join(names)} is installed: the pages were not opened in a browser")
    api.expect.set_options(timeout=_PATIENCE)
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


class Watched:
    """A page of which every complaint and every request is kept."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self._heard(message))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)


@pytest.fixture
def watch(chromium: Any) -> Iterator[Callable[..., Watched]]:
    contexts = []

    def opened(width: int = 1280, height: int = 900, scheme: str = "light", **settings: Any) -> Watched:
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **settings)
        context.set_default_timeout(_PATIENCE)
        contexts.append(context)
        return Watched(context.new_page())

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def overflowing() -> Callable[[Any], list[str]]:
    """What on a page is wider than the window, but for what scrolls by itself."""

    def found(page: Any) -> list[str]:
        width = page.viewport_size["width"]
        if (whole := page.evaluate("document.documentElement.scrollWidth")) > width:
            return [f"the page is {whole} wide, the window {width}"]
        script = """limit => [...document.querySelectorAll('main *')]
            .filter(e => !e.closest('.scroll, svg, .unseen'))
            .filter(e => e.getBoundingClientRect().right > limit).map(e => e.outerHTML.slice(0, 80))"""
        return list(page.evaluate(script, width + 1))

    return found
