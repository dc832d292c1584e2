"""`ColumnGroup`, what releases up to 0.6 began a graph with."""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.dag.node import Node, as_node
from penstock.compat.missing import module_getattr

__all__ = ["ColumnGroup"]


def ColumnGroup(columns: Any) -> Node:
    """A node that selects columns.

    >>> ColumnGroup(["a", "b"]).kind
    'source'
    """
    return as_node(columns)


__getattr__ = module_getattr(__name__)
