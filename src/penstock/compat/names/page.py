"""The page with every public name of the old libraries: `python -m penstock.compat.names.page` prints it."""

from __future__ import annotations

from pathlib import PurePosixPath

from penstock.compat.names import ABSENT, DIFFERS, GUIDES, LIBRARIES, SAME, Entry, Table, table

SIGNS = {SAME: "✓", DIFFERS: "≈", ABSENT: "✗"}
_HEAD = """# Names of the old libraries

Every public name of NVTabular, Merlin (what NVTabular's users import of it) and PERSIA, and what `penstock run` makes
of it: ✓ as it was, ≈ here with a difference that is stated, ✗ not here, with the reason. Using a name marked ✗ is an
error that says the same. How to write them natively: [NVTabular and Merlin](migrate-nvtabular.md),
[PERSIA](migrate-persia.md).

This page is what `python -m penstock.compat.names.page` prints.
"""


def render() -> str:
    """The whole page.

    >>> render().splitlines()[0]
    '# Names of the old libraries'
    """
    tables = {library: table(library) for library in LIBRARIES}
    rows = "\n".join(f"| [{GUIDES[name][0]}](#{name}) | {_counts(known)} |" for name, known in tables.items())
    summary = f"| | names | ✓ | ≈ | ✗ |\n|---|---|---|---|---|\n{rows}\n"
    return "\n".join([_HEAD, summary, *(_section(library, known) for library, known in tables.items())])


def _counts(known: Table) -> str:
    entries = [entry for names in known.modules.values() for entry in names.values()]
    of = [sum(entry.status == status for entry in entries) for status in (SAME, DIFFERS, ABSENT)]
    absent = f" and {len(known.absent)} modules" if known.absent else ""
    return f"{len(entries)} | {of[0]} | {of[1]} | {of[2]}{absent}"


def _section(library: str, known: Table) -> str:
    title, guide = GUIDES[library]
    parts = [f"## {title}\n\nMore in the [guide]({PurePosixPath(guide).name}).\n"]
    for module in sorted(known.modules):
        parts.append(f"### {module}\n\n| name | | |\n|---|---|---|\n{_rows(known.modules[module])}\n")
    if known.absent:
        rows = "\n".join(f"| `{module}` | ✗ | {_cell(why)} |" for module, why in sorted(known.absent.items()))
        parts.append(f"### Modules of {title} that are not here\n\n| module | | |\n|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def _rows(names: dict[str, Entry]) -> str:
    return "\n".join(
        f"| `{name}` | {SIGNS[entry.status]} | {_cell(entry.note)} |" for name, entry in sorted(names.items())
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    print(render(), end="")
