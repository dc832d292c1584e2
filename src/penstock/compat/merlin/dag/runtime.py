"""`merlin.dag.runtime`: a graph run on rows, by an executor."""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.dag.executors import LocalExecutor

__all__ = ["Runtime"]


class Runtime:
    """Runs graphs by an executor, the local one by default.

    >>> Runtime().executor.__class__.__name__
    'LocalExecutor'
    """

    def __init__(self, executor: Any = None) -> None:
        self.executor = executor or LocalExecutor()
        self.op_table: dict[Any, Any] = {}

    def transform(self, graph: Any, transformable: Any, convert: bool = True) -> Any:
        """What a graph makes of rows."""
        return self.executor.transform(transformable, graph)

    def convert(self, graph: Any) -> Any:
        """The graph with the operators that are run in the place of others; there are none here."""
        return graph
