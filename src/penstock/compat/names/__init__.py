"""What became of every public name of the old libraries, read from one YAML file for each library.

A file maps a module to its names, and a name to `same`, `{differs: how}` or `{absent: why, and what to use}`. A name
that lives elsewhere says where: `{is: merlin.schema.schema.Schema}`, and what became of it is what became of that one,
unless it `differs` by itself. A module whose names are all another's maps to `{is: module}`, with `also: _` where its
names came with that prefix too; a module that is not here as a whole maps to `{absent: why}`.

>>> lookup("nvtabular.ops", "Categorify").home
'nvtabular.ops.categorify.Categorify'
>>> lookup("nvtabular.ops", "NoSuchOperator") is None
True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
SAME, DIFFERS, ABSENT, IS, ALSO = "same", "differs", "absent", "is", "also"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C, where PyYAML was built with it
NATIVE = "penstock."  # a home that begins with this is Penstock's own; others are names of the old libraries


@dataclass(frozen=True)
class Entry:
    """What became of one name; `home` is the dotted name of what it is, empty where its own module defines it."""

    status: str
    note: str = ""
    home: str = ""


@dataclass(frozen=True)
class Table:
    """All names of one library: by module, and the modules that are not here at all.

    `copies` are modules whose names are another's: `{module: (other module, further prefix)}`.
    """

    modules: dict[str, dict[str, Entry]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    copies: dict[str, tuple[str, str]] = field(default_factory=dict)


@cache
def table(library: str) -> Table:
    """The table of a library, by the name of its top-level package."""
    written = _written(library)
    modules = {module: {name: _followed(e) for name, e in es.items()} for module, es in written.modules.items()}
    for module, (other, prefix) in written.copies.items():
        modules[module] = _copied(other, prefix)
    return Table(modules, written.absent, written.copies)


@cache
def _written(library: str) -> Table:
    file = resources.files(__name__) / f"{library}.yaml"
    return parse(yaml.load(file.read_text(encoding="utf-8"), _LOADER), file.name)


def _copied(module: str, prefix: str) -> dict[str, Entry]:
    """The entries of a module for another one that serves the same names."""
    entries = {name: _followed(entry) for name, entry in _written(library_of(module)).modules[module].items()}
    entries = {n: e if e.status == ABSENT else replace(e, home=e.home or f"{module}.{n}") for n, e in entries.items()}
    further = {f"{prefix}{name}": e for name, e in entries.items() if e.status != ABSENT} if prefix else {}
    return {**entries, **further}


def _followed(entry: Entry) -> Entry:
    """The entry with what the table says of its home."""
    module, _, name = entry.home.rpartition(".")
    if entry.status != SAME or not module or entry.home.startswith(NATIVE):
        return entry
    there = _written(library_of(module)).modules.get(module, {}).get(name)
    if there is None:
        return entry
    followed = _followed(there)
    return replace(entry, status=followed.status, note=followed.note)


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
        elif isinstance(names.get(IS), str) and set(names) <= {IS, ALSO}:
            found.copies[module] = (names[IS], str(names.get(ALSO, "")))
        else:
            found.modules[module] = {name: _entry(entry, f"{where}: {module}.{name}") for name, entry in names.items()}
    return found


def _entry(entry: Any, where: str) -> Entry:
    if entry == SAME:
        return Entry(SAME)
    if isinstance(entry, Mapping) and all(isinstance(v, str) and v.strip() for v in entry.values()):
        said = {key: " ".join(text.split()) for key, text in entry.items()}
        home = said.pop(IS, "")
        if home and not said:
            return Entry(SAME, "", home)
        if set(said) == {DIFFERS} or (set(said) == {ABSENT} and not home):
            [(status, note)] = said.items()
            return Entry(status, note, home)
    raise DataError(f"{where} must be same, {{differs: how}}, {{is: module.name}} or {{absent: why}}, got {entry!r}")


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


def known_module(module: str) -> bool:
    """Whether an old module is here: one with names in the table, or a package of such.

    >>> known_module("nvtabular.framework_utils"), known_module("nvtabular.tools.serialization")
    (True, False)
    """
    return module in _packages(library_of(module))


@cache
def _packages(library: str) -> frozenset[str]:
    if library not in GUIDES:
        return frozenset()
    known = table(library)
    parts = [*(m.split(".") for m in known.modules), *(m.split(".")[:-1] for m in known.absent)]
    return frozenset(".".join(names[:n]) for names in parts for n in range(1, len(names) + 1)) - set(known.absent)


def submodules(module: str) -> list[str]:
    """The names of the modules right inside an old one.

    >>> submodules("merlin.dataloader.ops")
    ['embeddings', 'padding']
    """
    inside = (other for other in _packages(library_of(module)) if other.startswith(f"{module}."))
    return sorted({other.removeprefix(f"{module}.").split(".")[0] for other in inside})


def library_of(module: str) -> str:
    """The top-level package of a dotted name."""
    return module.split(".")[0]
