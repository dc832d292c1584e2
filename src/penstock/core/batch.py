"""A batch before any framework sees it: dense columns in blocks, list columns as values and offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from penstock.core.schema import Role


class Ragged(NamedTuple):
    """Lists of different lengths end to end: list `i` is `values[offsets[i]:offsets[i + 1]]`.

    >>> Ragged(np.array([7, 8, 9]), np.array([0, 2, 2, 3])).lengths
    array([2, 0, 1])
    """

    values: Any
    offsets: Any

    @property
    def lengths(self) -> Any:
        return self.offsets[1:] - self.offsets[:-1]


@dataclass(frozen=True)
class BlockSpec:
    """Columns of one role and dtype that lie in one buffer, a row of it each."""

    role: Role
    dtype: np.dtype
    names: tuple[str, ...]


@dataclass(frozen=True)
class ListSpec:
    """A list column; `dtype` is that of its values."""

    name: str
    role: Role
    dtype: np.dtype


@dataclass(slots=True)
class Batch:
    """`blocks[i]` is `(columns, rows)` and belongs to `specs[i]`; its rows are contiguous and 64-byte aligned.

    >>> spec = BlockSpec(Role.CATEGORICAL, np.dtype("int32"), ("user", "item"))
    >>> batch = Batch((spec,), [np.arange(6, dtype=np.int32).reshape(2, 3)], {}, 3)
    >>> batch.columns()["item"]
    array([3, 4, 5], dtype=int32)
    """

    specs: tuple[BlockSpec, ...]
    blocks: list[Any]
    ragged: dict[str, Ragged]
    num_rows: int

    def columns(self) -> dict[str, Any]:
        """Every column by name, without a copy."""
        columns: dict[str, Any] = {}
        for spec, block in zip(self.specs, self.blocks, strict=True):
            columns.update(zip(spec.names, block, strict=True))
        columns.update(self.ragged)
        return columns
