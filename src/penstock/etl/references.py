"""Functions and classes saved by reference (`package.module:name`), never as code."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from penstock.core.errors import ParameterError


def reference_to(function: Callable) -> str:
    """`"module:name"` of something importable, or an error that says why it is not.

    >>> reference_to(len)
    'builtins:len'
    >>> reference_to(lambda x: x)
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: a lambda cannot be saved: ... define it with def in an importable module
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if "<lambda>" in name:
        raise ParameterError(
            "a lambda cannot be saved: it has no name to import; define it with def in an importable module"
        )
    if not module or not name or "<locals>" in name:
        raise ParameterError(f"{function!r} cannot be saved: it is not importable by name; define it at module level")
    if module == "__main__":
        raise ParameterError(
            f"{name} cannot be saved: it lives in the script itself (__main__); move it to an importable module"
        )
    reference = f"{module}:{name}"
    if resolve_reference(reference) is not function:
        raise ParameterError(f"{function!r} cannot be saved: {reference} is something else")
    return reference


def resolve_reference(reference: str) -> Any:
    """What a reference names."""
    module, _, name = reference.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ParameterError(f"cannot find {reference!r}, which the workflow refers to: {error}") from error
    return found
