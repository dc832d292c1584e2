"""The classes that users derive their own operators from: pandas frames in, pandas frames out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.compat.merlin.dag.declaring import DataFormats, Declares, Supports

if TYPE_CHECKING:
    from penstock.compat.merlin.dag.node import Node

__all__ = ["BaseOperator", "DataFormats", "Supports"]


class BaseOperator(Declares):
    """Derive from it and define `transform(self, col_selector, df)`, which gives a pandas frame with as many rows.

    By itself it hands its columns on. What comes out is declared by `compute_output_schema`, or by `column_mapping`,
    `output_dtype`, `output_tags` and `output_properties`; an operator that declares nothing gives the columns of the
    frame that `transform` gives, with the dtypes seen on the first rows of the data.

    >>> from penstock.compat.nvtabular import Workflow
    >>> import pandas as pd
    >>> class Double(BaseOperator):
    ...     def transform(self, col_selector, df):
    ...         return df[col_selector.names] * 2
    >>> Workflow(["x"] >> Double()).transform(pd.DataFrame({"x": [1, 2]}))["x"].tolist()
    [2, 4]
    """

    changes_rows = False  # set it where `transform` gives other rows than it got
    keeps_dtypes = False  # set it where every column keeps its name and dtype: then the first rows need no look

    def transform(self, col_selector: Any, df: Any) -> Any:
        return df

    @property
    def dependencies(self) -> Any:
        """Further columns: names, selectors or nodes."""
        return []

    def create_node(self, selector: Any) -> Node:
        from penstock.compat.merlin.dag.node import as_node

        return as_node(selector)

    def __rrshift__(self, other: Any) -> Node:
        from penstock.compat.merlin.dag.node import as_node

        return as_node(other) >> self


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

    stats: dict[str, Any]  # what was learned; empty before

    def __new__(cls, *args: Any, **kwargs: Any) -> StatOperator:
        made = super().__new__(cls)
        made.stats = {}  # also of a class whose __init__ does not call this one's
        return made

    def fit(self, col_selector: Any, ddf: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define fit")

    def fit_finalize(self, dask_stats: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not define fit_finalize")

    def clear(self) -> None:
        """Forget what was learned."""

    @property
    def fitted(self) -> bool:
        return False

    def set_storage_path(self, new_path: str, copy: bool = False) -> None:
        """Where NVTabular kept files of an operator; there are none here."""
