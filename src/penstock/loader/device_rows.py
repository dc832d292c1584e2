"""Rows of a chunk on a device: put into their order and their delivered dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.core.batch import BlockSpec
from penstock.core.extras import require

torch = require("torch", "torch")

# What the kernel casts as torch does; anything else is left to torch.
_CAST = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64}


def place_rows(spec: BlockSpec, sent: list[tuple[BlockSpec, Any]], order: Any, out: Any, has_kernels: bool) -> None:
    """Fill a delivered block from the blocks that were sent.

    Args:
        spec: what is delivered.
        sent: blocks in stored order and dtypes, a column in one of them each.
        order: the rows to take, one after the other; None leaves them as they are.
        out: `(columns, rows)` of the device.
        has_kernels: whether the device runs ours.
    """
    for wire, block in sent:
        if wire.role is spec.role:
            for first, target, count in _stretches(wire.names, spec.names):
                source, place = block[first : first + count], out[target : target + count]
                if order is None:
                    place.copy_(source)
                elif has_kernels and {source.dtype, place.dtype} <= _CAST:
                    from penstock.kernels.gpu_gather import gather_columns

                    gather_columns(source, order, place)
                else:
                    place.copy_(torch.index_select(source, 1, order))


def _stretches(have: tuple[str, ...], want: tuple[str, ...]) -> Iterator[tuple[int, int, int]]:
    """Columns that lie one behind the other in both: `(first here, first there, how many)`.

    >>> list(_stretches(("a", "b", "x", "c"), ("c", "a", "b")))
    [(0, 1, 2), (3, 0, 1)]
    """
    places = {name: place for place, name in enumerate(want)}
    first = 0
    while first < len(have):
        target, count = places.get(have[first]), 1
        if target is None:
            first += 1
            continue
        while first + count < len(have) and places.get(have[first + count]) == target + count:
            count += 1
        yield first, target, count
        first += count
