"""Memory that kernels read by its address: aligned, on huge pages where there is much of it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from penstock.kernels.cpu_intrinsics import address_of

HUGE_PAGES_FROM = 1 << 22  # bytes


def huge_page_memory(count: int) -> np.ndarray:
    """Uninitialised bytes; large pieces begin on a huge page, which spares the processor most address look-ups.

    NumPy asks for huge pages from 4 MiB on; the bytes skipped to align are never touched and so never resident.
    """
    alignment = 64 if count < HUGE_PAGES_FROM else 1 << 21
    raw = np.empty(count + alignment, np.uint8)
    start = -address_of(raw) % alignment
    return raw[start : start + count]


def zeroed_memory(count: int) -> np.ndarray:
    """`huge_page_memory` filled with zeros."""
    memory = huge_page_memory(count)
    memory[:] = 0
    return memory


def memory_at(address: int, count: int) -> np.ndarray:
    """A view of memory that somebody else owns."""
    view: Any = (ctypes.c_uint8 * count).from_address(address)
    return np.frombuffer(view, np.uint8)
