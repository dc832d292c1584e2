"""Memory that is used again: fresh pages cost a fault per 4 KiB, more than most of what is done with them."""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.core.runtime.threads import available_cores

ALIGNMENT = 64  # bytes; one cache line, and what TensorFlow and Arrow ask for
_PAGE, _SMALL = 4096, 1 << 16
_LARGE = 1 << 20  # bytes from which on the system is asked for fresh pages each time
_probe = [np.empty(1, np.uint8)]
_FREE = sys.getrefcount(_probe[0])  # of an item of a list that nothing else refers to; Python versions may differ


def host_buffer(size: int) -> np.ndarray:
    """Plain memory; NumPy asks for huge pages by itself."""
    return np.empty(size, np.uint8)


class BufferPool:
    """Hands out memory, and hands it out again once nothing refers to it any more.

    Every view of an array (and every tensor made from one) keeps the memory behind it alive, so the count of references
    to that memory tells whether it is free: what a consumer keeps is never changed.

    Args:
        allocate: makes a buffer of some bytes, pinned ones for a device.
        slack: a buffer is handed out for a need up to this many times smaller: small needs must not hold large ones.
        keep: free buffers that stay allocated when a new one has to be made.

    >>> pool = BufferPool()
    >>> first = pool.array((4, 2), np.float32)
    >>> place = first.ctypes.data
    >>> pool.array((4, 2), np.float32).ctypes.data == place  # `first` is still in use
    False
    >>> del first
    >>> pool.array((3, 2), np.float32).ctypes.data == place
    True
    """

    def __init__(self, allocate: Callable[[int], np.ndarray] = host_buffer, *, slack: int = 2, keep: int = 4) -> None:
        self._allocate, self._slack, self._keep = allocate, slack, keep
        self._buffers: list[np.ndarray] = []
        self._lock = threading.Lock()

    def acquire(self, size: int) -> np.ndarray:
        """`size` bytes at a multiple of `ALIGNMENT`; they return to the pool when the last view is gone."""
        with self._lock:
            best = self._smallest_free(size)
            buffer = None if best < 0 else self._buffers[best]
            if buffer is None:
                self._drop_unused()
        if buffer is None:  # pinning memory takes long; others may have what is free meanwhile
            buffer = self._allocate(-(-size // _PAGE) * _PAGE + ALIGNMENT)
            with self._lock:
                self._buffers.append(buffer)
        skip = -buffer.__array_interface__["data"][0] % ALIGNMENT
        return buffer[skip : skip + size]

    def array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An uninitialised C-ordered array at a multiple of `ALIGNMENT`."""
        return _array(self.acquire, shape, dtype)

    def _smallest_free(self, size: int) -> int:
        """The place of the smallest free buffer with room for `size` bytes; -1 for none, the place of a new one."""
        best, most = -1, self._slack * size + _SMALL
        for i in range(len(self._buffers)):
            fits = size <= self._buffers[i].size - ALIGNMENT <= most
            if fits and sys.getrefcount(self._buffers[i]) == _FREE:
                best = i if best < 0 or self._buffers[i].size < self._buffers[best].size else best
        return best

    def _drop_unused(self) -> None:
        """Free buffers of other sizes go back to the system before a new one is made, so that they do not pile up."""
        kept, spare = [], self._keep
        for i in range(len(self._buffers) - 1, -1, -1):
            free = sys.getrefcount(self._buffers[i]) == _FREE
            if not free or spare > 0:
                kept.append(self._buffers[i])
                spare -= free
        self._buffers = kept[::-1]

    @property
    def num_bytes(self) -> int:
        """What the pool holds, free or in use."""
        with self._lock:
            return sum(b.size for b in self._buffers)


class SpareBuffers:
    """Hands out memory that users may hold as long as they like, and keeps a little of what comes back.

    A `BufferPool` remembers all it has made until it is asked again: right for a loop that needs the same buffers over
    and over, wrong for frames, of which somebody may hold gigabytes and drop them all at once. Here what comes back
    waits for the next who asks while as many others are in use (threads that work side by side hand theirs round), but
    no more than there are cores; of the rest all but `keep` goes to the system at once. No lock is taken, so a fork may
    come at any moment.

    Args:
        keep: how many buffers wait for the next who asks when none is in use.

    >>> spare = SpareBuffers(keep=1)
    >>> first = spare.acquire(1 << 21)
    >>> place, column = first.ctypes.data, first[:8].view(np.int64)
    >>> del first
    >>> spare.acquire(1 << 21).ctypes.data == place  # `column` is a part of it
    False
    >>> del column
    >>> spare.acquire(1 << 20).ctypes.data == place
    True
    """

    def __init__(self, keep: int = 2) -> None:
        self._keep, self._most = keep, max(keep, available_cores())
        self._free: deque[np.ndarray] = deque()
        self._in_use: dict[int, None] = {}  # by address, since counting up and down needs a lock

    def acquire(self, size: int) -> np.ndarray:
        """`size` bytes at a multiple of `ALIGNMENT`; they come back when the last view is gone."""
        buffer = self._fitting(size) if size >= _LARGE else None
        if buffer is None:
            buffer = host_buffer(-(-size // _PAGE) * _PAGE + ALIGNMENT)
        # Views refer to the first array over memory that is not an array's own: when it goes, all of them are gone.
        handle = np.frombuffer(buffer.data, np.uint8)
        address = buffer.__array_interface__["data"][0]
        if size >= _LARGE:
            self._in_use[address] = None
            weakref.finalize(handle, self._take_back, buffer, address).atexit = False
        skip = -address % ALIGNMENT
        return handle[skip : skip + size]

    def array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An uninitialised C-ordered array at a multiple of `ALIGNMENT`."""
        return _array(self.acquire, shape, dtype)

    def _take_back(self, buffer: np.ndarray, address: int) -> None:
        self._in_use.pop(address, None)
        self._free.append(buffer)
        with contextlib.suppress(IndexError):  # another thread was faster
            while len(self._free) > max(self._keep, min(len(self._in_use), self._most)):
                self._free.popleft()

    def _fitting(self, size: int) -> np.ndarray | None:
        """A spare buffer for `size` bytes; those tried before it do not fit what is asked for now, and are dropped."""
        while True:
            try:
                buffer = self._free.pop()
            except IndexError:
                return None
            if size <= buffer.size - ALIGNMENT <= 2 * size + _SMALL:
                return buffer


def _array(acquire: Callable[[int], np.ndarray], shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    dtype = np.dtype(dtype)
    size = dtype.itemsize
    for extent in shape:
        size *= int(extent)
    array: np.ndarray = acquire(size).view(dtype).reshape(shape)
    return array
