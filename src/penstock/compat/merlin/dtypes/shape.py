"""Shapes of columns: a number of rows, then (for lists) how many elements a row may hold."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

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
        return self.min in (0, None) and self.max is None


class Shape:
    """The axes of a column, from numbers, `None` and `(least, most)` pairs.

    >>> Shape((None, (0, 4))).is_ragged, Shape((None, 4)).is_ragged, Shape((None,)).is_list
    (True, False, False)
    """

    def __init__(self, dims: Any = None) -> None:
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
    def is_fixed(self) -> bool:
        return self.dims is not None and all(d.is_fixed for d in self.dims)

    @property
    def is_variable(self) -> bool:
        """Whether any axis may differ from row to row."""
        return not self.is_fixed

    @property
    def as_tuple(self) -> tuple | None:
        """Numbers for fixed axes, None for unlimited ones, pairs for the others."""
        if self.dims is None:
            return None
        return tuple(d.max if d.is_fixed else None if d.is_unknown else (d.min, d.max) for d in self.dims)

    def __len__(self) -> int:
        return len(self.dims or ())

    def __getitem__(self, index: Any) -> Any:
        return (self.dims or ())[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and self.dims == other.dims

    def __hash__(self) -> int:
        return hash(self.dims)

    def __repr__(self) -> str:
        return f"Shape({self.as_tuple})"


def _dimension(value: Any) -> Dimension:
    if isinstance(value, Dimension):
        return value
    if value is None:
        return Dimension()
    if isinstance(value, int):
        return Dimension(value, value)
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return Dimension(*value)
    raise SchemaError(f"a dimension is a number, None or a pair (least, most), got {value!r}")


class DefaultShapes(Enum):
    """The shapes that come up most.

    >>> DefaultShapes.LIST.value.is_ragged
    True
    """

    SCALAR = Shape((None,))
    LIST = Shape((None, None))
