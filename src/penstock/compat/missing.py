"""What a name of an old library that is not here says: that it existed, why it is not here, and where to read on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from penstock.compat import names
from penstock.core.errors import DataError, PenstockError

PREFIX = "penstock.compat."


class CompatError(PenstockError):
    """Old code asks for something that Penstock does not do in the old library's place."""


class CompatTypeError(CompatError, TypeError):
    """An argument of a type that the old library refused with a `TypeError`."""


class CompatRuntimeError(CompatError, RuntimeError):
    """What the old library refused with a `RuntimeError`."""


class CompatIndexError(CompatError, IndexError):
    """What the old library refused with an `IndexError`."""


class CompatNotImplementedError(CompatError, NotImplementedError):
    """What the old library refused with a `NotImplementedError`."""


class CompatFileNotFoundError(CompatError, DataError, FileNotFoundError):
    """A file or folder that is not there, which the old library refused with a `FileNotFoundError`."""


class MissingNameError(CompatError, AttributeError):
    """A name that the old library had; an `AttributeError`, so `hasattr` says no."""


class MissingImportError(CompatError, ImportError):
    """The same, where the name was asked for by `from … import …`."""


class MissingModuleError(CompatError, ModuleNotFoundError):
    """A module that the old library had."""


def old_name(module: str) -> str:
    """The old library's name of a module.

    >>> old_name("penstock.compat.nvtabular.ops")
    'nvtabular.ops'
    """
    return module.removeprefix(PREFIX)


def missing(module: str, name: str, known: Iterable[str], importing: bool) -> Exception:
    """The error for a name that an old module does not have here; `importing` where `from … import …` asks for it.

    >>> missing("nvtabular.ops", "Categorifi", ["Categorify"], importing=False)
    AttributeError("module 'nvtabular.ops' has no attribute 'Categorifi'; did you mean 'Categorify'?")
    """
    entry = None if name.startswith("__") else names.lookup(module, name)
    if entry is None or entry.status != names.ABSENT:
        return AttributeError(f"module {module!r} has no attribute {name!r}{_near(name, known)}", name=name)
    text = explain(f"{module}.{name}", entry.note)
    return (MissingImportError if importing else MissingNameError)(text, name=name)


def explain(name: str, why: str) -> str:
    """The text for a name that existed; `why` comes from the table of names."""
    title, guide = names.GUIDES[names.library_of(name)]
    return f"{name} exists in {title} and not here: {why.rstrip('.')}; see {guide}"


def missing_module(module: str) -> MissingModuleError | None:
    """The error for an old module that the table says is not here; None where it says no such thing."""
    why = names.absent_module(module)
    return None if why is None else MissingModuleError(explain(module, why), name=module)


def _near(name: str, known: Iterable[str]) -> str:
    if name.startswith("_"):
        return ""
    near = difflib.get_close_matches(name, [n for n in known if not n.startswith("_")], n=2)
    return f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
