"""Where tests lie: in the folder of the room they are about, or in that of a suite over several rooms."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import penstock

ROOT = Path(__file__).parent
SOURCE = Path(penstock.__file__).parent
ROOMS = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
# What is about several rooms at once, and why it is apart.
SUITES = {
    "benchmarks": "the runner of benchmarks/",
    "browser": "pages in a browser",
    "contracts": "one suite for all implementations of a contract",
    "differential": "one thing done in several ways",
    "faults": "crashes, full disks, hostile input",
    "gpu": "needs a device",
    "properties": "drawn by hypothesis",
}
TESTS = [path for path in sorted(ROOT.rglob("test_*.py")) if path.relative_to(ROOT).parts[0] in ROOMS]
# A command and old names are reached by what a person types: a shell, `import nvtabular`.
BY_NAME = {"cli": ("penstock",), "compat": ("merlin", "nvtabular", "persia")}


def rooms_used(path: Path) -> set[str]:
    """The rooms that a test's text names: in imports, and in paths such as `"penstock.cli"`."""
    text = path.read_text()
    used = {room for room in ROOMS if f"penstock.{room}" in text or f"penstock/{room}" in text}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module == "penstock":
            for alias in node.names:
                found = getattr(penstock, alias.name)
                used.add(getattr(found, "__module__", getattr(found, "__name__", "")).split(".")[1])
    return used


def test_folders_are_rooms_or_suites() -> None:
    folders = {path.relative_to(ROOT).parts[0] for path in ROOT.rglob("test_*.py") if path.parent != ROOT}
    assert folders - ROOMS == folders & SUITES.keys(), "name a new suite, and why it is apart, in SUITES"
    assert SUITES.keys() <= folders, "SUITES names a folder that is gone"


def misplaced(path: Path) -> set[str]:
    """The rooms that a test uses, where the one it lies in is not among them."""
    room = path.relative_to(ROOT).parts[0]
    if any(word in path.read_text() for word in BY_NAME.get(room, ())) or room in (used := rooms_used(path)):
        return set()
    return used


def test_a_test_uses_the_room_it_lies_in() -> None:
    found = {str(path.relative_to(ROOT)): sorted(used) for path in TESTS if (used := misplaced(path))}
    assert not found, f"they belong in the rooms that they use, or in a suite: {found}"


def test_folders_below_a_room_are_its_packages() -> None:
    below = {path.parent.relative_to(ROOT) for path in TESTS}
    assert not (gone := [str(folder) for folder in below if not (SOURCE / folder).is_dir()]), (
        f"src/penstock lacks {gone}"
    )


def test_every_room_has_tests() -> None:
    there = {path.relative_to(ROOT).parts[0] for path in TESTS}
    assert ROOMS - there == {"engine"}, "engines are tested by their contract; every other room has a folder"


def test_files_that_start_first_are_there() -> None:
    listed = re.search(r"^_LONG = \[(.*?)^\]", (ROOT / "conftest.py").read_text(), re.MULTILINE | re.DOTALL)
    for name in re.findall(r'"(.+?)"', listed[1]):
        assert (ROOT.parent / name).exists(), f"conftest.py lets {name} start first, which is gone"
