"""What the values of a column must be before a batch may hold them: numbers that the delivered dtype holds exactly.

Ids lie inside their cardinality and labels are not NaN. float32 was asked for by whoever gets it, so a float64 is
rounded to it; everything else is delivered as it is stored or refused (see `penstock.core.conversion`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.core.conversion import Policy, convert
from penstock.core.errors import ConversionError, DataError
from penstock.core.schema import ColumnSchema, Role
from penstock.kernels.cpu_gather import first_beyond, first_nan, first_outside


@dataclass(frozen=True)
class ColumnCheck:
    """The check of one column; `delivered` is None for a column that no batch holds."""

    column: ColumnSchema
    delivered: np.dtype | None

    def passes(self, values: np.ndarray) -> bool:
        """Whether all values may be delivered; one pass over them, in native code where it matters."""
        if values.dtype.kind == "f":
            return self._floats_pass(values)
        if values.dtype.kind not in "iu":
            return True
        low, high = self.integer_range(values.dtype)
        limits = np.iinfo(values.dtype)
        if low <= limits.min and high >= limits.max:
            return True
        kind = values.dtype.type
        if first_outside(values, kind(max(low, limits.min)), kind(min(high, limits.max))) < 0:
            return True
        return self._inside(values) < 0 and self._converts(values)

    def require(self, values: np.ndarray, where: str) -> None:
        """Raise for the first value that may not be delivered."""
        if self.passes(values):
            return
        name = self.column.name
        if self.is_float_label(values.dtype) and (row := first_nan(values)) >= 0:
            raise DataError(f"{where}: label {name!r} is NaN in row {row} of it")
        if (row := self._inside(values)) >= 0:
            raise DataError(
                f"{where}: column {name!r} holds {values[row]} at position {row} there, outside its cardinality "
                f"{self.column.cardinality}; encode the data again or correct the schema"
            )
        if self.delivered is not None and {values.dtype.kind, self.delivered.kind} <= {"i", "u"}:
            limits = np.iinfo(self.delivered)
            row = int(np.argmax((values < limits.min) | (values > limits.max)))
            raise DataError(
                f"{where}: column {name!r} holds {values[row]} at position {row} there, which {self.delivered} cannot "
                f"hold; ask for a wider one with dtypes="
            )
        convert(values, str(self.delivered), column=name, where=where, policy=self._policy(values))

    def _floats_pass(self, values: np.ndarray) -> bool:
        if self.is_float_label(values.dtype) and first_nan(values) >= 0:
            return False
        if self.delivered is None or self.delivered == values.dtype:
            return True
        if self.delivered.kind == "f":
            widens = self.delivered.itemsize > values.itemsize
            return widens or first_beyond(values, values.dtype.type(np.finfo(self.delivered).max)) < 0
        return self._converts(values) and self._inside(values) < 0

    def is_float_label(self, stored: np.dtype) -> bool:
        """Whether it is a label that might be NaN."""
        return self.column.role is Role.LABEL and stored.kind == "f"

    def integer_range(self, stored: np.dtype) -> tuple[int, int]:
        """The integers that need no closer look."""
        low, high = (0, self.column.cardinality - 1) if self.column.cardinality is not None else (-(2**63), 2**64 - 1)
        if self.delivered is not None and self.delivered.kind in "iu":
            return max(low, int(np.iinfo(self.delivered).min)), min(high, int(np.iinfo(self.delivered).max))
        if self.delivered is not None and self.delivered.kind == "f":
            bound = 2 ** (np.finfo(self.delivered).nmant + 1)
            return max(low, -bound), min(high, bound)
        return low, high

    def _inside(self, values: np.ndarray) -> int:
        """The first id outside its cardinality, or -1."""
        if self.column.cardinality is None or values.dtype.kind not in "iuf":
            return -1
        outside = (values < 0) | (values > self.column.cardinality - 1)
        return int(outside.argmax()) if outside.any() else -1

    def _policy(self, values: np.ndarray) -> Policy:
        floats = self.delivered is not None and values.dtype.kind == "f" and self.delivered.kind == "f"
        return "round" if floats else "exact"

    def _converts(self, values: np.ndarray) -> bool:
        if self.delivered is None:
            return True
        try:
            convert(values, self.delivered.name, column=self.column.name, policy=self._policy(values))
        except ConversionError:
            return False
        return True
