"""What became of every public name of the old libraries, read from one YAML file for each library.

A file maps a module to its names, and a name to `same`, `{differs: how}` or `{absent: why, and what to use}`. A module
that is not here as a whole maps to `{absent: why}`.

>>> lookup("nvtabular.ops", "Categorify").status in ("same", "differs")
True
>>> lookup("nvtabular.ops", "NoSuchOperator") is None
True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import yaml

from penstock.core.errors import DataError

# Where users read on: the title of a library and its migration guide.
GUIDES = {
    "nvtabular": ("NVTabular", "docs/migrate-nvtabular.md"),
    "merlin": ("Merlin", "docs/migrate-nvtabular.md"),
    "persia": ("PERSIA", "docs/migrate-persia.md"),
}
LIBRARIES = tuple(GUIDES)
SAME, DIFFERS, ABSENT = "same", "differs", "absent"


@dataclass(frozen=True)
class Entry:
    """What became of one name."""

    status: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """All names of one library: by module, and the modules that are not here at all."""

    modules: dict[str, dict[str, Entry]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


@cache
def table(library: str) -> Table:
    """The table of a library, by the name of its top-level package."""
    file = resources.files(__name__) / f"{library}.yaml"
    return parse(yaml.safe_load(file.read_text(encoding="utf-8")), file.name)


def parse(content: Any, where: str) -> Table:
    """A table from its plain form; `where` names the file in errors.

    >>> parse({"old.ops": {"Clip": "same"}, "old.gpu": {"absent": "needs cuDF"}}, "old.yaml").absent
    {'old.gpu': 'needs cuDF'}
    """
    found = Table()
    for module, names in (content or {}).items():
        if not isinstance(names, Mapping):
            raise DataError(f"{where}: {module} must map names to entries, got {names!r}")
        if set(names) == {ABSENT} and names[ABSENT] != SAME:
            found.absent[module] = str(names[ABSENT])
        else:
            found.modules[module] = {name: _entry(entry, f"{where}: {module}.{name}") for name, entry in names.items()}
    return found


def _entry(entry: Any, where: str) -> Entry:
    if entry == SAME:
        return Entry(SAME)
    if isinstance(entry, Mapping) and len(entry) == 1:
        [(status, note)] = entry.items()
        if status in (DIFFERS, ABSENT) and isinstance(note, str) and note.strip():
            return Entry(status, " ".join(note.split()))
    raise DataError(f"{where} must be same, {{differs: how}} or {{absent: why}}, got {entry!r}")


def lookup(module: str, name: str) -> Entry | None:
    """What became of `module.name` of an old library; None where the table does not know it."""
    names = table(library_of(module))
    known = names.modules.get(module, {}).get(name)
    why = absent_module(f"{module}.{name}") if known is None else None
    return Entry(ABSENT, why) if why else known


def absent_module(module: str) -> str | None:
    """Why an old module is not here; None where it is, or where the table does not know it."""
    absent = table(library_of(module)).absent
    parts = module.split(".")
    parents = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((absent[parent] for parent in parents if parent in absent), None)


def library_of(module: str) -> str:
    """The top-level package of a dotted name."""
    return module.split(".")[0]
