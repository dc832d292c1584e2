"""The code blocks of README and docs run, page by page, from top to bottom; the links lead somewhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_group
from typer.testing import CliRunner

from penstock.cli import app

ROOT = Path(__file__).parents[1]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), *DECISIONS]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#([\w-]+))?\)")


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """`(line, code)` of every block in a language."""
    text = page.read_text()
    found = [m for m in _BLOCK.finditer(text) if m[1] == language]
    return [(text[: m.start()].count("\n") + 2, m[2]) for m in found]


def with_block(language: str) -> list[Path]:
    """Pages to try by themselves; the tutorial's blocks need one another and have a test of their own."""
    return [page for page in PAGES if blocks(page, language) and page.name != "tutorial.md"]


def pages_of_python() -> list[Any]:
    """Those with blocks of Python. What a page starts on Dask and Ray, tests/contracts/ starts too."""
    slow = {"cluster.md": [pytest.mark.slow]}
    return [pytest.param(page, id=page.name, marks=slow.get(page.name, ())) for page in with_block("python")]


def test_python_blocks_compile() -> None:
    for page in with_block("python"):
        for _, code in blocks(page, "python"):
            compile(code, str(page), "exec")


@pytest.mark.parametrize("page", pages_of_python())
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": f"docs_{page.stem}"}
    for line, code in blocks(page, "python"):
        padded = "\n" * (line - 1) + code  # so that a traceback shows the line of the page
        exec(compile(padded, str(page), "exec"), names)


@pytest.mark.parametrize("page", with_block("console"), ids=lambda p: p.name)
def test_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for _, text in blocks(page, "yaml"):  # a file that a command reads begins with its name
        if named := re.match(r"# ([\w-]+\.yaml)\n", text):
            Path(named[1]).write_text(text)
    for _, code in blocks(page, "console"):
        for command in re.findall(r"^\$ (.*?)(?:\s+#.*)?$", code, re.MULTILINE):
            program, *arguments = command.split()
            if program == "make":
                assert set(arguments) <= targets, f"{page.name}: make has no target {arguments}"
            elif program == "penstock":
                arguments = [str(min(int(a), 1_200)) if a.isdigit() else a for a in arguments]
                result = CliRunner().invoke(app, [*arguments, *_quick(arguments)])
                assert result.exit_code == 0, f"{page.name}: {command}\n{result.output}"
            else:
                raise AssertionError(f"{page.name}: {command}: only make and penstock are tried here")


def test_every_command_is_in_the_table() -> None:
    table = (ROOT / "docs" / "cli.md").read_text().partition("## The first ten minutes")[0]
    commands = {command.name for command in get_group(app).commands.values() if not command.hidden}
    assert commands - {"persia-launcher"} <= set(re.findall(r"`([\w-]+)`", table))  # that is docs/migrate-persia.md's


def _quick(arguments: list[str]) -> list[str]:
    """What a training is given beside what the page says: the way is shown, not how good it gets."""
    if arguments[0] != "train" or "--resume" in arguments:
        return []
    return [*(() if "--epochs" in arguments else ("--epochs", "1")), "--embedding-dim", "4"]


def test_the_first_example_fits_in_fifteen_lines() -> None:
    code = blocks(ROOT / "README.md", "python")[0][1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 15


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text()):
        if "://" in target:
            continue
        file = page.parent / target
        assert file.exists(), f"{page.name} links to {target}, which is not there"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}
            assert anchor in anchors, f"{page.name} links to #{anchor} of {target}; headings: {sorted(anchors)}"


@pytest.mark.parametrize("page", DECISIONS, ids=lambda p: p.name)
def test_decisions_are_short_records_in_the_site(page: Path) -> None:
    text, house = page.read_text(), (ROOT / "docs" / "architecture.md").read_text()
    title, *headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    assert headings == ["Context", "Decision", "Consequences"]
    assert f"[{page.name[:3]}](decisions/{page.name}) | {title} |" in house
    assert f"{title}: decisions/{page.name}\n" in (ROOT / "mkdocs.yml").read_text()
    measured = re.findall(r"\d+(?:\.\d+)? (?:M\b|s\b|ms\b|µs\b|GB\b|times\b|rows/s)", text)
    assert not measured, f"figures belong in docs/benchmarks.md: {measured}"


def test_decisions_are_numbered_without_gaps() -> None:
    assert [page.name[:4] for page in DECISIONS] == [f"{number:03d}-" for number in range(1, len(DECISIONS) + 1)]


def test_the_house_shows_the_rooms_there_are() -> None:
    rooms = re.search(r"^## Rooms$(.*?)^## ", (ROOT / "docs" / "architecture.md").read_text(), re.M | re.S)[1]
    there = {path.parent.name for path in (ROOT / "src" / "penstock").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)` \|", rooms, re.MULTILINE)) == there


def test_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    example = runpy.run_path(str(ROOT / "examples" / "criteo_etl.py"))
    example["main"](num_rows=5_000)
    assert "embedding tables: {'C1':" in capsys.readouterr().out
