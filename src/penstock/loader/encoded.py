"""Columns of a chunk as their files have them: bytes of parquet pages on their way to a device that decodes them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from penstock.core.runtime.buffers import BufferPool
from penstock.kernels import parquet_runs_contract as contract
from penstock.kernels.cpu_parquet_pages import SLACK

if TYPE_CHECKING:
    from penstock.loader.checks import ColumnCheck

_APART = 64  # bytes: columns begin at multiples of it


@dataclass(frozen=True)
class FoundColumn:
    """The runs of one column, found in the buffer's bytes."""

    name: str
    dtype: np.dtype
    runs: np.ndarray
    pages: np.ndarray
    limits: tuple[int, int, int]  # CHECK, LOW, HIGH of the contract


@dataclass
class EncodedColumns:
    """The bytes of a chunk's columns in one pinned buffer; filled by many threads, a column each."""

    buffer: np.ndarray
    found: dict[str, FoundColumn] = field(default_factory=dict)
    used: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def acquire(cls, pool: BufferPool, sizes: Sequence[int]) -> EncodedColumns:
        """Room for columns of these many bytes."""
        return cls(pool.acquire(sum(_room(size) for size in sizes) + SLACK))

    def reserve(self, size: int) -> int:
        """The first byte of a column's room."""
        with self._lock:
            at, self.used = self.used, self.used + _room(size)
        return at

    def add(self, column: FoundColumn) -> None:
        """Note a column that the device shall decode."""
        with self._lock:
            self.found[column.name] = column


def _room(size: int) -> int:
    return -(-(size + SLACK) // _APART) * _APART


def limits_of(check: ColumnCheck, stored: np.dtype) -> tuple[int, int, int] | None:
    """What the device looks at so that values may be delivered; None where only the host can tell."""
    if stored.kind in "iu":
        low, high = check.integer_range(stored)
        limits = np.iinfo(stored)
        if low <= limits.min and high >= limits.max:
            return contract.UNCHECKED, 0, 0
        return contract.IN_RANGE, max(low, int(limits.min)), min(high, int(limits.max))
    narrows = check.delivered is not None and (
        check.delivered.kind != "f" or check.delivered.itemsize < stored.itemsize
    )
    if narrows:
        return None
    return (contract.NOT_NAN if check.is_float_label(stored) else contract.UNCHECKED), 0, 0
