"""The documentation site builds, needs no network, and its reference has every public name."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
_BROWSER = runpy.run_path(str(ROOT / "tests" / "browser" / "conftest.py"))
chromium, watch = _BROWSER["chromium"], _BROWSER["watch"]
API = ROOT / "docs" / "api"
PUBLIC = (
    "penstock", "penstock.data.synthetic", "penstock.embedding", "penstock.etl", "penstock.etl.ops", "penstock.loader",
    "penstock.jobs", "penstock.nn", "penstock.report", "penstock.serve", "penstock.train",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="make docs needs the docs group of pyproject.toml")
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loads = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=["']?(https?:)?//""")
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        found = [m.group(0) for m in loads.finditer(page.read_text()) if 'rel="canonical"' not in m.group(0)]
        assert not found, f"{page.name} loads {found}"


def test_search_works_from_disk(site: Path, watch) -> None:
    seen = watch()
    seen.page.goto((site / "index.html").as_uri())
    seen.page.locator(".md-search__input").first.fill("TargetEncoding")
    found = seen.page.locator(".md-search-result__item a").first
    found.wait_for(timeout=30_000)
    titles = " ".join(seen.page.locator(".md-search-result__item").all_inner_texts())
    assert "TargetEncoding" in titles and "Operators" in titles
    assert not [url for url in seen.requests if not url.startswith(("file:", "data:", "about:"))]
    leads_to = urlsplit(found.evaluate("link => link.href")).path
    assert Path(unquote(leads_to)).is_file()


def test_links_inside_the_site_lead_somewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # its links are absolute: it is shown wherever something is missing
            continue
        for target in re.findall(r'href="([^"#:?]+)(?:#[^"]*)?"', page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(site)} links to {target}"


def test_examples_are_code(site: Path) -> None:
    text = (site / "api" / "embedding.html").read_text()
    assert "&gt;&gt;&gt; " in text and "<blockquote>" not in text


@pytest.mark.parametrize("module", PUBLIC)
def test_the_reference_has_every_public_name(module: str) -> None:
    listed = set(re.findall(r"^::: (\S+)$", "\n".join(p.read_text() for p in API.glob("*.md")), re.MULTILINE))
    public = importlib.import_module(module)
    objects = [getattr(public, name) for name in getattr(public, "__all__", ())]
    paths = {f"{o.__module__}.{o.__qualname__}" for o in objects if inspect.isclass(o) or inspect.isfunction(o)}
    assert paths <= listed, f"docs/api lacks {sorted(paths - listed)}"
