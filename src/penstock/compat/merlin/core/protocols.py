"""`merlin.core.protocols`: what frames, columns and tables have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

__all__ = ["ArrayLike", "DataFrameLike", "DictLike", "SeriesLike", "Transformable"]


@runtime_checkable
class DictLike(Protocol):
    """Columns by name.

    >>> isinstance({"a": [1]}, DictLike)
    True
    """

    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any) -> Any: ...
    def __setitem__(self, key: Any, value: Any) -> None: ...
    def keys(self) -> Any: ...
    def items(self) -> Any: ...
    def values(self) -> Any: ...


@runtime_checkable
class ArrayLike(Protocol):
    """Values with a shape.

    >>> import numpy
    >>> isinstance(numpy.zeros(2), ArrayLike), isinstance([0, 0], ArrayLike)
    (True, False)
    """

    def __len__(self) -> int: ...
    def __getitem__(self, key: Any) -> Any: ...
    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...


@runtime_checkable
class SeriesLike(ArrayLike, Protocol):
    """A column of a frame."""

    @property
    def values(self) -> Any: ...


@runtime_checkable
class Transformable(Protocol):
    """Columns that operators can transform.

    >>> import pandas
    >>> isinstance(pandas.DataFrame({"a": [1]}), Transformable)
    True
    """

    @property
    def columns(self) -> Any: ...
    def __getitem__(self, key: Any) -> Any: ...


@runtime_checkable
class DataFrameLike(Transformable, Protocol):
    """A frame."""

    def __len__(self) -> int: ...
    def merge(self, *args: Any, **kwargs: Any) -> Any: ...
