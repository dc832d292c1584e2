"""The class that users derive operators from that learn."""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.dag.base_operator import BaseOperator
from penstock.compat.missing import module_getattr

__all__ = ["StatOperator"]


class StatOperator(BaseOperator):
    """Derive from it and define `fit`, `fit_finalize` and `transform`.

    `fit(self, col_selector, ddf)` is given a Dask frame and returns what Dask shall compute; the result goes to
    `fit_finalize(self, dask_stats)`.

    >>> from penstock.compat.nvtabular import Workflow
    >>> import pandas as pd
    >>> class Centre(StatOperator):
    ...     def fit(self, col_selector, ddf):
    ...         return ddf[col_selector.names].mean()
    ...     def fit_finalize(self, dask_stats):
    ...         self.means = dask_stats
    ...     def transform(self, col_selector, df):
    ...         return df - self.means
    >>> Workflow(["x"] >> Centre()).fit_transform(pd.DataFrame({"x": [1.0, 3.0]}))["x"].tolist()
    [-1.0, 1.0]
    """

    def fit(self, col_selector: Any, ddf: Any) -> Any:
        raise TypeError(f"{type(self).__name__} does not define fit")

    def fit_finalize(self, dask_stats: Any) -> None:
        raise TypeError(f"{type(self).__name__} does not define fit_finalize")

    def clear(self) -> None:
        """Forget what was learned."""

    def set_storage_path(self, new_path: str, copy: bool = False) -> None:
        """Where NVTabular kept files of an operator; there are none here."""


__getattr__ = module_getattr(__name__)
