"""Penstock's operators in graphs of NVTabular's nodes; those that take the same arguments are made here from a list."""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.dag.node import Node, as_node
from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.core.errors import ParameterError
from penstock.etl import ops as native
from penstock.etl.graph import Node as NativeNode
from penstock.etl.operator import Operator

SAME_ARGUMENTS = (
    "Bucketize", "Clip", "DataStats", "DropLowCardinality", "Dropna", "FillMedian", "FillMissing", "Groupby",
    "HashBucket", "ListSlice", "LogOp", "ReduceDtypeSize", "Rename", "TagAsItemFeatures", "TagAsItemID",
    "TagAsUserFeatures", "TagAsUserID", "ValueCount",
)  # fmt: skip


class Placed:
    """Mixin: `columns >> op` gives a node that knows selectors and pandas functions; recipes name the native class."""

    def __rrshift__(self, left: Any) -> Node:
        return as_node(left) >> self

    @classmethod
    def recipe_class(cls) -> type[Operator]:
        return next(own for own in cls.__mro__ if own.__module__.startswith(native.__name__))


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


def placed(name: str) -> type[Operator]:
    """A native operator that stands in graphs of NVTabular's nodes.

    >>> placed("Clip")(min_value=0)
    Clip(min_value=0)
    """
    own = getattr(native, name)
    says = (own.__doc__ or name).split(">>>")[0].rstrip()
    return type(name, (Placed, own), {"__module__": __name__, "__doc__": says})


globals().update({name: placed(name) for name in SAME_ARGUMENTS})
