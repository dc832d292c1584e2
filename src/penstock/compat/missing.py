"""What a name of an old library that is not here says: that it existed, why it is not here, and where to read on."""

from __future__ import annotations

import difflib
import opcode
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from penstock.compat import names
from penstock.core.errors import PenstockError

PREFIX = "penstock.compat."
_IMPORT_FROM = opcode.opmap["IMPORT_FROM"]


class CompatError(PenstockError):
    """Old code asks for something that Penstock does not do in the old library's place."""


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


def module_getattr(module_name: str) -> Callable[[str], NoReturn]:
    """A module's `__getattr__`: write `__getattr__ = module_getattr(__name__)` at its end.

    >>> module_getattr("penstock.compat.nvtabular.ops")("Categorifi")
    Traceback (most recent call last):
    ...
    AttributeError: module 'nvtabular.ops' has no attribute 'Categorifi'...
    """
    module = old_name(module_name)

    def missing(name: str) -> NoReturn:
        entry = None if name.startswith("__") else names.lookup(module, name)
        if entry is None or entry.status != names.ABSENT:
            raise AttributeError(f"module {module!r} has no attribute {name!r}{_near(module_name, name)}", name=name)
        text = explain(f"{module}.{name}", entry.note)
        if _imports_from(sys._getframe(1)):
            raise MissingImportError(text, name=name)
        raise MissingNameError(text, name=name)

    return missing


def _imports_from(frame: FrameType) -> bool:
    # `from module import name` turns every AttributeError into a text of its own; an ImportError it lets through.
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM


def explain(name: str, why: str) -> str:
    """The text for a name that existed; `why` comes from the table of names."""
    title, guide = names.GUIDES[names.library_of(name)]
    return f"{name} exists in {title} and not here: {why.rstrip('.')}; see {guide}"


def missing_module(module: str) -> MissingModuleError | None:
    """The error for an old module that the table says is not here; None where it says no such thing."""
    why = names.absent_module(module)
    return None if why is None else MissingModuleError(explain(module, why), name=module)


def _near(module_name: str, name: str) -> str:
    if name.startswith("_"):
        return ""
    module: Any = sys.modules.get(module_name)
    known = [n for n in dir(module) if not n.startswith("_")]
    near = difflib.get_close_matches(name, known, n=2)
    return f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
