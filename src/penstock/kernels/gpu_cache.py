"""Rows swapped between a GPU and pinned host memory, which the GPU reads and writes over the bus by itself.

Neither the host nor its copy engine takes part: one program moves a few rows out and a few in, and which ones is known
on the device alone.
"""

from __future__ import annotations

from torch import Tensor

from penstock.core.extras import require

require("triton", "torch")

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

_TILE = 32


@triton.jit
def _swap(wanted, slots, count, row_of_slot, cache, host, WIDTH: tl.constexpr, DIM: tl.constexpr, TILE: tl.constexpr):
    """host[row_of_slot[s]] = cache[s] where the slot is taken; cache[s] = host[wanted]. No row is on both sides."""
    total = tl.load(count)
    begin = tl.program_id(0) * TILE
    if begin < total:
        i = begin + tl.arange(0, TILE)
        inside = i < total
        slot = tl.load(slots + i, mask=inside, other=0).to(tl.int64)
        old = tl.load(row_of_slot + slot, mask=inside, other=-1).to(tl.int64)
        new = tl.load(wanted + i, mask=inside, other=0).to(tl.int64)
        column = tl.arange(0, DIM)
        real = (column < WIDTH)[None, :]
        here = cache + slot[:, None] * WIDTH + column[None, :]
        coming = tl.load(host + new[:, None] * WIDTH + column[None, :], mask=inside[:, None] & real)
        leaving = inside[:, None] & (old >= 0)[:, None] & real
        tl.store(host + old[:, None] * WIDTH + column[None, :], tl.load(here, mask=leaving), mask=leaving)
        tl.debug_barrier()  # threads that hold the same element must all have read it
        tl.store(here, coming, mask=inside[:, None] & real)


def swap(wanted: Tensor, slots: Tensor, count: Tensor, row_of_slot: Tensor, cache: Tensor, host: Tensor) -> None:
    """Bring the first `count` rows of `wanted` into `slots`, and what was there back to `host` (pinned)."""
    width = 1 if cache.dim() == 1 else cache.shape[1]
    sizes = {"WIDTH": width, "DIM": triton.next_power_of_2(width), "TILE": _TILE}
    if len(wanted):
        _swap[(triton.cdiv(len(wanted), _TILE),)](wanted, slots, count, row_of_slot, cache, host, **sizes)
