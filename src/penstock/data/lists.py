"""List columns as flat values and offsets, and back: no Python object per row.

>>> column = pl.Series("genres", [[1, 2], None, [], [3]])
>>> values, lists = flatten(column)
>>> values.to_list(), lists.offsets.tolist()
([1, 2, 3], [0, 2, 2, 2, 3])
>>> lists.rebuild(values * 10).to_list()
[[10, 20], None, [], [30]]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.core.arrow_arrays import arrow_of
from penstock.data.keys import valid_mask

_OLDEST = pl.CompatLevel.oldest()


@dataclass(frozen=True)
class Lists:
    """Where the lists of a column begin and end; `valid` is None where no list is null."""

    name: str
    offsets: np.ndarray
    valid: np.ndarray | None

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def rebuild(self, values: pl.Series) -> pl.Series:
        """A list column of these lengths over other values."""
        offsets = arrow_of(self.offsets.astype(np.int64, copy=False))
        mask = None if self.valid is None else pl.Series(~self.valid).to_arrow()
        array = values.rechunk().to_arrow(compat_level=_OLDEST)
        return pl.Series(self.name, pa.LargeListArray.from_arrays(offsets, array, mask=mask))


def flatten(series: pl.Series) -> tuple[pl.Series, Lists]:
    """All values of a list column end to end, and where each list stands."""
    if isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    array = series.rechunk().to_arrow(compat_level=_OLDEST)
    values = pl.Series(series.name, array.flatten(), dtype=series.dtype.inner)  # type: ignore[attr-defined]
    lengths = series.list.len().fill_null(0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    valid = valid_mask(series)
    return values, Lists(series.name, offsets, valid)
