"""How much GPU memory TensorFlow may take: `TF_MEMORY_ALLOCATION`, below 1 a fraction of what is free, else megabytes.

TensorFlow takes all it finds when it starts, and cannot be told later.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable
from typing import Any

from penstock.core.errors import ParameterError, PenstockError
from penstock.core.extras import require
from penstock.loader.keras_import import import_keras

VARIABLE = "TF_MEMORY_ALLOCATION"
_MEGABYTE = 1 << 20


class _Memory(ctypes.Structure):
    """`nvmlMemory_t`."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def parse_allocation(text: str | float) -> float:
    """The number in the variable, checked.

    >>> parse_allocation("0.5"), parse_allocation("8192")
    (0.5, 8192.0)
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise ParameterError(
            f"{VARIABLE} must be a fraction of the free memory (below 1) or a number of megabytes, got {text!r}"
        )
    return value


def megabytes(allocation: float, free: Callable[[], int]) -> int:
    """The limit in megabytes; `free()` says how many bytes of a GPU are free and is asked only for a fraction.

    >>> megabytes(0.5, lambda: 16 << 30), megabytes(8192, lambda: 0)
    (8192, 8192)
    """
    return max(1, int(allocation * free() / _MEGABYTE)) if allocation < 1 else int(allocation)


def free_memory(device: int) -> int:
    """Bytes free on a GPU, as the driver says, without starting CUDA on it. `device` counts the visible ones."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise PenstockError(f"the NVIDIA driver's libnvidia-ml.so.1 cannot be loaded: give {VARIABLE} in MB") from error
    handle, memory = ctypes.c_void_p(), _Memory()
    _checked(nvml.nvmlInit_v2(), "nvmlInit")
    try:
        visible = _visible(device)
        if isinstance(visible, int):
            status = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(visible), ctypes.byref(handle))
        else:
            status = nvml.nvmlDeviceGetHandleByUUID(visible.encode(), ctypes.byref(handle))
        _checked(status, f"looking up GPU {visible}")
        _checked(nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)), f"asking GPU {visible} for its memory")
    finally:
        nvml.nvmlShutdown()
    return int(memory.free)


def _visible(device: int) -> int | str:
    """The driver's name of the n-th visible GPU."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not listed:
        return device
    entry = listed.split(",")[device].strip()
    return int(entry) if entry.isdigit() else entry


def _checked(status: int, doing: str) -> None:
    if status:
        raise PenstockError(f"the NVIDIA driver reports error {status} when {doing}; give {VARIABLE} in megabytes")


def limit_memory(allocation: str | float | None = None) -> dict[str, int]:
    """Let TensorFlow take no more than this on each GPU; returns `{GPU: megabytes}`, empty where there is no GPU.

    `allocation` defaults to the environment variable, and without one nothing is limited. Must come before TensorFlow's
    first operation: afterwards it is an error.

    >>> limit_memory("nearly all")
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: TF_MEMORY_ALLOCATION must be a fraction of the free memory (below 1) or ...
    """
    wanted = os.environ.get(VARIABLE) if allocation is None else allocation
    if wanted is None:
        return {}
    number = parse_allocation(wanted)
    import_keras()
    tf = require("tensorflow", "keras")
    limits: dict[str, int] = {}
    for index, gpu in enumerate(tf.config.list_physical_devices("GPU")):
        limit = megabytes(number, lambda index=index: free_memory(index))  # type: ignore[misc]
        _set_limit(tf, gpu, limit, wanted)
        limits[gpu.name] = limit
    return limits


def _set_limit(tf: Any, gpu: Any, limit: int, wanted: str | float) -> None:
    try:
        tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=limit)])
    except RuntimeError as error:
        raise PenstockError(
            f"TensorFlow has started already and holds its memory on {gpu.name}: {VARIABLE}={wanted} has no effect. "
            f"Set it, and import penstock's Keras loader, before the first TensorFlow operation"
        ) from error


def limit_memory_from_environment() -> None:
    """Follow the variable, or warn that it comes too late."""
    try:
        limit_memory()
    except ParameterError:
        raise
    except PenstockError as error:
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)
