"""Penstock's operators in graphs of NVTabular's nodes."""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.dag.node import Node, as_node
from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.core.errors import ParameterError
from penstock.etl.graph import Node as NativeNode


class Placed:
    """Mixin: `columns >> op` gives a node that knows selectors and pandas functions."""

    def __rrshift__(self, left: Any) -> Node:
        return as_node(left) >> self


def names_of(columns: Any, what: str) -> Any:
    """Column names from names, a selector, or a node that only selects; None stays None."""
    if isinstance(columns, ColumnSelector) and not columns.tags and not columns.all:
        return columns.names
    if isinstance(columns, NativeNode) and columns.kind == "source" and columns.selector is not None:
        return [name for group in columns.selector.groups for name in group]
    if isinstance(columns, (NativeNode, ColumnSelector)):
        raise ParameterError(
            f"{what} takes names of columns of the data; put computed columns through the operator with the others, or "
            f"compute them in a workflow before this one"
        )
    if isinstance(columns, (list, tuple)):
        return [name for item in columns for name in _listed(names_of(item, what))]
    return columns


def _listed(names: Any) -> list[str]:
    return [names] if isinstance(names, str) else list(names)
