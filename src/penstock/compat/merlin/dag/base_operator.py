"""The classes that users derive their own operators from: pandas frames in, pandas frames out."""

from __future__ import annotations

from enum import Flag, auto
from typing import TYPE_CHECKING, Any

from penstock.compat.merlin.schema.schema import Schema

if TYPE_CHECKING:
    from penstock.compat.merlin.dag.node import Node

__all__ = ["BaseOperator", "Supports"]


class Supports(Flag):
    """What an operator can work on; here that is always a pandas frame.

    >>> bool(Supports.CPU_DATAFRAME & Supports.CPU_DATAFRAME)
    True
    """

    CPU_DATAFRAME = auto()
    GPU_DATAFRAME = auto()
    CPU_DICT_ARRAY = auto()
    GPU_DICT_ARRAY = auto()


class BaseOperator:
    """Derive from it and define `transform(self, col_selector, df)`, which gives a pandas frame with as many rows.

    The columns that come out are those of the frame that `transform` gives (or those that `column_mapping` names).
    Their dtypes are taken from the first rows of the data, or from `output_dtype` where that is defined.

    >>> from penstock.compat.nvtabular import Workflow
    >>> import pandas as pd
    >>> class Double(BaseOperator):
    ...     def transform(self, col_selector, df):
    ...         return df[col_selector.names] * 2
    >>> Workflow(["x"] >> Double()).transform(pd.DataFrame({"x": [1, 2]}))["x"].tolist()
    [2, 4]
    """

    changes_rows = False  # set it where `transform` gives other rows than it got

    def transform(self, col_selector: Any, df: Any) -> Any:
        raise TypeError(f"{type(self).__name__} does not define transform")

    def column_mapping(self, col_selector: Any) -> dict[str, list[str]] | None:
        """`{output: inputs}`; None leaves it to what `transform` gives."""
        return None

    @property
    def dependencies(self) -> Any:
        """Further columns: names, selectors or nodes."""
        return None

    @property
    def output_dtype(self) -> Any:
        return None

    @property
    def output_tags(self) -> Any:
        return []

    @property
    def output_properties(self) -> dict[str, Any]:
        return {}

    @property
    def label(self) -> str:
        return type(self).__name__

    @property
    def supports(self) -> Supports:
        return Supports.CPU_DATAFRAME

    def create_node(self, selector: Any) -> Node:
        from penstock.compat.merlin.dag.node import as_node

        return as_node(selector)

    def compute_output_schema(self, input_schema: Schema, col_selector: Any, prev_output_schema: Any = None) -> Schema:
        """Merlin's way to declare the outputs; not asked here, where they are seen."""
        return input_schema.select(col_selector)

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

    def fit(self, col_selector: Any, ddf: Any) -> Any:
        raise TypeError(f"{type(self).__name__} does not define fit")

    def fit_finalize(self, dask_stats: Any) -> None:
        raise TypeError(f"{type(self).__name__} does not define fit_finalize")

    def clear(self) -> None:
        """Forget what was learned."""

    def set_storage_path(self, new_path: str, copy: bool = False) -> None:
        """Where NVTabular kept files of an operator; there are none here."""
