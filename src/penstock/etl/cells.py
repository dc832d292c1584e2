"""A few rows outside a frame: what serving hands from operator to operator.

A single row is a dictionary of Python values; a few are cells, column by column, which cost less than a frame does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

RowFunction = Callable[[dict[str, Any]], dict[str, Any]]


class Numbers(NamedTuple):
    """A few rows of a column of numbers; `valid` is false where a value is missing, None where none is."""

    values: np.ndarray
    valid: np.ndarray | None

    def to_list(self) -> list[Any]:
        """Python values, None where one is missing."""
        values: list[Any] = self.values.tolist()
        if self.valid is None:
            return values
        return [value if there else None for value, there in zip(values, self.valid.tolist(), strict=True)]


class ListCells(list[Any]):
    """A few rows of a list column, as Python lists; None where one is missing."""


Cells = dict[str, Numbers | list[Any]]  # a few rows by column: numbers as arrays, anything else as Python values
BulkFunction = Callable[[Cells], Cells]
