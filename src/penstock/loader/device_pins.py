"""Memory of the host that a GPU copies from where it lies, without the host's help.

The driver is asked by itself, beside torch: there a request that fails would be the next kernel's error.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np

from penstock.core.runtime.threads import start_thread

_READ_ONLY = 0x08  # CU_MEMHOSTREGISTER_READ_ONLY
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, which the module mmap does not name
_CAN_PIN_READ_ONLY = 113  # CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED


class HostPins(Protocol):
    """What makes memory fit for copies to a device."""

    def pin(self, address: int, size: int, writable: bool = False) -> bool:
        """Keep whole pages where they are, for reading or also for writing; whether that could be done."""
        ...

    def unpin(self, address: int, owner: object) -> None:
        """Let go of what was pinned there, and then of what keeps the memory; now or a little later."""
        ...


class NoPins:
    """The device is the host itself, which reads memory as it is: so is Triton's interpreter.

    >>> NoPins().pin(0, 4096)
    True
    """

    def pin(self, address: int, size: int, writable: bool = False) -> bool:
        """Nothing needs to be done."""
        return True

    def unpin(self, address: int, owner: object) -> None:
        """Nothing was."""


class CudaPins:
    """Pinning by CUDA's driver.

    Args:
        number: of the device, as torch counts them.
    """

    def __init__(self, number: int) -> None:
        self._driver, self._context = _driver(), ctypes.c_void_p()
        device = ctypes.c_int()
        self.works = (
            self._driver is not None
            and self._did("cuInit", 0)
            and self._did("cuDeviceGet", ctypes.byref(device), number)
            and self._supports(device)
            and self._did("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        )
        if self.works:
            _letting_go()  # threads cannot be started from everywhere

    def pin(self, address: int, size: int, writable: bool = False) -> bool:
        """Keep whole pages where they are; False for those of a file that has become shorter, say."""
        with self._current():
            flags = 0 if writable else _READ_ONLY
            return self._did("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(size), flags)

    def unpin(self, address: int, owner: object) -> None:
        """Let go of them, by a thread that may wait for the device; nobody else does.

        Objects come to their end in any thread, also in one that captures a graph and must not ask for this.
        """
        _letting_go().put((self, address, owner))

    def unpin_now(self, address: int) -> bool:
        """Let go of them; waits for the device. Whether that could be done."""
        with self._current():
            return self._did("cuMemHostUnregister", ctypes.c_void_p(address))

    def _supports(self, device: ctypes.c_int) -> bool:
        found = ctypes.c_int()
        return self._did("cuDeviceGetAttribute", ctypes.byref(found), _CAN_PIN_READ_ONLY, device) and found.value == 1

    def _did(self, function: str, *arguments: Any) -> bool:
        return int(getattr(self._driver, function)(*arguments)) == 0

    @contextmanager
    def _current(self) -> Iterator[None]:
        """torch's context, in whatever thread this is."""
        self._did("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._did("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


def pinned_memory(size: int, pins: HostPins) -> np.ndarray | None:
    """New memory in huge pages where the system has them, pinned; None where that cannot be done.

    CUDA's own takes ten times as long to be had: it is made of small pages, and pinned page by page.

    >>> len(pinned_memory(5, NoPins()))
    5
    """
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system without them
        mapped.madvise(mmap.MADV_HUGEPAGE)
        mapped.madvise(_POPULATE_WRITE)
    memory = np.frombuffer(mapped, np.uint8)
    address = memory.ctypes.data
    if not pins.pin(address, size, writable=True):
        return None
    weakref.finalize(memory, pins.unpin, address, mapped).atexit = False
    return memory


_Unpinned = tuple[CudaPins, int, object]


@cache
def _letting_go() -> SimpleQueue[_Unpinned]:
    """What a thread lets go of; the queue takes more at any moment, also from what ends an object."""
    waiting: SimpleQueue[_Unpinned] = SimpleQueue()
    start_thread("unpinning", _let_go, waiting)
    return waiting


def _let_go(waiting: SimpleQueue[_Unpinned]) -> None:
    lost = []
    while True:
        pins, address, owner = waiting.get()
        if not pins.unpin_now(address):
            lost.append(owner)  # what the driver still knows must not become other memory
        del owner


@cache
def _driver() -> Any:
    """CUDA's driver; None where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


@cache
def _cuda_pins(number: int) -> CudaPins:
    return CudaPins(number)


def host_pins(device: Any) -> HostPins | None:
    """What pins memory for a torch device; None where that cannot be done.

    >>> import torch
    >>> isinstance(host_pins(torch.device("cpu")), NoPins)
    True
    """
    if device.type == "cpu":
        return NoPins()
    if device.type != "cuda":
        return None
    import torch

    if torch.version.cuda is None:  # AMD's
        return None
    pins = _cuda_pins(torch.cuda.current_device() if device.index is None else device.index)
    return pins if pins.works else None
