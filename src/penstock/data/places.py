"""Where the values of frames lie in memory: many columns handed to a kernel in one call, and back, without copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

_OLDEST, _NEWEST = pl.CompatLevel.oldest(), pl.CompatLevel.newest()


class Places(NamedTuple):
    """Columns of a frame: a line of `table` says where one lies, and `owner` keeps the memory."""

    table: np.ndarray
    null_counts: list[int]
    num_rows: int
    owner: object


def place_of(column: pa.Array) -> tuple[int, int, int]:
    """Where a column's values begin, where its validity bits lie (0 where nothing is missing), and its first bit."""
    bits, values = column.buffers()
    first = 0 if values is None else values.address + column.offset * (column.type.bit_width // 8)
    has_nulls = bits is not None and column.null_count
    return first, bits.address if has_nulls else 0, column.offset if has_nulls else 0


def places_of(columns: Sequence[pl.Series]) -> Places:
    """Where columns of numbers lie: a line of three for each, as `place_of` says.

    >>> places = places_of([pl.Series("x", [1, None, 3])])
    >>> places.num_rows, places.null_counts, places.table.shape
    (3, [1], (1, 3))
    """
    chosen = pl.DataFrame(list(columns))
    if chosen.n_chunks() > 1 or any(column.n_chunks() > 1 for column in chosen):
        chosen = chosen.rechunk()
    owner = chosen.to_arrow(compat_level=_OLDEST)
    if owner.num_rows:
        table = np.array([place_of(column.chunk(0)) for column in owner.columns], np.int64)
    else:
        table = np.zeros((len(columns), 3), np.int64)
    return Places(table, [column.null_count for column in owner.columns], owner.num_rows, owner)


def text_places_of(columns: Sequence[pl.Series]) -> Places:
    """Where columns of texts (or bytes) lie: a line of five for each, as `kernels.cpu_text_table` says.

    polars holds texts as string views, which Arrow pads with zeros; nothing is copied but views in several pieces.

    >>> places = text_places_of([pl.Series(["a", None, "much longer than a view"])])
    >>> places.num_rows, places.null_counts, places.table.shape
    (3, [1], (1, 5))
    """
    lines, owner = [], []
    for column in columns:
        array = (column if column.n_chunks() == 1 else column.rechunk()).to_arrow(compat_level=_NEWEST)
        bits, views, *buffers = array.buffers()
        addresses = np.array([0 if own is None else own.address for own in buffers] or [0], np.int64)
        first = 0 if views is None else views.address + 16 * array.offset
        masked = bits is not None and array.null_count
        validity = (bits.address, array.offset) if masked else (0, 0)
        lines.append((first, *validity, addresses.ctypes.data, 0))
        owner.append((array, addresses))
    null_counts = [column.null_count() for column in columns]
    return Places(np.array(lines, np.int64).reshape(-1, 5), null_counts, len(columns[0]) if columns else 0, owner)


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
