"""`Categorify` on partitions: columns of 32-bit integers are counted and encoded side by side, in one call each.

Between two calls a thread takes the interpreter's lock. On many cores that is what threads wait for, so all columns
that can go together do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl

from penstock.data.places import frame_over, places_of
from penstock.etl.ops.categorify_bulk import Step, side_by_side
from penstock.etl.vocabulary import ValueCounts

_KEYS = (pl.UInt32, pl.Int32)  # whose values are 32-bit keys as they lie in memory


def quick_outputs(frame: pl.DataFrame, outputs: Iterable[tuple[str, tuple[str, ...], pl.DataType]]) -> set[str]:
    """Which outputs are made of one column of 32-bit keys, whose dtype is that of their vocabulary."""
    found = dict(zip(frame.columns, frame.dtypes, strict=True))
    return {
        output
        for output, names, dtype in outputs
        if len(names) == 1 and isinstance(dtype, _KEYS) and found[names[0]] == dtype
    }


def encoded_side_by_side(frame: pl.DataFrame, steps: Mapping[str, Step], dtype: np.dtype) -> pl.DataFrame:
    """The codes of every output in `steps`."""
    if not steps:
        return pl.DataFrame()
    places = places_of(frame, [column for column, _, _ in steps.values()])
    codes = side_by_side(list(steps.values())).encode_places(places.table, places.num_rows, dtype)
    return frame_over(list(steps), codes)


def counted_side_by_side(frame: pl.DataFrame, counts: Mapping[str, ValueCounts]) -> None:
    """Count the values of columns, each into counts of its own."""
    from penstock.kernels.cpu_vocab import count_side_by_side

    if not counts:
        return
    places = places_of(frame, list(counts))
    counters = [own.counter32() for own in counts.values()]
    count_side_by_side(counters, places.table, places.num_rows, places.null_counts)
    for own, num_null in zip(counts.values(), places.null_counts, strict=True):
        own.note_rows(places.num_rows, num_null)


def can_count(frame: pl.DataFrame, column: str, counts: ValueCounts) -> bool:
    """Whether a column's values can be counted beside those of others."""
    dtype = frame.get_column(column).dtype
    return isinstance(dtype, _KEYS) and dtype == counts.dtype and counts.has_plain_counter
