"""`Categorify` on partitions: columns of 32-bit integers, and those of texts, are counted and encoded in one call each.

Between two calls a thread takes the interpreter's lock. On many cores that is what threads wait for, so all columns
that can go together do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl

from penstock.core.dtypes import same_dtype
from penstock.data.places import frame_over, places_of, text_places_of
from penstock.etl.ops.categorify_bulk import Step, side_by_side
from penstock.etl.vocabulary import ValueCounts

_KEYS = (pl.UInt32, pl.Int32)  # whose values are 32-bit keys as they lie in memory
_TEXTS = (pl.String, pl.Binary)


def quick_outputs(frame: pl.DataFrame, outputs: Iterable[tuple[str, tuple[str, ...], pl.DataType]]) -> set[str]:
    """Which outputs are made of one column of 32-bit keys or of texts, whose dtype is that of their vocabulary."""
    found = dict(zip(frame.columns, frame.dtypes, strict=True))
    return {
        output
        for output, names, dtype in outputs
        if len(names) == 1 and isinstance(dtype, _KEYS + _TEXTS) and found[names[0]] == dtype
    }


def encoded_side_by_side(frame: pl.DataFrame, steps: Mapping[str, Step], dtype: np.dtype) -> pl.DataFrame:
    """The codes of every output in `steps`, those of numbers first."""
    dtypes = frame.schema
    texts = {output: step for output, step in steps.items() if isinstance(dtypes[step[0]], _TEXTS)}
    numbers = {output: step for output, step in steps.items() if output not in texts}
    made = []
    for chosen in (numbers, texts):
        if chosen:
            names = [column for column, _, _ in chosen.values()]
            is_text = chosen is texts
            places = text_places_of([frame.get_column(n) for n in names]) if is_text else places_of(frame, names)
            codes = side_by_side(list(chosen.values())).encode_places(places.table, places.num_rows, dtype)
            made.append(frame_over(list(chosen), codes))
    if len(made) > 1:
        return made[0].hstack(made[1].get_columns())
    return made[0] if made else pl.DataFrame()


class Together:
    """Outputs that are all made of a column of 32-bit keys each, and the tables for them.

    What stands between two partitions is the same for all of them, and would be put together under the interpreter's
    lock for each. It holds addresses, so it stays in this process.

    Args:
        frame: some rows of the columns.
        steps: all outputs of an operator.
        dtype: of the codes.
        of: what the steps were made from; where any of it is another object, they are others.
    """

    def __init__(self, frame: pl.DataFrame, steps: Mapping[str, Step], dtype: np.dtype, of: tuple[object, ...]) -> None:
        self._of, self._dtype, self._outputs = of, dtype, list(steps)
        self._names = [column for column, _, _ in steps.values()]
        self._columns, self._dtypes = frame.columns, frame.dtypes
        self._encoders = side_by_side(list(steps.values()))

    def suits(self, frame: pl.DataFrame, of: tuple[object, ...]) -> bool:
        """Whether the same is to be done with a frame."""
        is_same = all(one is other for one, other in zip(self._of, of, strict=True))
        return is_same and frame.columns == self._columns and all(map(same_dtype, frame.dtypes, self._dtypes))

    def encoded(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The codes of every output."""
        places = places_of(frame, self._names)
        return frame_over(self._outputs, self._encoders.encode_places(places.table, places.num_rows, self._dtype))


def together(
    frame: pl.DataFrame, steps: Mapping[str, Step], dtype: np.dtype, of: tuple[object, ...]
) -> Together | None:
    """The outputs as ones that are made together, where all of them are of 32-bit keys."""
    dtypes = frame.schema
    if not steps or any(isinstance(dtypes[column], _TEXTS) for column, _, _ in steps.values()):
        return None
    return Together(frame, steps, dtype, of)


def counted_side_by_side(frame: pl.DataFrame, counts: Mapping[str, ValueCounts]) -> None:
    """Count the values of columns, each into counts of its own."""
    dtypes = frame.schema
    texts = [name for name in counts if isinstance(dtypes[name], _TEXTS)]
    numbers = [name for name in counts if name not in texts]
    if texts:
        ValueCounts.add_texts([counts[name] for name in texts], [frame.get_column(name) for name in texts])
    if numbers:
        ValueCounts.add_integers([counts[name] for name in numbers], frame, numbers)


def can_count(dtype: pl.DataType, counts: ValueCounts) -> bool:
    """Whether the values of a column of this dtype can be counted beside those of others."""
    return isinstance(dtype, _KEYS + _TEXTS) and dtype == counts.dtype and counts.has_plain_counter
