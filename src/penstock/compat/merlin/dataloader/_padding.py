"""Lists filled up to one length."""

from __future__ import annotations

from typing import Any

import polars as pl

from penstock.compat.merlin.dag.base_operator import BaseOperator
from penstock.compat.merlin.schema.schema import Schema
from penstock.core.batch import Ragged
from penstock.core.errors import DataError
from penstock.core.params import Int, Real, check
from penstock.data.lists import flatten
from penstock.loader.loader import padded
from penstock.loader.settings import Pad


class Padding(BaseOperator):
    """Fill every list up to `padding_size` items; in a loader the batches hold dense `(B, padding_size)` arrays.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"items": [[1, 2], [4]]})
    >>> [row.tolist() for row in Padding(3).transform(["items"], frame)["items"]]
    [[1, 2, 0], [4, 0, 0]]
    """

    keeps_dtypes = True

    def __init__(self, padding_size: int, padding_value: float = 0) -> None:
        check("padding_size", padding_size, Int(min=1))
        check("padding_value", padding_value, Real())
        self.padding_size, self.padding_value = padding_size, padding_value

    def compute_output_schema(self, input_schema: Schema, col_selector: Any, prev_output_schema: Any = None) -> Schema:
        outputs = super().compute_output_schema(input_schema, col_selector, prev_output_schema)
        return Schema([c.with_shape((None, self.padding_size)) if c.is_list else c for c in outputs])

    @property
    def pad(self) -> Pad:
        return Pad(self.padding_size, value=self.padding_value)

    def transform(self, col_selector: Any, df: Any) -> Any:
        out = df.copy(deep=False)
        for name in getattr(col_selector, "names", col_selector):
            series = pl.Series(pl.from_pandas(df[name]))
            if isinstance(series.dtype, pl.List):
                values, lists = flatten(series)
                ragged = Ragged(values.to_numpy(), lists.offsets)
                self.check(name, ragged)
                out[name] = list(padded(ragged, self.pad))
        return out

    def check(self, name: str, lists: Ragged) -> None:
        """Refuse lists that are longer: to cut them would be to lose values."""
        at_most(
            self.padding_size, name, lists, "There are records in data that have more values than padding_size={limit}"
        )


def at_most(limit: int, name: str, lists: Ragged, words: str) -> None:
    """Refuse a batch with a list of more than `limit` items.

    >>> import numpy as np
    >>> at_most(1, "seen", Ragged([4, 5], np.array([0, 2])), "sparse_max allows {limit}")
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: sparse_max allows 1: column 'seen' has a list of 2 items; raise it
    """
    longest = int(lists.lengths.max()) if len(lists.lengths) else 0
    if longest > limit:
        raise DataError(f"{words.format(limit=limit)}: column {name!r} has a list of {longest} items; raise it")
