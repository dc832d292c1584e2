"""Merlin's names for what `+`, `-`, `[…]` and a selection do, as operators that can be used by themselves."""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.dag.base_operator import BaseOperator
from penstock.compat.merlin.dag.declaring import as_selector
from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.merlin.schema.schema import Schema


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
    """The columns of a selector.

    >>> SelectionOp(ColumnSelector(["a"])).output_column_names(ColumnSelector(["a", "b"])).names
    ['a']
    """

    def __init__(self, selector: Any = None) -> None:
        self.selector = as_selector(selector)

    def transform(self, col_selector: Any, df: Any) -> Any:
        return self._get_columns(df, self.selector or as_selector(col_selector))

    def compute_selector(
        self, input_schema: Schema, selector: Any, parents_selector: Any = None, dependencies_selector: Any = None
    ) -> ColumnSelector:
        return super().compute_selector(input_schema, self.selector or selector)

    def compute_output_schema(self, input_schema: Schema, col_selector: Any, prev_output_schema: Any = None) -> Schema:
        return super().compute_output_schema(input_schema, self.selector or col_selector, prev_output_schema)

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
