"""Buffers: never handed out while someone refers to them, handed out again after, bounded in number."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.core.runtime.buffers import ALIGNMENT, BufferPool


def test_what_is_in_use_is_never_handed_out() -> None:
    pool = BufferPool()
    held = [pool.array((10, size), np.float32) for size in range(1, 40)]
    for number, array in enumerate(held):
        array[:] = number
    assert all((array == number).all() for number, array in enumerate(held))
    assert all(array.ctypes.data % ALIGNMENT == 0 for array in held)


@pytest.mark.parametrize("keeping", [lambda a: a[2:3], lambda a: a.view(np.uint8), lambda a: memoryview(a)])
def test_a_view_keeps_the_memory(keeping) -> None:
    pool = BufferPool()
    first = pool.array((100,), np.int64)
    place, view = first.ctypes.data, keeping(first)
    del first
    assert pool.array((100,), np.int64).ctypes.data != place
    del view
    assert pool.array((100,), np.int64).ctypes.data == place


def test_a_tensor_keeps_the_memory() -> None:
    torch = pytest.importorskip("torch")
    pool = BufferPool()
    tensor = torch.from_numpy(pool.array((100,), np.int64))[5:]
    assert pool.array((100,), np.int64).ctypes.data != tensor.data_ptr() - 40


def test_a_small_need_does_not_hold_a_large_buffer() -> None:
    pool = BufferPool(slack=2)
    large = pool.acquire(10_000_000)
    place = large.ctypes.data
    del large
    assert pool.acquire(1_000_000).ctypes.data != place
    assert BufferPool().acquire(0).size == 0


def test_free_buffers_of_other_sizes_go_back() -> None:
    pool = BufferPool(keep=4)
    for power in range(17, 24):
        pool.acquire(1 << power)
    before = pool.num_bytes
    pool.acquire(1 << 26)
    assert before < (1 << 24) and pool.num_bytes <= (1 << 26) + (1 << 24)


def test_memory_is_made_by_whoever_is_asked() -> None:
    sizes: list[int] = []

    def allocate(size: int) -> np.ndarray:
        sizes.append(size)
        return np.zeros(size, np.uint8)

    pool = BufferPool(allocate)
    assert not pool.acquire(5000).any()
    assert sizes == [8192 + ALIGNMENT] and pool.num_bytes == sizes[0]
