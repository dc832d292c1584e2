"""Memory that a client of a store on Ray shares with the shards on its machine: what is large is not sent, but named.

A client writes ids and gradients where shards read them, and shards write rows where the client pools them. Each buffer
is a file without a name (`memfd_create`), which others open through the process that made it: nothing is left behind
when that process dies. A shard that cannot open it says so, and is sent the arrays instead.
"""

from __future__ import annotations

import mmap
import os
import weakref
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from penstock.core.runtime.buffers import BufferPool, host_buffer
from penstock.core.runtime.forks import Process
from penstock.kernels.cpu_intrinsics import address_of

Segments: TypeAlias = dict[int, tuple[int, int]]  # by address: file and inode


class Place(NamedTuple):
    """Where an array lies that two processes share."""

    machine: str
    process: int
    file: int
    inode: int
    offset: int
    length: int
    dtype: str


@cache
def this_machine() -> str:
    """What processes have in common that can open one another's files: the machine since it started, the container."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{started} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


class SharedBuffers:
    """A client's buffers, used again once nothing refers to them; none where the system has no such files.

    >>> buffers = SharedBuffers()
    >>> array = buffers.array(1000, np.float32)
    >>> array.shape
    (1000,)
    >>> place = buffers.place(array[100:200])
    >>> if place is not None:
    ...     MappedBuffers().array(place)[:] = 7
    ...     assert array.sum() >= 700
    """

    def __init__(self) -> None:
        self.available = hasattr(os, "memfd_create") and bool(this_machine())
        self._segments: Segments = {}
        self._pool = BufferPool(partial(_allocate, self._segments) if self.available else host_buffer, slack=4, keep=64)
        self._made_in = Process()

    def array(self, count: int, dtype: Any) -> np.ndarray:
        """An uninitialised array of one dimension."""
        return self._pool.array((count,), dtype)

    def place(self, array: np.ndarray) -> Place | None:
        """Where an array of this pool, or a part of it, lies; None where it cannot be shared."""
        if not self.available or not self._made_in.is_this():  # a forked child is another process than the files' owner
            return None
        buffer: Any = array
        while isinstance(buffer.base, np.ndarray):
            buffer = buffer.base
        address = address_of(buffer)
        file, inode = self._segments[address]
        offset = address_of(array) - address if array.size else 0
        return Place(this_machine(), self._made_in.number, file, inode, offset, array.size, array.dtype.str)


def _allocate(segments: Segments, size: int) -> np.ndarray:
    file = os.memfd_create("penstock", os.MFD_CLOEXEC)
    os.ftruncate(file, size)
    buffer = np.frombuffer(mmap.mmap(file, size), np.uint8)
    address = address_of(buffer)
    segments[address] = (file, os.fstat(file).st_ino)
    weakref.finalize(buffer, _forget, segments, address).atexit = False
    return buffer


def _forget(segments: Segments, address: int) -> None:
    os.close(segments.pop(address)[0])


class MappedBuffers:
    """A shard's view of the buffers of its clients, opened when they are first named."""

    def __init__(self) -> None:
        self._mapped: dict[tuple[int, int, int], mmap.mmap] = {}

    def array(self, place: Place) -> np.ndarray | None:
        """The array that lies there; None where this process cannot reach it."""
        if place.machine != this_machine():
            return None
        if not place.length:
            return np.empty(0, place.dtype)
        key = (place.process, place.file, place.inode)
        if key not in self._mapped:
            self._drop_closed()
            mapped = _open(*key)
            if mapped is None:
                return None
            self._mapped[key] = mapped
        memory = self._mapped[key]
        if place.offset + place.length * np.dtype(place.dtype).itemsize > len(memory):
            return None
        return np.frombuffer(memory, place.dtype, place.length, place.offset)

    def _drop_closed(self) -> None:
        """Let go of what clients have given back to the system, or left when they died."""
        self._mapped = {key: memory for key, memory in self._mapped.items() if _inode(key[0], key[1]) == key[2]}


def _path(process: int, file: int) -> Path:
    return Path(f"/proc/{process}/fd/{file}")


def _inode(process: int, file: int) -> int:
    try:
        return _path(process, file).stat().st_ino
    except OSError:
        return -1


def file_of(process: int, file: int, how: int) -> int | None:
    """A file that another process has open, opened here; None where this process may not, or it is gone."""
    try:
        return os.open(_path(process, file), how | os.O_CLOEXEC)
    except OSError:
        return None


def _open(process: int, file: int, inode: int) -> mmap.mmap | None:
    opened = file_of(process, file, os.O_RDWR)
    if opened is None:
        return None
    try:
        found = os.fstat(opened)
        # Another container may have another process of that number: its file is not ours.
        return mmap.mmap(opened, found.st_size) if found.st_ino == inode and found.st_size else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(opened)
