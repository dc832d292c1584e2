"""Print the tests that concern what changed since main, for `make check`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Cheap, and about every file.
ALWAYS = ("tests/test_imports.py", "tests/test_public_api.py")
# A module that more test files than this import is everybody's: here only the tests named after it run.
MOST = 6


def changed_files() -> list[str]:
    """What differs from where this branch left main, committed or not; new files too."""
    base = next(filter(None, (_git("merge-base", "HEAD", main).strip() for main in ("origin/main", "main"))), "HEAD")
    listed = _git("diff", "--name-only", "--diff-filter=d", base) + _git("ls-files", "--others", "--exclude-standard")
    return sorted(set(listed.splitlines()))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def files_for(changed: Iterable[str], tests: dict[str, str]) -> list[str]:
    """The test files to run.

    Args:
        changed: Paths of changed files, from the root of the repository.
        tests: The text of every test file, by path.

    Returns:
        Changed tests, those named after a changed module or importing it, and the changed modules for their doctests.

    Example:
        >>> tests = {
        ...     "tests/data/test_split.py": "from penstock import Dataset",
        ...     "tests/etl/test_flow.py": "from penstock.data.split import split",
        ...     "tests/nn/test_cross.py": "",
        ... }
        >>> for path in files_for(["src/penstock/data/split.py", "CONTRIBUTING.md"], tests):
        ...     print(path)
        src/penstock/data/split.py
        tests/data/test_split.py
        tests/etl/test_flow.py
        tests/test_docs.py::test_commands_run[CONTRIBUTING.md]
        tests/test_docs.py::test_links_lead_somewhere[CONTRIBUTING.md]
        tests/test_imports.py
        tests/test_public_api.py
    """
    chosen = set(ALWAYS)
    for path in changed:
        if path in tests:
            chosen.add(path)
        elif path.startswith("src/penstock/") and path.endswith(".py"):
            chosen.update([path, *_about(path, tests)])
        elif re.fullmatch(r"(README|CONTRIBUTING|docs/(decisions/)?[\w-]+)\.md", path):
            chosen.update(_of_page(path))
        elif Path(path).name == "conftest.py" and path != "tests/conftest.py":
            chosen.update(test for test in tests if test.startswith(f"{Path(path).parent}/"))
    return sorted(chosen)


def _about(path: str, tests: dict[str, str]) -> set[str]:
    """Test files named after a module, and those that import it where they are few."""
    parts = Path(path).relative_to("src/penstock").with_suffix("").parts
    stem = parts[-2] if parts[-1] == "__init__" and len(parts) > 1 else parts[-1].lstrip("_")
    named = {test for test in tests if Path(test).stem in (f"test_{stem}", f"test_{'_'.join(parts)}")}
    importing = re.compile(rf"\bpenstock\.{re.escape('.'.join(parts))}\b")
    direct = {test for test, text in tests.items() if importing.search(text)}
    return named | (direct if len(direct) <= MOST else set())


def _of_page(path: str) -> set[str]:
    """The tests of one page: its links, and its blocks of code where it has some."""
    text = (ROOT / path).read_text()
    tried = {"python": "test_python_blocks_run", "console": "test_commands_run"}
    names = ["test_links_lead_somewhere", *(test for block, test in tried.items() if f"\n```{block}\n" in text)]
    return {f"tests/test_docs.py::{name}[{Path(path).name}]" for name in names}


def main() -> None:
    """Print the paths, one a line, of those that exist."""
    tests = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    print("\n".join(path for path in files_for(changed_files(), tests) if (ROOT / path.split("::")[0]).exists()))


if __name__ == "__main__":
    main()
