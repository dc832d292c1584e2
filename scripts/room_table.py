"""The size of every room, now and at another revision: the table in docs/architecture.md.

`python scripts/room_table.py` prints today's; `--before REV` puts that revision beside it; `--write` puts it into
the page. Lines are those of Python files; a function's length is without its docstring.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- written by scripts/room_table.py: begin -->", "<!-- written by scripts/room_table.py: end -->"
# Classes of embeddings, of which others should ask what they can do, not what they are.
EMBEDDINGS = {
    "Store", "RayStore", "EmbeddingStore", "FusedEmbeddings", "CachedEmbeddings", "HashedEmbeddings",
    "FrozenEmbeddings", "EmbeddingTables", "TableModule", "FusedEmbeddingBags",
}  # fmt: skip


@dataclass
class Room:
    """What a room comes to.

    Args:
        files: of Python.
        lines: of them, blank ones too.
        longest: lines of the longest function.
        checks: `isinstance` on a class of embeddings.
    """

    files: int = 0
    lines: int = 0
    longest: int = 0
    checks: int = 0


def sources(revision: str | None) -> dict[str, str]:
    """The text of every module by its path below src/penstock, as it is or was."""
    if revision is None:
        folder = ROOT / "src" / "penstock"
        return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.py")}
    packed = subprocess.run(
        ["git", "archive", revision, "src/penstock"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = [member for member in archive if member.isfile() and member.name.endswith(".py")]
        return {
            member.name.removeprefix("src/penstock/"): held.read().decode()
            for member in members
            if (held := archive.extractfile(member)) is not None
        }


def rooms(texts: Mapping[str, str]) -> dict[str, Room]:
    """The rooms by name.

    >>> found = rooms({"core/a.py": 'def f():\\n    "Words."\\n    return 1\\n', "core/b.py": "", "__init__.py": ""})
    >>> found
    {'core': Room(files=2, lines=3, longest=2, checks=0)}
    """
    found: dict[str, Room] = {}
    for path, text in sorted(texts.items()):
        if "/" not in path:
            continue
        room, tree = found.setdefault(path.partition("/")[0], Room()), ast.parse(text)
        room.files += 1
        room.lines += text.count("\n")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                room.longest = max(room.longest, _length(node))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                room.checks += bool(
                    {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)} & EMBEDDINGS
                )
    return found


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = (first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def table(now: Mapping[str, Room], before: Mapping[str, Room]) -> str:
    """Both side by side, in the order of today's rooms; with one that is gone at the end."""
    lines = ["| room | files | lines | longest function | `isinstance` on embeddings |", "|---|---|---|---|---|"]
    total, total_before = _sum(now), _sum(before)
    for name in [*now, *(name for name in before if name not in now)]:
        lines.append(_row(f"`{name}`", now.get(name), before.get(name)))
    return "\n".join([*lines, _row("all", total, total_before)])


def _sum(found: Mapping[str, Room]) -> Room | None:
    own = found.values()
    if not own:
        return None
    longest = max(room.longest for room in own)
    return Room(sum(r.files for r in own), sum(r.lines for r in own), longest, sum(r.checks for r in own))


def _row(name: str, now: Room | None, before: Room | None) -> str:
    figures = ("files", "lines", "longest", "checks")
    shown = [[f"{getattr(room, figure):,}" if room else "–" for figure in figures] for room in (before, now)]
    cells = [new if before is None and name != "all" else f"{old} → {new}" for old, new in zip(*shown, strict=True)]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", help="a revision to compare with")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    made = table(rooms(sources(None)), rooms(sources(given.before)) if given.before else {})
    if not given.write:
        print(made)
        return
    start, _, rest = PAGE.read_text().partition(BEGIN)
    _, found, end = rest.partition(END)
    if not found:
        raise SystemExit(f"{PAGE} lacks the lines {BEGIN} and {END}")
    PAGE.write_text(f"{start}{BEGIN}\n{made}\n{END}{end}")


if __name__ == "__main__":
    main()
