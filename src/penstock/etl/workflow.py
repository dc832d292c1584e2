"""Workflow: a graph of operators that is fitted on a data set and transforms data sets, frames and single rows."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from penstock.core import artefact
from penstock.core.artefact import SavedFolder, replacing
from penstock.core.errors import ColumnNotFoundError, GraphError, NotFittedError, ParameterError, suggest
from penstock.core.keys import KeyLike, verifying
from penstock.core.runtime.forks import require_polars
from penstock.core.schema import Schema
from penstock.core.yaml_files import write_yaml
from penstock.data.bad_lines import BadLines
from penstock.data.dataset import Dataset, as_dataset
from penstock.data.frames import like, to_polars
from penstock.data.sources import DataLike, Frame, are_paths
from penstock.engine import resolve
from penstock.engine.base import EngineLike
from penstock.etl import execute, recipe
from penstock.etl.bulk import BulkPlan
from penstock.etl.graph import Node, ancestors, as_node, without_inputs
from penstock.etl.inverse import inverted
from penstock.etl.operator import Cells
from penstock.etl.plan import Plan
from penstock.etl.row_plan import RowPlan
from penstock.etl.saved_workflow import ARTEFACT, FORMAT_VERSION, read_graph, read_states, write_workflow
from penstock.etl.trust import loading, saving


class Workflow:
    """Fits and runs a graph of operators.

    Args:
        output: the graph's last node (or a list of columns, nodes and selectors to join).
        engine: where passes over the data run: `"local"`, a Dask client or address, `"ray"` (see `penstock.engine`).

    >>> from penstock import ops
    >>> features = ["user"] >> ops.Categorify()
    >>> workflow = Workflow(features + (["price"] >> ops.FillMissing(0)))
    >>> frame = pl.DataFrame({"user": ["b", "a", "b", None], "price": [1.0, None, 3.0, 4.0]})
    >>> workflow.fit_transform(frame).to_dict(as_series=False)
    {'user': [3, 4, 3, 1], 'price': [1.0, 0.0, 3.0, 4.0]}
    >>> workflow.transform_row({"user": "a", "price": None})
    {'user': 4, 'price': 0.0}
    """

    def __init__(self, output: Any, *, engine: EngineLike = None) -> None:
        self.output = as_node(output)
        self.engine = engine
        self.bad_lines = BadLines()
        self.input: Mapping[str, Any] | None = None  # how raw files are read, where a recipe said so
        self._plan: Plan | None = None
        self._row_plan: RowPlan | None = None
        self._bulk_plan: BulkPlan | None = None

    # Fitting.

    def fit(self, data: DataLike, *, progress: bool | None = None) -> Workflow:
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

    def update(self, data: DataLike, *, progress: bool | None = None) -> Workflow:
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

    def _fit(self, data: DataLike, update: bool, progress: bool | None) -> Workflow:
        require_polars("Workflow.fit")
        dataset = as_dataset(data)
        schema = self._plan.input_schema if update and self._plan is not None else dataset.schema
        plan = Plan(self.output, schema)
        self.bad_lines = execute.fit(plan, dataset, resolve(self.engine), update, progress)
        self.bad_lines.warn()
        self._plan, self._row_plan, self._bulk_plan = plan, None, None
        return self

    def fit_schema(self, schema: Schema) -> Workflow:
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

    # Transforming.

    def transform(self, data: DataLike) -> Any:
        """Transform a Dataset or files (lazily), or a frame: polars, pandas or Arrow in, the same kind out.

        Args:
            data: raw rows.

        Returns:
            A Dataset for a Dataset or paths, else a frame of the kind that was given.

        Raises:
            NotFittedError: the workflow has not learned yet.
            ColumnNotFoundError: a raw column is missing.
        """
        return self._transformed(data, training=False)

    def fit_transform(self, data: DataLike, *, progress: bool | None = None) -> Any:
        """Fit, then transform the same rows; target encodings of these rows are out of fold.

        Args:
            data: raw rows.
            progress: draw a bar; None draws it on a terminal.

        Returns:
            A Dataset for a Dataset or paths, else a frame of the kind that was given.
        """
        self.fit(data, progress=progress)
        return self._transformed(data, training=True)

    def _transformed(self, data: DataLike, training: bool) -> Any:
        if self._plan is None and not self.learns:
            self.fit_schema(as_dataset(data).schema)
        plan = self._fitted_plan()
        if are_paths(data):
            data = Dataset(data)
        if isinstance(data, Dataset):
            return execute.transform(plan, data, resolve(self.engine), training, self.output_schema)
        require_polars("Workflow.transform of a frame")
        frame = to_polars(data)
        for name in plan.inputs:
            if name not in frame.columns:
                raise ColumnNotFoundError(name, frame.columns, "the data given to the workflow")
        dataset = Dataset.from_partitions(execute.single_partition(frame), Schema.from_polars(frame.schema))
        done = execute.transform(plan, dataset, resolve("local:1"), training, self.output_schema).to_polars()
        return like(done, data)

    def transform_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """One row, as a dict, at the lowest latency: what an online service calls.

        Args:
            row: values by raw column; a column that is left out is missing.

        Returns:
            Values by output column.

        Raises:
            NotFittedError: the workflow has not learned yet.
        """
        if self._row_plan is None:
            self._row_plan = RowPlan(self._fitted_plan())
        return self._row_plan(row)

    def transform_rows(self, rows: Sequence[Mapping[str, Any]]) -> Cells:
        """A few rows, as dicts, at once: the output columns, numbers as `(values, valid)`, anything else as lists.

        What a service calls with the rows that came together. From four rows on it takes less time than
        `transform_row` on each, up to some thousands less than `transform` on a frame.

        Args:
            rows: values by raw column, one dict a row.

        Returns:
            The output columns.

        >>> frame = pl.DataFrame({"price": [1.0, None, 3.0]})
        >>> from penstock import ops
        >>> workflow = Workflow(["price"] >> ops.FillMissing(7)).fit(frame)
        >>> workflow.transform_rows([{"price": None}, {"price": 2.5}])["price"].values
        array([7. , 2.5])
        """
        if not rows:
            return {name: [] for name in self._fitted_plan().schemas[-1].names}
        if self._bulk_plan is None:
            self._bulk_plan = BulkPlan(self._fitted_plan())
        return self._bulk_plan(rows)

    def inverse_transform(self, frame: Frame, columns: Sequence[str] | None = None) -> Any:
        """Values from codes and scaled numbers: undoes Categorify, Normalize, NormalizeMinMax and LogOp.

        Each column goes back the way it came, through `Rename` too, until an operator that made something else of
        it. Operators that lose information (FillMissing, Clip) are passed over. `columns` limits it to some columns;
        columns that are no outputs stay as they are.

        Args:
            frame: output columns, and any others.
            columns: which to turn back; all by default.

        Returns:
            A frame of the kind that was given.

        Raises:
            ParameterError: a column is not in the frame, or no output of the workflow.
        """
        plan = self._fitted_plan()
        original = frame
        frame = to_polars(frame)
        outputs = plan.schemas[plan.output]
        for name in columns or ():
            for known, what in ((frame.columns, "in the frame"), (outputs.names, "an output of the workflow")):
                if name not in known:
                    raise ParameterError(f"column {name!r} is not {what}{suggest(name, known, 'columns')}")
        wanted = [n for n in (frame.columns if columns is None else columns) if n in outputs]
        return like(frame.with_columns(inverted(plan, frame[name]) for name in wanted), original)

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

    # Smaller workflows.

    def remove_inputs(self, names: Sequence[str]) -> Workflow:
        """A workflow without some raw columns and all that depends on them: drop the label to serve.

        Args:
            names: raw columns.

        Returns:
            A new workflow that shares what was learned.

        Raises:
            ParameterError: a name is no input.
            GraphError: nothing is left.
        """
        schema = self.input_schema
        for name in names:
            if name not in schema:
                raise ParameterError(f"{name!r} is no input{suggest(name, schema.names, 'inputs')}")
        output = without_inputs(self.output, schema, names)
        if output is None:
            raise GraphError(f"without {sorted(set(names))} nothing of the workflow is left")
        return self._derived(output, schema.without(set(names)))

    def get_subworkflow(self, name: str) -> Workflow:
        """The workflow that ends at a named node.

        Args:
            name: given by `node.named(name)`.

        Returns:
            A new workflow that shares what was learned.

        Raises:
            ParameterError: no node has that name.
        """
        named = {n.name: n for n in ancestors([self.output]) if n.name}
        if name not in named:
            raise ParameterError(f"no node is named {name!r}{suggest(name, named, 'names')}")
        return self._derived(named[name], self._plan.input_schema if self._plan else None)

    def _derived(self, output: Node, schema: Schema | None) -> Workflow:
        workflow = Workflow(output, engine=self.engine)
        if schema is not None:
            workflow._plan = Plan(output, schema)
        return workflow

    # As data.

    def to_recipe(self, attached: dict[str, pl.DataFrame] | None = None) -> dict[str, Any]:
        """The unfitted graph as plain data, with the recipe's `input` section where it came from one.

        Tables that operators hold in memory are refused, unless there is a dict to put them in.

        Args:
            attached: takes the tables that operators hold in memory, by file name.

        Returns:
            Plain data for JSON and YAML.

        Raises:
            ParameterError: an argument is no plain data.
        """
        found = recipe.to_recipe(self.output, attached)
        return found if self.input is None else {"recipe": found["recipe"], "input": dict(self.input), **found}

    def to_yaml(self, path: str | Path | None = None) -> str:
        """The recipe as YAML, also written to `path`.

        Args:
            path: a file to write as well.

        Returns:
            The text.
        """
        text = write_yaml(self.to_recipe())
        if path is not None:
            with replacing(path) as partial:
                partial.write_text(text)
        return text

    @classmethod
    def from_recipe(cls, data: Mapping[str, Any] | str | Path, *, engine: EngineLike = None) -> Workflow:
        """An unfitted workflow from plain data or a YAML file.

        Args:
            data: a recipe, or the path of a YAML file.
            engine: where passes over the data run.

        Returns:
            The workflow, not fitted.

        Raises:
            ParameterError: the recipe names what there is not.
        """
        loaded = recipe.read_recipe(data) if isinstance(data, (str, Path)) else data
        workflow = cls(recipe.from_recipe(loaded), engine=engine)
        workflow.input = loaded.get("input")
        return workflow

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write the graph, schemas and what was learned as JSON and parquet, with checksums.

        Args:
            path: a folder.
            overwrite: replace what is there.

        Raises:
            NotFittedError: the workflow has not learned yet.
            OutputExistsError: the folder is there and overwrite was not asked for.
            ParameterError: something cannot be saved, a lambda for instance.
        """
        require_polars("Workflow.save")
        plan = self._fitted_plan()
        tables: dict[str, pl.DataFrame] = {}
        with saving():
            graph = self.to_recipe(tables)  # refuses what cannot be saved before anything is written
        order = recipe.node_names(self.output)
        with artefact.writing(path, ARTEFACT, FORMAT_VERSION, overwrite) as folder:
            write_workflow(folder, plan, graph, tables, order)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        engine: EngineLike = None,
        trust: Sequence[str] = (),
        verify: KeyLike | None = None,
    ) -> Workflow:
        """A fitted workflow from `save`; loading it runs nothing that came with it.

        Args:
            path: the folder.
            engine: where passes over the data run.
            trust: modules whose functions and classes the workflow may name (`["my_package.features"]`), which are
                imported for it. Never the standard library, nor what lies in the working folder.
            verify: the file of a key; what it has not signed (`penstock sign`) is refused.

        Returns:
            The workflow.

        Raises:
            ArtefactError: the folder is altered, truncated, foreign or not signed, or names code that is not trusted.
        """
        with verifying(verify), loading(trust):
            return artefact.read(path, ARTEFACT, FORMAT_VERSION, lambda folder: cls._loaded(folder, engine))

    @classmethod
    def _loaded(cls, folder: SavedFolder, engine: EngineLike) -> Workflow:
        graph, schema = read_graph(folder)
        workflow = cls.from_recipe(graph, engine=engine)
        plan = Plan(workflow.output, schema)
        read_states(folder, plan, recipe.node_names(workflow.output))
        workflow._plan = plan
        return workflow

    def __repr__(self) -> str:
        state = "fitted" if self.is_fitted else "not fitted"
        return f"Workflow({len(ancestors([self.output]))} nodes, {state})"
