"""The size of every room, now and at another revision: the table in docs/architecture.md.

`python scripts/room_table.py` prints today's; `--before REV` puts that revision beside it; `--write` puts it into
the page. Lines are those of Python files; a function's length is without its docstring.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import public_names

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
        any_arguments: of public functions, typed bare `Any`.
        arguments: of public functions, all.
    """

    files: int = 0
    lines: int = 0
    longest: int = 0
    checks: int = 0
    any_arguments: int = 0
    arguments: int = 0


@contextmanager
def source(revision: str | None) -> Iterator[Path]:
    """The folder of the package's sources, as they are or were."""
    if revision is None:
        yield ROOT / "src"
        return
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
        subprocess.run(["tar", "x", "-C", folder], input=packed.stdout, check=True)
        yield Path(folder) / "src"


def rooms(folder: Path) -> dict[str, Room]:
    """The rooms by name.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "penstock" / "core").mkdir(parents=True)
    >>> (folder / "penstock" / "core" / "a.py").write_text('def f():\\n    "Words."\\n    return 1\\n')
    35
    >>> rooms(folder)
    {'core': Room(files=1, lines=3, longest=2, checks=0, any_arguments=0, arguments=0)}
    """
    found: dict[str, Room] = {}
    for path in sorted((folder / "penstock").glob("*/**/*.py")):
        text = path.read_text()
        room = found.setdefault(path.relative_to(folder / "penstock").parts[0], Room())
        room.files += 1
        room.lines += text.count("\n")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                room.longest = max(room.longest, _length(node))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                room.checks += bool(
                    {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)} & EMBEDDINGS
                )
    for one in public_names.public(folder):
        room = found[one.name.split(".")[1]]
        room.any_arguments += len(one.bare)
        room.arguments += len(one.parameters)
    return found


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = (first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def table(now: dict[str, Room], before: dict[str, Room]) -> str:
    """Both side by side, in the order of today's rooms; with one that is gone at the end."""
    lines = ["| room | files | lines | longest function | `isinstance` on embeddings | public arguments typed `Any` |"]
    lines.append("|---|---|---|---|---|---|")
    total, total_before = _sum(now), _sum(before)
    for name in [*now, *(name for name in before if name not in now)]:
        lines.append(_row(f"`{name}`", now.get(name), before.get(name)))
    return "\n".join([*lines, _row("all", total, total_before)])


def _sum(found: dict[str, Room]) -> Room | None:
    own = found.values()
    if not own:
        return None
    totals = {field.name: sum(getattr(room, field.name) for room in own) for field in fields(Room)}
    return Room(**{**totals, "longest": max(room.longest for room in own)})


def _row(name: str, now: Room | None, before: Room | None) -> str:
    old, new = (_cells(room) for room in (before, now))
    cells = new if before is None and name != "all" else [f"{a} → {b}" for a, b in zip(old, new, strict=True)]
    return f"| {name} | {' | '.join(cells)} |"


def _cells(room: Room | None) -> list[str]:
    if room is None:
        return ["–"] * 5
    figures = [f"{figure:,}" for figure in (room.files, room.lines, room.longest, room.checks)]
    return [*figures, f"{room.any_arguments:,} of {room.arguments:,}"]


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", help="a revision to compare with")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    with source(None) as own:
        now, before = rooms(own), dict[str, Room]()
    if given.before:
        with source(given.before) as former:
            before = rooms(former)
    made = table(now, before)
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
