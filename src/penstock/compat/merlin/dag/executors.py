"""`merlin.dag.executors`: graphs run on a frame or a data set at once, here or on Dask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.compat.merlin.core._clients import chosen_client
from penstock.compat.merlin.dag.binding import bind
from penstock.compat.merlin.dag.graph import Graph
from penstock.compat.merlin.dag.node import as_node, place_nodes, postorder_iter_nodes
from penstock.compat.merlin.io.dataset import Dataset
from penstock.core.errors import NotFittedError
from penstock.core.extras import require
from penstock.data.frames import to_polars
from penstock.etl import workflow as native


class LocalExecutor:
    """Runs graphs in this process: frames in, frames out.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import ops
    >>> LocalExecutor().transform(pd.DataFrame({"x": [0.0]}), ["x"] >> ops.LogOp())["x"].tolist()
    [0.0]
    """

    def __init__(self, device: Any = None) -> None:
        self.device = device

    def transform(
        self,
        transformable: Any,
        graph: Any,
        output_dtypes: Any = None,
        additional_columns: Sequence[str] | None = None,
        capture_dtypes: bool = False,
        strict: bool = False,
        output_format: Any = None,
    ) -> Any:
        """What a graph (or node, or nodes) makes of rows; `additional_columns` of the rows are put beside it."""
        data = Dataset(_frame(transformable))
        done = _run(graph, data, None).compute()
        for name in additional_columns or ():
            done[name] = _column(transformable, name)
        return _like(done, transformable)

    def fit(self, transformable: Any, graph: Any, strict: bool = False) -> Any:
        """Let the graph's operators learn, then transform."""
        return _like(_run(graph, Dataset(_frame(transformable)), None, fit=True).compute(), transformable)


class DaskExecutor:
    """Runs graphs on Dask frames and data sets, on a client's cluster where there is one.

    >>> DaskExecutor().client is None
    True
    """

    def __init__(self, client: Any = None) -> None:
        self.client = client

    def transform(
        self,
        ddf: Any,
        graph: Any,
        output_dtypes: Any = None,
        additional_columns: Sequence[str] | None = None,
        capture_dtypes: bool = False,
        strict: bool = False,
    ) -> Any:
        """The Dask frame of what a graph makes of rows."""
        data = ddf if isinstance(ddf, Dataset) else Dataset(ddf)
        output = _output(graph)
        if additional_columns:
            output = output + list(additional_columns)
        return _run(output, data, self.client or chosen_client()).to_ddf()

    def fit(self, dataset: Any, graph: Any, refit: bool = True) -> None:
        """Let the graph's operators learn; without `refit`, only where one of them has not yet."""
        if not refit and not _unfitted(_output(graph)):
            return
        _run(graph, dataset if isinstance(dataset, Dataset) else Dataset(dataset), self.client, fit=True)


def _output(graph: Any) -> Any:
    return graph.output_node if isinstance(graph, Graph) else as_node(graph)


def _run(graph: Any, data: Dataset, client: Any, fit: bool = False) -> Dataset:
    workflow = native.Workflow(_output(graph), engine=client)
    if not fit and (unfitted := _unfitted(workflow.output)):
        raise NotFittedError(
            f"{', '.join(unfitted)} learned nothing yet: call fit before attempting to use them to transform data"
        )
    bind(workflow.output, data.native.schema, data.native)
    if fit:
        workflow.fit(data.native)
    else:
        workflow.fit_schema(data.native.schema)
    place_nodes(workflow._fitted_plan())
    return Dataset(workflow.transform(data.native))


def _unfitted(output: Any) -> list[str]:
    """The operators that must learn and have not."""
    learning = (node.fitted_op for node in postorder_iter_nodes(output))
    return [repr(op) for op in learning if op is not None and not op.is_fitted]


def _frame(transformable: Any) -> Any:
    """Rows as a frame: a table of arrays is one with a column for each."""
    if hasattr(transformable, "to_df"):
        return transformable.to_df()
    return to_polars(transformable) if isinstance(transformable, dict) else transformable


def _column(transformable: Any, name: str) -> Any:
    column = _frame(transformable)[name]
    return column.to_numpy() if hasattr(column, "to_numpy") else column


def _like(frame: Any, original: Any) -> Any:
    if hasattr(original, "to_df"):
        return type(original).from_df(frame)
    pandas = require("pandas", "pandas")
    if isinstance(original, dict):
        return {name: frame[name].to_numpy() for name in frame.columns}
    return pandas.DataFrame(frame)


# `merlin.dag.runtime`: a graph run on rows, by an executor.


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
