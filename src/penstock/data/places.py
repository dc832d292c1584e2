"""Where the numbers of frames lie in memory: many columns handed to a kernel in one call, and back, without copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

_OLDEST = pl.CompatLevel.oldest()


class Places(NamedTuple):
    """Columns of a frame: `table` is `(columns, 3)` as `place_of` says, and `owner` keeps the memory."""

    table: np.ndarray
    null_counts: list[int]
    num_rows: int
    owner: pa.Table


def place_of(column: pa.Array) -> tuple[int, int, int]:
    """Where a column's values begin, where its validity bits lie (0 where nothing is missing), and its first bit."""
    bits, values = column.buffers()
    first = 0 if values is None else values.address + column.offset * (column.type.bit_width // 8)
    has_nulls = bits is not None and column.null_count
    return first, bits.address if has_nulls else 0, column.offset if has_nulls else 0


def places_of(frame: pl.DataFrame, names: Sequence[str]) -> Places:
    """Where columns of numbers lie.

    >>> places = places_of(pl.DataFrame({"x": [1, None, 3]}), ["x"])
    >>> places.num_rows, places.null_counts, places.table.shape
    (3, [1], (1, 3))
    """
    chosen = pl.DataFrame([frame.get_column(name) for name in names])
    if chosen.n_chunks() > 1 or any(column.n_chunks() > 1 for column in chosen):
        chosen = chosen.rechunk()
    owner = chosen.to_arrow(compat_level=_OLDEST)
    columns = [column.chunk(0) for column in owner.columns] if owner.num_rows else []
    table = np.array([place_of(column) for column in columns], np.int64).reshape(-1, 3)
    if not owner.num_rows:
        table = np.zeros((len(names), 3), np.int64)
    return Places(table, [column.null_count for column in owner.columns], owner.num_rows, owner)


def frame_over(names: Sequence[str], block: np.ndarray) -> pl.DataFrame:
    """A frame over the memory of a block, `(columns, rows)`; it is not to be written to any more.

    >>> frame_over(["a", "b"], np.array([[1, 2], [3, 4]], np.int32)).rows()
    [(1, 3), (2, 4)]
    """
    kind, memory, size = pa.from_numpy_dtype(block.dtype), pa.py_buffer(block), block.shape[1] * block.itemsize
    arrays = [
        pa.Array.from_buffers(kind, block.shape[1], [None, memory.slice(i * size, size)], 0) for i in range(len(block))
    ]
    return pl.DataFrame(pa.record_batch(arrays, list(names)))
