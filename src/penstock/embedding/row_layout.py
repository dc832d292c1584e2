"""How a row of a table lies in memory, and how many of them travel together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.kernels.cpu_intrinsics import address_of

_CHUNK_BYTES = 1 << 18


@dataclass(frozen=True)
class RowLayout:
    """Bytes of one row: weights, then state vectors, with a scalar and a count kept apart.

    >>> RowLayout(16, "float32", states=1, scalar=False, count=False).stride
    128
    """

    dim: int
    storage: str
    states: int
    scalar: bool
    count: bool

    @property
    def item(self) -> int:
        return 4 if self.storage == "float32" else 2

    @property
    def state_offset(self) -> int:
        return -(-self.dim * self.item // 4) * 4

    @property
    def stride(self) -> int:
        return self.state_offset + 4 * self.dim * self.states

    @property
    def payload(self) -> int:
        """What the row and its state need, without index or slack."""
        return self.dim * self.item + 4 * self.dim * self.states + 4 * self.scalar

    @property
    def shift(self) -> int:
        """log2 of the rows in a chunk: about 256 KiB, at least 64 rows."""
        return max(6, (_CHUNK_BYTES // self.stride).bit_length() - 1)

    @property
    def chunk_bytes(self) -> int:
        rows = 1 << self.shift
        return -(-(rows * (self.stride + 4 * self.scalar + 4 * self.count)) // 64) * 64


@dataclass
class RowColumns:
    """Rows in bulk, as a checkpoint holds them."""

    signs: np.ndarray
    stamps: np.ndarray
    weights: np.ndarray
    states: np.ndarray
    scalars: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        return len(self.signs)

    def addresses(self) -> tuple[np.uint64, ...]:
        return tuple(np.uint64(address_of(a)) for a in (self.weights, self.states, self.scalars, self.counts))
