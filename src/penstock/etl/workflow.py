"""Workflow: a graph of operators that is fitted on a data set and transforms data sets, frames and single rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from penstock.core import artefact
from penstock.core.artefact import SavedFolder, replacing
from penstock.core.errors import GraphError, ParameterError, suggest
from penstock.core.keys import KeyLike, verifying
from penstock.core.runtime.forks import require_polars
from penstock.core.schema import Schema
from penstock.core.yaml_files import write_yaml
from penstock.engine.base import EngineLike
from penstock.etl import recipe
from penstock.etl.graph import Node, ancestors, without_inputs
from penstock.etl.plan import Plan
from penstock.etl.saved_workflow import ARTEFACT, FORMAT_VERSION, read_graph, read_states, write_workflow
from penstock.etl.transforming import TransformingGraph
from penstock.etl.trust import loading, saving


class Workflow(TransformingGraph):
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
