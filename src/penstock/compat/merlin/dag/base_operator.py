"""The classes that users derive their own operators from: pandas frames in, pandas frames out."""

from __future__ import annotations

from abc import ABCMeta
from typing import TYPE_CHECKING, Any

from penstock.compat.merlin.dag.declaring import Declares

if TYPE_CHECKING:
    from penstock.compat.merlin.dag.node import Node

from penstock.compat.merlin.dag.declaring import as_selector
from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.merlin.schema import Schema


class BaseOperator(Declares, metaclass=ABCMeta):
    """Derive from it and define `transform(self, col_selector, df)`, which gives a pandas frame with as many rows.

    By itself it hands its columns on. What comes out is declared by `compute_output_schema`, or by `column_mapping`,
    `output_dtype`, `output_tags` and `output_properties`; an operator that declares nothing gives the columns of the
    frame that `transform` gives, with the dtypes seen on the first rows of the data. The built-in operators derive from
    Penstock's and are registered here, so that `isinstance(op, BaseOperator)` says of them what it did.

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


# Merlin's names for what `+`, `-`, `[…]` and a selection do, as operators that can be used by themselves.


class Identity(BaseOperator):
    """Columns as they are.

    >>> Identity().label
    'Identity'
    """


class Step(BaseOperator):
    """What a node does by itself, without an operator of its own."""


class _Labelled(Step):
    def __init__(self, label: str | None = None) -> None:
        self._label = label

    @property
    def label(self) -> str:
        return self._label or type(self).__name__

    def transform(self, col_selector: Any, df: Any) -> Any:
        return self._get_columns(df, as_selector(col_selector))


class ConcatColumns(_Labelled):
    """Branches side by side.

    >>> ConcatColumns("+").label
    '+'
    """


class SubsetColumns(_Labelled):
    """Some of a node's columns.

    >>> SubsetColumns("['a']").label
    "['a']"
    """


class GroupingOp(Step):
    """Columns as they are; the groups are the selector's.

    >>> GroupingOp().label
    'GroupingOp'
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name


class SelectionOp(Step):
    """The columns of a selector; those of one that is given besides count, where it names any.

    >>> SelectionOp(ColumnSelector(["a"])).output_column_names(ColumnSelector(["a", "b"])).names
    ['a']
    """

    def __init__(self, selector: Any = None) -> None:
        self.selector = as_selector(selector)

    def transform(self, col_selector: Any, df: Any) -> Any:
        return self._get_columns(df, as_selector(col_selector) or self.selector)

    def compute_selector(
        self, input_schema: Schema, selector: Any, parents_selector: Any = None, dependencies_selector: Any = None
    ) -> ColumnSelector:
        return super().compute_selector(input_schema, self.selector or selector)

    def compute_output_schema(self, input_schema: Schema, col_selector: Any, prev_output_schema: Any = None) -> Schema:
        chosen = as_selector(col_selector) or self.selector
        return super().compute_output_schema(input_schema, chosen, prev_output_schema)

    def output_column_names(self, col_selector: Any) -> ColumnSelector:
        return ColumnSelector((self.selector or as_selector(col_selector)).names)


class SubtractionOp(Step):
    """Columns without those of a selector.

    >>> SubtractionOp(["a"]).output_column_names(ColumnSelector(["a", "b"])).names
    ['b']
    """

    def __init__(self, selector: Any = None) -> None:
        self.selector = as_selector(selector)

    def transform(self, col_selector: Any, df: Any) -> Any:
        return self._get_columns(df, self.output_column_names(as_selector(col_selector)))

    def compute_output_schema(self, input_schema: Schema, col_selector: Any, prev_output_schema: Any = None) -> Schema:
        chosen = input_schema.select(as_selector(col_selector)) if as_selector(col_selector) else input_schema
        return chosen.excluding(self.selector)

    def output_column_names(self, col_selector: Any) -> ColumnSelector:
        return as_selector(col_selector).filter_columns(self.selector)
