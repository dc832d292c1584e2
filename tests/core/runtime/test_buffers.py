"""Buffers: never handed out while someone refers to them, handed out again after, bounded in number."""

from __future__ import annotations

import weakref

import numpy as np
import polars as pl
import pytest

from penstock.core.runtime import buffers
from penstock.core.runtime.buffers import ALIGNMENT, BufferPool, SpareBuffers


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


_MEGABYTE = 1 << 20


@pytest.mark.parametrize("keeping", [lambda a: a[2:3], lambda a: a.view(np.int64), memoryview, lambda a: a[5:][::2]])
def test_a_view_keeps_spare_memory_from_being_handed_out(keeping) -> None:
    spare = SpareBuffers()
    first = spare.acquire(_MEGABYTE)
    place, view = first.ctypes.data, keeping(first)
    del first
    assert spare.acquire(_MEGABYTE).ctypes.data != place
    del view
    assert place in {array.ctypes.data for array in [spare.acquire(_MEGABYTE) for _ in range(2)]}


def test_a_frame_keeps_spare_memory() -> None:
    import pyarrow as pa

    spare = SpareBuffers(keep=1)
    block = spare.acquire(_MEGABYTE)
    block[:] = 7
    place = block.ctypes.data
    column = pl.Series(pa.Array.from_buffers(pa.uint8(), len(block), [None, pa.py_buffer(block)]))
    del block
    other = spare.acquire(_MEGABYTE)
    other[:] = 0
    assert other.ctypes.data != place and (column == 7).all()
    del column
    assert spare.acquire(_MEGABYTE).ctypes.data == place


def test_what_comes_back_beyond_a_few_goes_to_the_system() -> None:
    spare = SpareBuffers(keep=2)
    held = [spare.acquire(_MEGABYTE) for _ in range(9)]
    gone = [weakref.ref(_owner(array)) for array in held]
    assert all(array.ctypes.data % ALIGNMENT == 0 for array in held)
    held.clear()
    assert sum(one() is not None for one in gone) == 2
    spare.acquire(100 * _MEGABYTE)
    assert not any(one() is not None for one in gone)  # too small for what was asked for last


def test_small_needs_take_nothing_from_the_spare() -> None:
    spare = SpareBuffers()
    large = spare.acquire(_MEGABYTE)
    place = large.ctypes.data
    del large
    assert [spare.acquire(size).size for size in (0, 1, 4096)] == [0, 1, 4096]
    assert spare.acquire(_MEGABYTE).ctypes.data == place


def _owner(view: np.ndarray) -> np.ndarray:
    """The array that the memory behind a view belongs to."""
    found: object = view
    while getattr(found, "base", None) is not None or isinstance(found, memoryview):
        found = found.obj if isinstance(found, memoryview) else found.base  # type: ignore[attr-defined]
    assert isinstance(found, np.ndarray)
    return found


def test_threads_that_work_side_by_side_hand_their_memory_round(monkeypatch):
    """As many wait as are in use, up to the number of cores; none but `keep` when the work is over."""
    monkeypatch.setattr(buffers, "available_cores", lambda: 3)
    spare = SpareBuffers(keep=1)
    held = [spare.acquire(1 << 21) for _ in range(8)]
    places = {array.ctypes.data for array in held}
    del held[:4]
    again = [spare.acquire(1 << 21) for _ in range(3)]
    assert {array.ctypes.data for array in again} <= places
    assert len(spare._free) == 0
    held.clear()
    again.clear()
    assert len(spare._free) == 1
