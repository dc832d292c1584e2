"""What a graph of operators learns from rows, and the schemas that it is bound to."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any, Self

from penstock.core.errors import NotFittedError
from penstock.core.runtime.forks import require_polars
from penstock.core.schema import Schema
from penstock.data.bad_lines import BadLines
from penstock.data.dataset import as_dataset
from penstock.data.naming import naming
from penstock.data.sources import DataLike
from penstock.engine import resolve
from penstock.engine.base import EngineLike
from penstock.etl import execute
from penstock.etl.bulk import BulkPlan
from penstock.etl.graph import ancestors, as_node
from penstock.etl.plan import Plan
from penstock.etl.row_plan import RowPlan


class FittableGraph:
    """A graph of operators that learns from a data set: the first part of `Workflow`.

    Args:
        output: the graph's last node (or a list of columns, nodes and selectors to join).
        engine: where passes over the data run.
    """

    def __init__(self, output: Any, *, engine: EngineLike = None) -> None:
        self.output = as_node(output)
        self.engine = engine
        self.bad_lines = BadLines()
        self.input: Mapping[str, Any] | None = None  # how raw files are read, where a recipe said so
        self._plan: Plan | None = None
        self._row_plan: RowPlan | None = None
        self._bulk_plan: BulkPlan | None = None

    def fit(self, data: DataLike, *, progress: bool | None = None) -> Self:
        """Learn from `data` (a Dataset, or anything a Dataset takes), forgetting what was learned before.

        Args:
            data: rows to learn from.
            progress: draw a bar; None draws it on a terminal.

        Returns:
            The workflow itself.
        """
        with self._unchanged_on_failure():
            self.clear_stats()
            return self._fit(data, False, progress)

    def update(self, data: DataLike, *, progress: bool | None = None) -> Self:
        """Learn from more data: statistics as if fitted on all of it; codes already given stay, new ones are added.

        An operator that follows another fitted one (`FillMedian() >> Normalize()`) keeps what it learned of earlier
        data as that was transformed at the time.

        Args:
            data: more rows.
            progress: draw a bar; None draws it on a terminal.

        Returns:
            The workflow itself; it is as it was when this fails.
        """
        if self._plan is None:
            return self.fit(data, progress=progress)
        with self._unchanged_on_failure(copy_states=True):
            return self._fit(data, True, progress)

    @contextlib.contextmanager
    def _unchanged_on_failure(self, copy_states: bool = False) -> Iterator[None]:
        """All or nothing: what was learned before stays whole when fitting fails midway.

        Updating adds to states in place, so those are copied first; fitting begins with new ones.
        """
        fitted = [node.fitted_op for node in ancestors([self.output]) if node.fitted_op is not None]
        before = [(op, dict(op.__dict__)) for op in fitted]
        if copy_states:
            for op, attributes in before:
                attributes["state_"] = copy.deepcopy(op.state_)
        plans = self._plan, self._row_plan, self._bulk_plan
        try:
            yield
        except BaseException:
            for op, attributes in before:
                op.__dict__.clear()
                op.__dict__.update(attributes)
            self._plan, self._row_plan, self._bulk_plan = plans
            if self._plan is not None:
                self._plan.refresh()
            raise

    def _fit(self, data: DataLike, update: bool, progress: bool | None) -> Self:
        require_polars("Workflow.fit")
        dataset = as_dataset(data)
        schema = self._plan.input_schema if update and self._plan is not None else dataset.schema
        with naming(dataset.place):
            plan = Plan(self.output, schema)
            self.bad_lines = execute.fit(plan, dataset, resolve(self.engine), update, progress)
        self.bad_lines.warn()
        self._plan, self._row_plan, self._bulk_plan = plan, None, None
        return self

    def fit_schema(self, schema: Schema) -> Self:
        """Bind the graph to an input schema without reading data: enough for graphs that learn nothing.

        Args:
            schema: of the raw rows.

        Returns:
            The workflow itself.
        """
        self._plan, self._row_plan, self._bulk_plan = Plan(self.output, schema), None, None
        return self

    def clear_stats(self) -> None:
        """Forget everything that was learned."""
        for node in ancestors([self.output]):
            if node.fitted_op is not None:
                node.fitted_op.clear()
        self._plan = self._row_plan = self._bulk_plan = None

    @property
    def has_schema(self) -> bool:
        """Whether the graph is bound to an input schema: by fitting, loading or `fit_schema`."""
        return self._plan is not None

    @property
    def is_fitted(self) -> bool:
        """Whether it can transform: it has a schema, and every operator that learns has learned."""
        return self.has_schema and all(
            node.fitted_op.is_fitted for node in ancestors([self.output]) if node.fitted_op is not None
        )

    # Schemas.

    @property
    def learns(self) -> bool:
        """Whether it has an operator that learns from rows."""
        return any(n.fitted_op is not None for n in ancestors([self.output]))

    def _fitted_plan(self) -> Plan:
        if self._plan is None:
            raise NotFittedError("the workflow is not fitted; call fit(data) first")
        return self._plan

    @property
    def input_schema(self) -> Schema:
        return self._fitted_plan().input_schema

    @property
    def output_schema(self) -> Schema:
        plan = self._fitted_plan()
        return plan.schemas[plan.output]

    @property
    def input_dtypes(self) -> dict[str, str]:
        return {c.name: c.dtype for c in self.input_schema}

    @property
    def output_dtypes(self) -> dict[str, str]:
        return {c.name: c.dtype for c in self.output_schema}
