"""The pictures of pages in docs/images, from a run made for them.

`python scripts/pictures.py` trains on synthetic logs (a few minutes on two cores), opens its report and its service in
the system's Chromium and writes report.png, report-phone.png, report-dark.png and service.png. `--run DIR` takes a run
of `penstock demo` that is there already. Look at each before it is committed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ROWS = 300_000


@dataclass(frozen=True)
class Picture:
    """One picture.

    Args:
        name: of the file.
        page: "report" or "service".
        width, height: of the window.
        scheme: light or dark.
        section: what is at the top of the window; the page's own top without one.
        scale: pixels of the picture for one of the window.
    """

    name: str
    page: str
    width: int
    height: int
    scheme: str = "light"
    section: str | None = None
    scale: float = 1.0


PICTURES = (
    Picture("report.png", "report", 1200, 938),
    Picture("report-dark.png", "report", 1200, 938, "dark", "workflow"),
    Picture("report-phone.png", "report", 375, 812, scale=1.5),
    Picture("service.png", "service", 1200, 844),
)


def made_run(folder: Path) -> Path:
    """A run of the demo."""
    from penstock.jobs.demo import run_demo

    run_demo(None, ROWS, folder, progress=False)
    return folder


@contextmanager
def browser() -> Iterator[Any]:
    """The system's Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        raise SystemExit(f"none of {', '.join(PROGRAMS)} is installed")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


def take(opened: Any, picture: Picture, address: str) -> Path:
    """Open a page, go to a section of it, and keep what the window shows."""
    context = opened.new_context(
        viewport={"width": picture.width, "height": picture.height},
        color_scheme=picture.scheme,
        device_scale_factor=picture.scale,
    )
    page = context.new_page()
    page.goto(address)
    if picture.page == "service":
        page.get_by_role("button", name="Predict").click()
        page.get_by_text("probability").first.wait_for()
    if picture.section is not None:
        page.locator(f"#{picture.section}").evaluate("e => window.scrollTo(0, e.offsetTop - 70)")
    page.screenshot(path=IMAGES / picture.name)
    context.close()
    return IMAGES / picture.name


def main() -> None:
    from penstock.serve.http import HttpServer

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help="a run of penstock demo; one is made by default")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        run = given.run or made_run(Path(place) / "demo")
        with HttpServer(run / "model", port=0) as server, browser() as opened:
            addresses = {"report": (run / "report.html").absolute().as_uri(), "service": server.url}
            for picture in PICTURES:
                print(take(opened, picture, addresses[picture.page]))


if __name__ == "__main__":
    main()
