"""Numbers, and lists of them, to the last bit as NVTabular had them."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from penstock.compat.nvtabular.ops.placed import Placed
from penstock.core.schema import ColumnSchema
from penstock.etl import ops as native
from penstock.etl.operator import Operator
from penstock.etl.ops.elementwise import from_values, numeric


class Bucketize(Placed, native.Bucketize):
    """The number of the bucket that a value falls in; a missing value is in the last one, as NaN is for `np.digitize`.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> Bucketize([0, 5])).transform(pd.DataFrame({"x": [-1.0, 0.0, 9.0, None]}))["x"].tolist()
    [0, 1, 2, 2]
    """

    def apply(self, series: pl.Series, name: str) -> pl.Series:
        return super().apply(series, name).fill_null(len(self._of(name)))

    def apply_null(self, name: str) -> int:
        return len(self._of(name))

    @classmethod
    def recipe_class(cls) -> type[Operator]:
        return cls


class ListSlice(Placed, native.ListSlice):
    """Some elements of every list; the columns are tagged as lists from here on.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> sliced = Workflow(["x"] >> ListSlice(-2)).transform(pd.DataFrame({"x": [[1, 2, 3], [4]]}))
    >>> [row.tolist() for row in sliced["x"]]
    [[2, 3], [4]]
    """

    def _column(self, column: ColumnSchema) -> ColumnSchema:
        made = super()._column(column)
        return made.with_(tags=made.tags | {"list"})


class LogOp(Placed, native.LogOp):
    """`log(x + 1)`, both in float32; Penstock's own adds and takes the logarithm in one step, which rounds less.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["x"] >> LogOp()).transform(pd.DataFrame({"x": [0.0, 1e-8]}))["x"].tolist()
    [0.0, 0.0]
    """

    def apply(self, series: pl.Series, name: str) -> pl.Series:
        values, valid = numeric(series, "LogOp")
        return from_values(series.name, _log(values), valid)

    def apply_block(self, names: list[str], values: np.ndarray, valid: np.ndarray | None) -> Any:
        return _log(values), valid

    def apply_one(self, value: Any, name: str) -> float:
        return float(_log(np.asarray([value]))[0])


def _log(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(values.astype(np.float32) + np.float32(1))
