"""The documentation site builds, needs no network, and its reference has every public name."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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
