"""The page with every public name of the old libraries: `python -m penstock.compat.names.page` prints it."""

from __future__ import annotations

from pathlib import PurePosixPath

from penstock.compat.migrate_rules import Rule, rules
from penstock.compat.names import ABSENT, DIFFERS, GUIDES, LIBRARIES, SAME, Entry, Table, library_of, table

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


def native_table(*libraries: str) -> str:
    """How the old names of some libraries are written natively: the table of the migration guides.

    >>> print("\\n".join(native_table("persia").splitlines()[:2]))
    | old | native | arguments |
    |---|---|---|
    """
    by_rule: dict[str, tuple[list[str], Rule]] = {}
    for old, rule in rules().items():
        if library_of(old) in libraries:
            by_rule.setdefault(repr(rule), ([], rule))[0].append(old)
    changed = [(olds, rule) for olds, rule in by_rule.values() if not _keeps_name(olds[0], rule)]
    same = sorted(
        old.rsplit(".", 1)[-1] for olds, rule in by_rule.values() if _keeps_name(olds[0], rule) for old in olds
    )
    rows = [f"| {', '.join(f'`{old}`' for old in olds)} | `{rule.to}` | {_arguments(rule)} |" for olds, rule in changed]
    if same:
        rows.append(
            f"| `nvtabular.ops`: {', '.join(f'`{name}`' for name in same)} | `penstock.ops`, same names | the same |"
        )
    return "\n".join(["| old | native | arguments |", "|---|---|---|", *rows]) + "\n"


def _keeps_name(old: str, rule: Rule) -> bool:
    return rule == Rule(f"penstock.ops.{old.removeprefix('nvtabular.ops.')}")


def _arguments(rule: Rule) -> str:
    parts = [f"`{old}` is `{new}`" for old, new in rule.rename.items()]
    parts += [f"add `{name}={value}`" for name, value in rule.add.items()]
    parts += [f"`{name}`: {_cell(what)}" for name, what in rule.ask.items()]
    parts += [f"no {', '.join(f'`{name}`' for name in rule.drop)}"] if rule.drop else []
    return "; ".join([*parts, _cell(rule.note)] if rule.note else parts)


if __name__ == "__main__":
    print(render(), end="")
