"""Rows that a pandas function keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from penstock.compat.merlin.dag.unsaved import KeepsFunction
from penstock.compat.nvtabular.ops.placed import Placed, at_once
from penstock.core.errors import DataError
from penstock.etl import ops as native
from penstock.etl.operator import ROW_NUMBER, Columns

__all__ = ["Filter"]


class Filter(KeepsFunction, Placed, native.Filter):
    """`f(frame)` on pandas gives a mask, or the frame with fewer rows (under their old index).

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> Filter(lambda df: df["x"] > 1)).transform(pd.DataFrame({"x": [1, 2, 3]}))["x"].tolist()
    [2, 3]
    """

    def __init__(self, f: Callable[[Any], Any]) -> None:
        super().__init__(f)

    def transform(self, frame: Any, columns: Any) -> Any:
        if not isinstance(frame, pl.DataFrame):
            return at_once(self, self._kept, frame, columns)
        return self._kept(frame, columns)

    def _kept(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        rows = frame.drop(ROW_NUMBER, strict=False).to_pandas()
        kept = self.f(rows)
        if not hasattr(kept, "columns"):
            mask = np.asarray(kept, dtype=bool)
            if len(mask) != frame.height:
                raise DataError(f"Filter's function gave a mask of {len(mask)} rows for {frame.height}")
            return frame.filter(pl.Series(mask))
        places = np.asarray(kept.index)
        renumbered = len(kept) < frame.height and np.array_equal(places, np.arange(len(kept)))
        if renumbered and not rows.iloc[places].equals(kept):
            raise DataError("Filter's function gave its rows a new index; return a mask, or leave the index as it is")
        return frame[places]
