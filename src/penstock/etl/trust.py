"""Which code a saved workflow may name.

Loading runs nothing that came with the artefact: a workflow that names functions or classes (`package.module:name`)
is refused unless whoever loads it says which modules may be imported for it. A recipe that a person writes is that
person's own code and may name anything.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from penstock.core.errors import ArtefactError, ParameterError

OWN = "penstock"
Function = TypeVar("Function", bound=Callable[..., Any])
_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
# Functions that any workflow may name: they compute a value and touch nothing else.
_harmless = {
    f"builtins:str.{name}" for name in ("lower", "upper", "strip", "title", "capitalize", "casefold", "swapcase")
}
_harmless |= {"builtins:abs", "builtins:round"}
_trusted: ContextVar[frozenset[str]] = ContextVar("trusted modules", default=frozenset())
_loading: ContextVar[str] = ContextVar("what is being loaded, in words", default="")
_is_saving: ContextVar[bool] = ContextVar("a workflow is being saved", default=False)


@contextmanager
def trusting(*modules: str) -> Iterator[None]:
    """Allow what is loaded in the block to name functions and classes of these modules and of those below them.

    The standard library and modules in the working folder are never imported for an artefact: the first can do
    anything, and the second may have come with it. A module of the working folder that your program has imported by
    itself is fine.

    Args:
        *modules: such as `"my_package.features"`.

    Raises:
        ParameterError: a name is not that of a module.

    Returns:
        A block.

    >>> with trusting("my_package.features"):
    ...     is_trusted("my_package.features.ages"), is_trusted("my_package.other"), is_trusted("subprocess")
    (True, False, False)
    """
    token = _trusted.set(_trusted.get() | _checked(modules))
    try:
        yield
    finally:
        _trusted.reset(token)


@contextmanager
def loading(modules: Iterable[str], what: str = "workflow") -> Iterator[None]:
    """While a saved workflow (or a model) is read: only `modules`, and those of `trusting`, may be named."""
    with trusting(*modules):
        token = _loading.set(what)
        try:
            yield
        finally:
            _loading.reset(token)


@contextmanager
def saving() -> Iterator[None]:
    """While a workflow is saved: what could never be loaded is refused."""
    token = _is_saving.set(True)
    try:
        yield
    finally:
        _is_saving.reset(token)


def is_loading() -> bool:
    """Whether a saved workflow is being read; a recipe that a person wrote is none."""
    return bool(_loading.get())


def is_trusted(module: str) -> bool:
    """Whether a module is one of those allowed, or below one."""
    return any(module == name or module.startswith(f"{name}.") for name in _trusted.get())


def check_module(reference: str) -> None:
    """Refuse, before anything is imported, a reference of a saved workflow that nobody allowed."""
    module = reference.partition(":")[0]
    if reference in _harmless:
        return
    if _is_saving.get() and _is_standard(module):
        raise ParameterError(
            f"{reference} cannot be saved: nothing of the standard library is run for a saved workflow; call it in a "
            f"function of your own, in an importable module"
        )
    what = _loading.get()
    if not what or module.partition(".")[0] == OWN:
        return
    if _is_standard(module):
        raise ArtefactError(f"the {what} names {reference!r}: nothing of the standard library is run for an artefact")
    if not is_trusted(module):
        raise ArtefactError(
            f"the {what} names {reference!r}, which would be imported and run; if you know who wrote it, allow that "
            f"with trust=[{module!r}] (--trust {module})"
        )
    if _lies_in_working_folder(module):
        raise ArtefactError(
            f"the {what} names {reference!r}, which lies in the working folder: what is there may have come with the "
            f"artefact; install it, or import it in your program first"
        )


def check_found(reference: str, found: Any, own_kind: type | None) -> None:
    """Refuse what a reference of a saved workflow led to, if that is not what its module defines.

    A trusted module has names of others too (`my_package.features:subprocess.run`).
    """
    what = _loading.get()
    if not what or reference in _harmless:
        return
    module = getattr(found, "__module__", None) or ""
    if module.partition(".")[0] == OWN:
        if own_kind is None or not (isinstance(found, type) and issubclass(found, own_kind)):
            wanted = "operator" if own_kind is None else own_kind.__name__.lower()
            raise ArtefactError(f"the {what} names {reference!r}, which is no {wanted}")
    elif not is_trusted(module):
        where = module or "no module"
        raise ArtefactError(f"the {what} names {reference!r}, which is defined in {where}, not in what is trusted")


def harmless(function: Function) -> Function:
    """Mark a function of Penstock's own that any saved workflow may name."""
    _harmless.add(f"{function.__module__}:{function.__qualname__}")
    return function


def is_reference(text: str) -> bool:
    """Whether a text names something importable.

    >>> is_reference("package.module:function"), is_reference("price > 0")
    (True, False)
    """
    return _REFERENCE.fullmatch(text) is not None


def modules_in(recipe: Any) -> list[str]:
    """The modules that a recipe names: its author trusts them.

    >>> modules_in({"nodes": {"age": {"ops": [{"LambdaOp": {"f": "my_package.features:years"}}]}}})
    ['my_package.features']
    """
    found = {reference.partition(":")[0] for reference in _references_in(recipe)}
    return sorted(name for name in found if not _is_standard(name) and name.partition(".")[0] != OWN)


def check_references(content: Any, where: object) -> None:
    """Refuse plain data that names what nobody allowed, as a saved workflow is refused that does.

    Args:
        content: such as a recipe that came with an artefact.
        where: it is from, for the error.

    Raises:
        ArtefactError: something in it would be imported and run.
    """
    with loading(()):
        for reference in sorted(_references_in(content)):
            try:
                check_module(reference)
            except ArtefactError as error:
                raise ArtefactError(f"{where}: {error}") from None


def _references_in(content: Any) -> set[str]:
    """Every text in plain data that could name something importable."""
    found: set[str] = set()
    waiting = [content]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple)):
            waiting += item
        elif isinstance(item, str) and _REFERENCE.fullmatch(item):
            found.add(item)
    return found


def _checked(modules: Iterable[str]) -> frozenset[str]:
    if isinstance(modules, str):
        modules = [modules]
    for name in (names := list(modules)):
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise ParameterError(f"trust must name modules such as 'my_package.features', got {name!r}")
        if _is_standard(name):
            raise ParameterError(f"trust names {name!r}: nothing of the standard library is run for an artefact")
    return frozenset(names)


def _is_standard(module: str) -> bool:
    top = module.partition(".")[0]
    return top in sys.stdlib_module_names or top in sys.builtin_module_names or top == "__main__"


def _lies_in_working_folder(module: str) -> bool:
    top = module.partition(".")[0]
    if top in sys.modules:  # the program itself has imported it
        return False
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    places = list(spec.submodule_search_locations or ()) or ([spec.origin] if spec.origin else [])
    here = Path(os.curdir).resolve()
    return any(Path(place).resolve().parent == here for place in places)
