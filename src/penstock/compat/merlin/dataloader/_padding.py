"""Lists filled up to one length."""

from __future__ import annotations

from typing import Any

import polars as pl

from penstock.compat.merlin.dag.base_operator import BaseOperator
from penstock.compat.merlin.schema.schema import Schema
from penstock.core.batch import Ragged
from penstock.core.params import Int, Real, check
from penstock.data.lists import flatten
from penstock.loader.loader import padded
from penstock.loader.settings import Pad


class Padding(BaseOperator):
    """Cut or fill every list to `padding_size` items; in a loader the batches hold dense `(B, padding_size)` arrays.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"items": [[1, 2, 3], [4]]})
    >>> [row.tolist() for row in Padding(2).transform(["items"], frame)["items"]]
    [[1, 2], [4, 0]]
    """

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
                out[name] = list(padded(Ragged(values.to_numpy(), lists.offsets), self.pad))
        return out
