"""Dtypes of other libraries: how Merlin's become theirs, and mappings that a program registers for its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from penstock.compat.merlin.dtypes.base import DType
from penstock.core.errors import SchemaError, suggest
from penstock.core.extras import require

__all__ = ["DTypeMapping", "register"]


class DTypeMapping:
    """Merlin's dtypes by those of another library (one, or a list of them), and the way back.

    >>> from penstock.compat.merlin.dtypes.aliases import int32
    >>> mapping = DTypeMapping({int32: ["INT32", "I4"]})
    >>> mapping.from_merlin(int32), mapping.to_merlin("I4").name, mapping.matches_external("F8")
    ('INT32', 'int32', False)
    """

    def __init__(
        self, mapping: Mapping[DType, Any] | None = None, base_class: Any = None, translator: Any = None
    ) -> None:
        self.from_merlin_: dict[str, tuple[DType, list[Any]]] = {}
        for dtype, external in (mapping or {}).items():
            self.from_merlin_[dtype.name] = (
                dtype,
                list(external) if isinstance(external, (list, tuple)) else [external],
            )
        self.base_class, self.translator = base_class, translator

    def from_merlin(self, merlin_dtype: DType) -> Any:
        return self.from_merlin_[merlin_dtype.name][1][0]

    def to_merlin(self, external_dtype: Any) -> DType:
        for dtype, externals in self.from_merlin_.values():
            if any(external is external_dtype or _equal(external, external_dtype) for external in externals):
                return dtype
        raise KeyError(external_dtype)

    def matches_merlin(self, merlin_dtype: DType) -> bool:
        return merlin_dtype.name in self.from_merlin_

    def matches_external(self, external_dtype: Any) -> bool:
        try:
            self.to_merlin(external_dtype)
        except KeyError:
            return False
        return True


_registered: dict[str, DTypeMapping] = {}


def register(name: str, mapping: DTypeMapping | Mapping[DType, Any]) -> None:
    """Let `merlin.dtypes.dtype` and `DType.to(name)` know the dtypes of a further library."""
    _registered[name] = mapping if isinstance(mapping, DTypeMapping) else DTypeMapping(mapping)


def registered(external: Any) -> DType | None:
    """What a registered mapping says that a dtype is; None where none knows it."""
    for mapping in _registered.values():
        if mapping.matches_external(external):
            return mapping.to_merlin(external)
    return None


def converted(dtype: DType, library: str) -> Any:
    """A dtype in the words of a library."""
    if library in _registered and _registered[library].matches_merlin(dtype):
        return _registered[library].from_merlin(dtype)
    if library not in LIBRARIES:
        known = [*LIBRARIES, *_registered]
        raise SchemaError(f"there is no mapping of dtypes to {library!r}{suggest(library, known, 'mappings')}")
    try:
        return LIBRARIES[library](dtype)
    except (AttributeError, KeyError, TypeError) as error:
        raise SchemaError(f"{library} has no dtype for {dtype.name}") from error


def _numpy(dtype: DType) -> np.dtype:
    return dtype.to_numpy


def _torch(dtype: DType) -> Any:
    return getattr(require("torch", "torch"), dtype.name)


def _tensorflow(dtype: DType) -> Any:
    tensorflow = require("tensorflow", "keras")
    return getattr(tensorflow, {"str": "string"}.get(dtype.name, dtype.name))


def _equal(one: Any, other: Any) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except (TypeError, ValueError):
        return False


LIBRARIES: dict[str, Callable[[DType], Any]] = {
    "numpy": _numpy,
    "pandas": _numpy,
    "python": lambda dtype: dtype.to_python,
    "merlin": lambda dtype: dtype,
    "torch": _torch,
    "tensorflow": _tensorflow,
    "tf": _tensorflow,
}
