"""Memory that is used again: fresh pages for every batch would cost more than the look-up itself."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

from penstock.kernels.cpu_intrinsics import ALIGNMENT, address_of


class BufferPool:
    """Hands out arrays, and hands their memory out again once nothing refers to it any more.

    Every view of an array (and every tensor made from one) keeps the memory behind it alive, so the count of references
    to that memory tells whether it is free. `keep` bounds how many free buffers stay allocated.

    >>> pool = BufferPool()
    >>> first = pool.take((4, 2), np.float32)
    >>> place = address_of(first)
    >>> second = pool.take((4, 2), np.float32)
    >>> address_of(second) == place  # `first` is still in use
    False
    >>> del first
    >>> address_of(pool.take((2, 2), np.float32)) == place
    True
    """

    def __init__(self, keep: int = 64) -> None:
        self._owners: list[np.ndarray] = []
        self._keep, self._lock = keep, threading.Lock()

    def take(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An uninitialised C-ordered array, 64-byte aligned."""
        dtype = np.dtype(dtype)
        size = dtype.itemsize
        for extent in shape:
            size *= int(extent)
        with self._lock:
            owner = self._free(size)
            if owner is None:
                owner = np.empty(-(-size // 4096) * 4096 + ALIGNMENT, np.uint8)
                self._owners.append(owner)
            start = -address_of(owner) % ALIGNMENT
            return owner[start : start + size].view(dtype).reshape(shape)

    def _free(self, size: int) -> np.ndarray | None:
        best, free = None, 0
        for i in range(len(self._owners) - 1, -1, -1):
            # References: the list, and the argument of getrefcount itself.
            if sys.getrefcount(self._owners[i]) > 2:
                continue
            room = self._owners[i].nbytes - ALIGNMENT
            if size <= room <= max(4 * size, 1 << 16) and (
                best is None or room < self._owners[best].nbytes - ALIGNMENT
            ):
                best = i
            free += 1
            if free > self._keep and i != best:
                del self._owners[i]
                if best is not None and best > i:
                    best -= 1
        return None if best is None else self._owners[best]
