"""Shapes of columns: a number of rows, then (for lists) how many elements a row may hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from penstock.core.errors import SchemaError

__all__ = ["DefaultShapes", "Dimension", "Shape"]


@dataclass(frozen=True)
class Dimension:
    """The least and the most elements along an axis; None for no limit.

    >>> Dimension(2, 2).is_fixed, Dimension(0, None).is_unknown
    (True, True)
    """

    min: int | None = 0
    max: int | None = None

    def __post_init__(self) -> None:
        if self.min is None:
            raise SchemaError("the least size of a dimension cannot be None; give 0 for no limit")
        for name, value in (("least", self.min), ("largest", self.max)):
            if value is not None and not isinstance(value, (int, np.integer)):
                raise SchemaError(f"the {name} size of a dimension must be an integer, got {value!r}")
            if value is not None and value < 0:
                raise SchemaError(f"the {name} size of a dimension must not be negative, got {value}")
        if self.max is not None and self.max < self.min:
            raise SchemaError(f"the largest size of a dimension, {self.max}, is below the least, {self.min}")

    def __int__(self) -> int:
        if not self.is_fixed:
            raise SchemaError(f"{self} has no fixed size, so it is no integer")
        return int(self.min or 0)

    def with_min(self, value: int) -> Dimension:
        return replace(self, min=value)

    def with_max(self, value: int | None) -> Dimension:
        return replace(self, max=value)

    @property
    def is_fixed(self) -> bool:
        return self.max is not None and self.min == self.max

    @property
    def is_bounded(self) -> bool:
        return self.max is not None

    @property
    def is_variable(self) -> bool:
        return not self.is_fixed

    @property
    def is_unknown(self) -> bool:
        return self.min == 0 and self.max is None


class Shape:
    """The axes of a column, from numbers, `None` and `(least, most)` pairs.

    >>> Shape((None, (0, 4))).is_ragged, Shape((None, 4)).is_ragged, Shape((None,)).is_list
    (True, False, False)
    """

    def __init__(self, dims: Any = None) -> None:
        dims = dims.value if isinstance(dims, DefaultShapes) else dims
        dims = dims.dims if isinstance(dims, Shape) else dims
        self.dims: tuple[Dimension, ...] | None = None if dims is None else tuple(_dimension(d) for d in dims)

    @property
    def min(self) -> tuple:
        return tuple(d.min for d in self.dims or ())

    @property
    def max(self) -> tuple:
        return tuple(d.max for d in self.dims or ())

    @property
    def is_unknown(self) -> bool:
        return self.dims is None

    @property
    def is_list(self) -> bool:
        return self.dims is not None and len(self.dims) > 1

    @property
    def is_ragged(self) -> bool:
        return self.is_list and any(not d.is_fixed for d in (self.dims or ())[1:])

    @property
    def is_bounded(self) -> bool:
        return self.dims is not None and all(d.is_bounded for d in self.dims)

    @property
    def is_fixed(self) -> bool:
        return self.dims is not None and all(d.is_fixed for d in self.dims)

    @property
    def is_variable(self) -> bool:
        """Whether any axis may differ from row to row."""
        return not self.is_fixed

    @property
    def as_tuple(self) -> tuple | None:
        """A number for a fixed axis, a pair (least, most) for another."""
        if not self.dims:
            return None
        return tuple(d.max if d.is_fixed else (d.min, d.max) for d in self.dims)

    def with_dim(self, index: int, value: Any) -> Shape:
        """The shape with another size along an axis."""
        dims = list(self.dims or ())
        dims[index] = _dimension(value)
        return Shape(tuple(dims))

    def with_dim_min(self, index: int, value: int) -> Shape:
        return self.with_dim(index, self[index].with_min(value))

    def with_dim_max(self, index: int, value: int | None) -> Shape:
        return self.with_dim(index, self[index].with_max(value))

    def __iter__(self) -> Iterator[Dimension]:
        return iter(self.dims or ())

    def __len__(self) -> int:
        return len(self.dims or ())

    def __getitem__(self, index: Any) -> Any:
        return (self.dims or ())[index]

    def __eq__(self, other: object) -> bool:
        """An unknown shape fits every other, as in Merlin."""
        return isinstance(other, Shape) and (self.dims is None or other.dims is None or self.dims == other.dims)

    def __hash__(self) -> int:
        return hash(Shape)  # what may be equal must have one hash

    def __repr__(self) -> str:
        return f"Shape(dims={self.dims!r})"


def _dimension(value: Any) -> Dimension:
    if isinstance(value, Dimension):
        return value
    if value is None:
        return Dimension()
    if isinstance(value, (int, np.integer)):
        return Dimension(value, value)  # type: ignore[arg-type]
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return Dimension(0 if value[0] is None else value[0], value[1])
    raise SchemaError(f"a dimension is a number, None or a pair (least, most), got {value!r}")


class DefaultShapes(Enum):
    """The shapes that come up most.

    >>> Shape(DefaultShapes.LIST).is_ragged
    True
    """

    SCALAR = (None,)
    LIST = (None, None)
