"""What keeps the project together: its lists of dependencies, its workflows and its make targets say the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = ("base.txt", "dev.txt")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def name_of(requirement: str) -> str:
    """A package's name as registries compare names."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def locked(file: str) -> dict[str, list[str]]:
    """The hashes of every package in a lock."""
    entries = re.split(r"\n(?=\S)", (ROOT / "requirements" / file).read_text())
    found = [entry for entry in entries if re.match(r"[\w.-]+==", entry)]
    return {name_of(entry): re.findall(r"--hash=sha256:([0-9a-f]{64})\b", entry) for entry in found}


def declared(*, everything: bool) -> set[str]:
    """The names that pyproject.toml asks for: those of the base, or of all extras and groups."""
    lists = [PROJECT["project"]["dependencies"]]
    if everything:
        lists += [*PROJECT["project"]["optional-dependencies"].values(), *PROJECT["dependency-groups"].values()]
    names = {name_of(item) for requirements in lists for item in requirements if isinstance(item, str)}
    return names - {"penstock", "torch"}


@pytest.mark.parametrize(("file", "everything"), [("base.txt", False), ("dev.txt", True)])
def test_locks_have_what_is_declared_with_hashes(file: str, everything: bool) -> None:
    packages = locked(file)
    assert declared(everything=everything) <= packages.keys(), "make lock"
    assert not [name for name, hashes in packages.items() if not hashes]
    assert "torch" not in packages  # its build depends on the machine


def test_the_base_lock_is_part_of_the_whole() -> None:
    base, whole = (
        set(re.findall(r"^[\w.-]+==\S+", (ROOT / "requirements" / name).read_text(), re.M)) for name in LOCKS
    )
    assert base <= whole


def test_files_that_are_installed_from_name_no_place() -> None:
    for file in (ROOT / "requirements").glob("*.txt"):
        assert not re.search(r"://|^-(i|f|-index|-extra-index|-find)", file.read_text(), re.M), file.name


def test_workflows_call_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.M))
    phony = set(re.search(r"^\.PHONY: (.*)$", makefile, re.M)[1].split())
    assert phony == targets
    hooks = ROOT / ".pre-commit-config.yaml"
    for file in [*WORKFLOWS, hooks]:
        called = set(re.findall(r"(?:run|entry): (?:.*&& )?make ([\w-]+)", file.read_text()))
        assert called <= targets, file.name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_hold_no_secret_and_ask_for_little(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in path.read_text()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_keep_no_credentials(path: Path) -> None:
    """A tag can be moved to other code, a commit cannot; the version beside it is for people and for Dependabot."""
    text = path.read_text()
    used = re.findall(r"uses: (.*)", text)
    assert used and not [action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v[\d.]+", action)]
    assert len(re.findall(r"uses: actions/checkout@.*\n +with: \{persist-credentials: false", text)) == text.count(
        "/checkout@"
    )


def test_every_supported_python_is_tested() -> None:
    classifiers = PROJECT["project"]["classifiers"]
    supported = [c.rsplit(" ", 1)[1] for c in classifiers if re.search(r":: 3\.\d+$", c)]
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    for job in ("tests", "wheel"):
        assert jobs[job]["strategy"]["matrix"]["python"] == supported
    assert PROJECT["project"]["requires-python"] == f">={supported[0]}"


def test_settings_of_tests_and_of_make_agree() -> None:
    exported = dict(re.findall(r"^export (\w+)\s*:= (\S+)$", (ROOT / "Makefile").read_text(), re.M))
    set_here = dict(re.findall(r'^    "(\w+)": "(\w+)",', (ROOT / "tests/conftest.py").read_text(), re.M))
    assert set_here == exported


def test_the_table_of_changes_names_what_is_there() -> None:
    """Every file of CONTRIBUTING's table exists, and has the name that is said to be in it."""
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where a change goes")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith(("| add ", "| mend "))]
    assert len(rows) == 12
    for path in re.findall(r"`([\w/<>.]+\.(?:py|toml))`", "\n".join(rows)):
        folder = ROOT if path.partition("/")[0] in ("tests", "scripts", "pyproject.toml") else ROOT / "src" / "penstock"
        pattern = re.sub(r"<\w+>", "*", path)
        assert list(folder.glob(pattern)), f"CONTRIBUTING.md names {path}, which is not there"
    for name, path in re.findall(r"`([A-Za-z]+)` (?:in|\() ?`([\w/.]+\.py)`", "\n".join(rows)):
        folder = ROOT if path.startswith(("tests/", "scripts/")) else ROOT / "src" / "penstock"
        assert re.search(rf"^(class )?{name}\b", (folder / path).read_text(), re.M), f"{path} has no {name}"
