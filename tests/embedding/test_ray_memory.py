"""Memory that a client shares with the shards on its machine."""

from __future__ import annotations

import os

import numpy as np
import pytest

from penstock.embedding.ray_memory import MappedBuffers, Place, SharedBuffers

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no files without names")


def shared(count: int = 5000) -> tuple[SharedBuffers, np.ndarray, Place]:
    buffers = SharedBuffers()
    array = buffers.array(count, np.float32)
    place = buffers.place(array)
    assert place is not None
    return buffers, array, place


def test_both_sides_see_what_either_writes() -> None:
    buffers, array, _ = shared()
    part = buffers.place(array[100:300])
    assert part is not None
    theirs = MappedBuffers().array(part)
    assert theirs is not None and len(theirs) == 200
    array[100:300] = np.arange(200)
    np.testing.assert_array_equal(theirs, np.arange(200))
    theirs[:] = 7
    assert (array[100:300] == 7).all()


def test_an_empty_part_is_an_empty_array() -> None:
    buffers, array, _ = shared()
    place = buffers.place(array[5000:])
    assert place is not None
    found = MappedBuffers().array(place)
    assert found is not None and found.shape == (0,) and found.dtype == np.float32


@pytest.mark.parametrize(
    "changed",
    [
        {"machine": "another"},
        {"process": 2**22 + 1},
        {"file": 2**20},
        {"inode": 1},
        {"length": 10**9},
        {"offset": 10**9},
    ],
    ids=str,
)
def test_what_cannot_be_reached_is_not_opened(changed: dict[str, int | str]) -> None:
    _, array, place = shared()
    assert MappedBuffers().array(place._replace(**changed)) is None
    assert len(array) == 5000


def test_memory_that_a_client_gave_back_is_let_go() -> None:
    buffers, array, place = shared()
    mapped = MappedBuffers()
    assert mapped.array(place) is not None
    del buffers, array
    _, kept, second = shared()
    assert mapped.array(second) is not None
    assert len(mapped._mapped) == 1 and len(kept) == 5000
