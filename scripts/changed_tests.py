"""Print the tests that concern what changed since main, for `make check`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Cheap, and about every file.
ALWAYS = ("tests/test_imports.py", "tests/test_public_api.py")
# Where no test is named after a module, so many of those that import it or speak of it stand for all: `make test` has
# the rest, and the suites over several rooms.
BEST = 3


def changed_files() -> list[str]:
    """What differs from where this branch left main, committed or not; new files too."""
    base = next(filter(None, (_git("merge-base", "HEAD", main).strip() for main in ("origin/main", "main"))), "HEAD")
    listed = _git("diff", "--name-only", "--diff-filter=d", base) + _git("ls-files", "--others", "--exclude-standard")
    return sorted(set(listed.splitlines()))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def files_for(changed: Iterable[str], tests: dict[str, str], sources: dict[str, str]) -> list[str]:
    """The test files to run.

    Args:
        changed: Paths of changed files, from the root of the repository.
        tests: The text of every test file, by path.
        sources: The text of every module, by path.

    Returns:
        Changed tests, those named after a changed module or about it, and the changed modules for their doctests.

    Example:
        >>> tests = {
        ...     "tests/data/test_split.py": "from penstock import Dataset",
        ...     "tests/etl/test_flow.py": "from penstock.data.split import split",
        ...     "tests/nn/test_cross.py": "",
        ... }
        >>> sources = {
        ...     "src/penstock/data/split.py": "from penstock.data.allotment import allot",
        ...     "src/penstock/data/allotment.py": "def allot(): ...",
        ... }
        >>> for path in files_for(["src/penstock/data/split.py", "CONTRIBUTING.md"], tests, sources):
        ...     print(path)
        src/penstock/data/split.py
        tests/data/test_split.py
        tests/test_docs.py::test_commands_run[CONTRIBUTING.md]
        tests/test_docs.py::test_links_lead_somewhere[CONTRIBUTING.md]
        tests/test_imports.py
        tests/test_public_api.py
        >>> files_for(["src/penstock/data/allotment.py"], tests, sources)[1]  # what uses it has tests
        'tests/data/test_split.py'
    """
    chosen = set(ALWAYS)
    for path in changed:
        if path in tests:
            chosen.add(path)
        elif path.startswith("src/penstock/") and path.endswith(".py"):
            chosen.update([path, *_about(path, tests, sources)])
        elif re.fullmatch(r"(README|CONTRIBUTING|docs/(decisions/)?[\w-]+)\.md", path):
            chosen.update(_of_page(path))
        elif Path(path).name == "conftest.py" and path != "tests/conftest.py":
            chosen.update(test for test in tests if test.startswith(f"{Path(path).parent}/"))
    return sorted(chosen)


def _about(path: str, tests: dict[str, str], sources: dict[str, str]) -> set[str]:
    """Test files of a module; where it has none, those of the modules that use it, and of those that use them."""
    level, seen = {path}, {path}
    while level:
        if found := set().union(*(_own_tests(module, tests, sources.get(module, "")) for module in level)):
            return found if level == {path} else _most_about(_names(sources.get(path, "")), found, tests)
        importing = re.compile("|".join(_importing(_parts(module)) for module in level))
        level = {user for user, text in sources.items() if importing.search(text)} - seen
        seen |= level
    return set()


def _own_tests(path: str, tests: dict[str, str], source: str) -> set[str]:
    """Test files named after a module, else those that import it, else those that speak of it; of its room if any."""
    parts = _parts(path)
    room, importing = f"tests/{parts[0]}/", re.compile(_importing(parts))
    stem = parts[-2] if parts[-1] == "__init__" and len(parts) > 1 else parts[-1].lstrip("_")
    named = {test for test in tests if Path(test).stem in (f"test_{stem}", f"test_{'_'.join(parts)}")}
    direct = {test for test, text in tests.items() if importing.search(text)}
    if near := {test for test in named | direct if test.startswith(room)}:
        return near
    if named or 0 < len(direct) <= BEST:
        return named or direct
    names = _names(source)
    speaking = {t for t, text in tests.items() if t.startswith(room) and any(name in text for name in names)}
    return _most_about(names, speaking, tests)


def _parts(path: str) -> tuple[str, ...]:
    return Path(path).relative_to("src/penstock").with_suffix("").parts


def _importing(parts: tuple[str, ...]) -> str:
    """A pattern of what imports a module."""
    *above, name = parts
    room = re.escape(".".join(["penstock", *above]))
    return rf"\b{room}\.{name}\b|from {room} import [^\n]*\b{name}\b"


def _names(source: str) -> set[str]:
    """The public classes and functions that a module defines."""
    return set(re.findall(r"^(?:class|def) ([A-Za-z]\w+)", source, re.M))


def _most_about(names: set[str], chosen: set[str], tests: dict[str, str]) -> set[str]:
    """The few of the chosen test files in which these names occur most."""
    words = re.compile(rf"\b(?:{'|'.join(sorted(names))})\b") if names else re.compile("$.")
    return set(sorted(chosen, key=lambda test: (-len(words.findall(tests[test])), test))[:BEST])


def _of_page(path: str) -> set[str]:
    """The tests of one page: its links, and its blocks of code where it has some."""
    text = (ROOT / path).read_text()
    tried = {"python": "test_python_blocks_run", "console": "test_commands_run"}
    names = ["test_links_lead_somewhere", *(test for block, test in tried.items() if f"\n```{block}\n" in text)]
    return {f"tests/test_docs.py::{name}[{Path(path).name}]" for name in names}


def main() -> None:
    """Print the paths, one a line, of those that exist."""
    tests = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "src/penstock").rglob("*.py")}
    chosen = files_for(changed_files(), tests, sources)
    print("\n".join(path for path in chosen if (ROOT / path.split("::")[0]).exists()))


if __name__ == "__main__":
    main()
