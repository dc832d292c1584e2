"""Dtypes of other libraries: how Merlin's become theirs, and mappings that a program registers for its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from penstock.compat.merlin import dtypes as known
from penstock.compat.merlin.dtypes import DType
from penstock.core.errors import SchemaError, suggest
from penstock.core.extras import require

__all__ = ["DTypeMapping", "NumpyPreprocessor", "register"]


class NumpyPreprocessor:
    """Turns dtypes of another library into NumPy's, which a mapping then knows.

    Args:
        framework: the library's name.
        translation_fn: gives NumPy's dtype for one of the library's.
        attrs: attributes by which the library's dtypes are known.
        classes: classes whose instances the library's dtypes are.

    >>> text = NumpyPreprocessor("text", np.dtype, classes=[str])
    >>> text.matches("int8"), text.to_numpy("int8"), text.matches(8)
    (True, dtype('int8'), False)
    """

    def __init__(
        self, framework: str, translation_fn: Callable[[Any], Any], attrs: Any = None, classes: Any = None
    ) -> None:
        self.framework, self.translation_fn = framework, translation_fn
        self.attrs, self.classes = list(attrs or ()), tuple(classes or ())

    def matches(self, raw_dtype: Any) -> bool:
        """Whether a dtype is one of the library's."""
        known = isinstance(raw_dtype, self.classes) if self.classes else False
        return known or any(hasattr(raw_dtype, attribute) for attribute in self.attrs)

    def to_numpy(self, raw_dtype: Any) -> Any:
        """NumPy's dtype for one of the library's."""
        return self.translation_fn(raw_dtype)


class DTypeMapping:
    """Merlin's dtypes by those of another library (one, or a list of them), and the way back.

    `base_class` is what all dtypes of the library are instances of; a `translator` turns those that the table does not
    list into ones that it does.

    >>> from penstock.compat.merlin.dtypes import int32
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

    def _translated(self, external_dtype: Any) -> Any:
        if self.translator is not None and self.translator.matches(external_dtype):
            return self.translator.to_numpy(external_dtype)
        return external_dtype

    def from_merlin(self, merlin_dtype: DType) -> Any:
        return self.from_merlin_[merlin_dtype.name][1][0]

    def to_merlin(self, external_dtype: Any) -> DType:
        for wanted in (external_dtype, self._translated(external_dtype)):
            for dtype, externals in self.from_merlin_.values():
                if any(external is wanted or _equal(external, wanted) for external in externals):
                    return dtype
        raise KeyError(external_dtype)

    def matches_merlin(self, merlin_dtype: DType) -> bool:
        return merlin_dtype.name in self.from_merlin_

    def matches_external(self, external_dtype: Any) -> bool:
        if self.base_class is not None and not isinstance(external_dtype, self.base_class):
            return False
        try:
            self.to_merlin(external_dtype)
        except KeyError:
            return False
        return True


class DTypeMappingRegistry:
    """Mappings by the name of their library.

    >>> from penstock.compat.merlin.dtypes import int32
    >>> registry = DTypeMappingRegistry()
    >>> registry.register("mine", {int32: "i4"})
    >>> registry.mappings["mine"].from_merlin(int32)
    'i4'
    """

    def __init__(self) -> None:
        self.mappings: dict[str, DTypeMapping] = {}

    def register(self, name: str, mapping: DTypeMapping | Mapping[DType, Any]) -> None:
        self.mappings[name] = mapping if isinstance(mapping, DTypeMapping) else DTypeMapping(mapping)

    def __iter__(self) -> Iterator[str]:
        return iter(self.mappings)

    def from_merlin(self, merlin_dtype: DType, mapping_name: str) -> Any:
        """The dtype of one library; `unknown` where it has none."""
        mapping = self.mappings[mapping_name]
        return mapping.from_merlin(merlin_dtype) if mapping.matches_merlin(merlin_dtype) else known.named("unknown")

    def to_merlin(self, external_dtype: Any) -> DType:
        """Merlin's dtype for one of any library; `unknown` where no mapping knows it."""
        found = (m.to_merlin(external_dtype) for m in self.mappings.values() if m.matches_external(external_dtype))
        return next(found, known.named("unknown"))

    def to_merlin_via_numpy(self, external_dtype: Any) -> DType:
        """The same, for a dtype that a mapping's translator makes one of NumPy's."""
        for mapping in self.mappings.values():
            if mapping.translator is not None and mapping.translator.matches(external_dtype):
                return self.to_merlin(mapping.translator.to_numpy(external_dtype))
        return known.named("unknown")


_dtype_registry = DTypeMappingRegistry()


def register(name: str, mapping: DTypeMapping | Mapping[DType, Any]) -> None:
    """Let `merlin.dtypes.dtype` and `DType.to(name)` know the dtypes of a further library."""
    _dtype_registry.register(name, mapping)


def registered(external: Any) -> DType | None:
    """What a registered mapping says that a dtype is; None where none knows it."""
    found = _dtype_registry.to_merlin(external)
    return None if found.name == "unknown" else found


def converted(dtype: DType, library: str) -> Any:
    """A dtype in the words of a library."""
    own = _dtype_registry.mappings.get(library)
    if own is not None and own.matches_merlin(dtype):
        return own.from_merlin(dtype)
    if library not in LIBRARIES:
        known = [*LIBRARIES, *_dtype_registry.mappings]
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


# What `merlin.dtypes.mappings` holds: the dtypes of each library as a mapping by itself.
_MAPPINGS = {
    "merlin_dtypes": "merlin",
    "numpy_dtypes": "numpy",
    "pandas_dtypes": "pandas",
    "python_dtypes": "python",
    "tf_dtypes": "tensorflow",
    "torch_dtypes": "torch",
}


def __getattr__(name: str) -> DTypeMapping:
    if name not in _MAPPINGS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    convert = LIBRARIES[_MAPPINGS[name]]
    found: dict[DType, Any] = {}
    for dtype in vars(known).values():
        if isinstance(dtype, DType):
            try:
                found[dtype] = convert(dtype)
            except (AttributeError, KeyError, TypeError, SchemaError):
                continue  # a dtype that the library does not have
    globals()[name] = DTypeMapping(found)
    return globals()[name]
