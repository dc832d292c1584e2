"""`nvtabular.workflow`: fitting, transforming, saving; also what NVTabular saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from penstock.compat import settings
from penstock.compat.merlin.core._clients import chosen_client
from penstock.compat.merlin.dag.binding import bind
from penstock.compat.merlin.dag.graph import Graph, validating
from penstock.compat.merlin.dag.node import Node, as_node, place_nodes, promoted
from penstock.compat.merlin.dag.observed import forget
from penstock.compat.merlin.io._frames import as_pandas
from penstock.compat.merlin.io.dataset import Dataset
from penstock.compat.merlin.io.opening import opened
from penstock.compat.merlin.schema import Schema, as_native
from penstock.compat.missing import CompatError, CompatFileNotFoundError
from penstock.compat.nvtabular.ops import as_old
from penstock.compat.nvtabular.ops.categorify import Categorify
from penstock.compat.nvtabular.workflow import saved_json, saving
from penstock.core.artefact import MANIFEST
from penstock.core.errors import ArtefactError, ParameterError, suggest
from penstock.core.schema import Schema as NativeSchema
from penstock.data import dataset as native_data
from penstock.data.frames import to_polars
from penstock.etl import workflow as native
from penstock.etl.graph import ancestors
from penstock.etl.plan import Plan
from penstock.etl.trust import loading

# NVTabular's `Workflow`: Penstock's, with NVTabular's data sets, schemas and saved form.


class Workflow:
    """Fits and runs a graph of operators; `client` is a Dask client that the work is spread over.

    Data sets in, data sets out; pandas in, pandas out.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Dataset, ops
    >>> data = Dataset(pd.DataFrame({"user": ["b", "a", "b"], "price": [1.0, None, 3.0]}))
    >>> workflow = Workflow((["user"] >> ops.Categorify()) + (["price"] >> ops.FillMissing()))
    >>> workflow.fit_transform(data).to_ddf().compute().to_dict("list")
    {'user': [3, 4, 3], 'price': [1.0, 0.0, 3.0]}
    """

    _declared: Graph | None = None  # schemas without dtypes, which is all that is known then

    def __init__(self, output_node: Any = None, client: Any = None, **older: Any) -> None:
        if older or output_node is None:
            raise CompatError(
                "Workflow takes a graph, as NVTabular did from 0.4 on: Workflow(columns >> ops.Categorify()); "
                "workflows of lists of names (cat_names, cont_names, label_name, add_feature, finalize) are not here"
            )
        self._client = client
        self.native = native.Workflow(as_node(output_node), engine=client)

    @classmethod
    def _of(cls, workflow: native.Workflow) -> Workflow:
        made = cls.__new__(cls)
        made.native, made._client = workflow, workflow.engine
        for node in ancestors([workflow.output]):
            promoted(node)
            as_old(node.operator)
        if workflow.has_schema:
            workflow._fitted_plan().refresh()
            place_nodes(workflow._fitted_plan())
        return made

    @property
    def client(self) -> Any:
        """The Dask client that the work is spread over: the one given, else what `set_dask_client` chose."""
        return self._client if self._client is not None else chosen_client()

    @client.setter
    def client(self, client: Any) -> None:
        self._client = client

    def _on_client(self) -> native.Workflow:
        self.native.engine = self.client
        return self.native

    @property
    def output_node(self) -> Node:
        return promoted(self.native.output)

    @property
    def graph(self) -> Graph:
        if self._declared is not None:
            return self._declared
        graph = Graph(self.output_node)
        graph._plan = self.native._plan
        return graph

    # Fitting and transforming.

    def fit(self, dataset: Any) -> Workflow:
        """Learn from a data set."""
        data = _native(dataset)
        forget(ancestors([self.native.output]))
        self._validate(data.schema)
        bind(self.native.output, data.schema, data)
        self._on_client().fit(data)
        self._bound()
        self._write_categories()
        return self

    def _validate(self, schema: NativeSchema) -> None:
        """Let users' operators refuse their schemas before a row is read."""
        if nodes := validating(self.native.output):
            bind(self.native.output, schema)
            place_nodes(Plan(self.native.output, schema))
            for node in nodes:
                node.validate_schemas(Schema.from_native(schema))

    def _bound(self) -> None:
        self._declared = None
        place_nodes(self.native._fitted_plan())

    def _write_categories(self) -> None:
        """Vocabularies as files, where NVTabular left them: `./categories` unless an operator says another place."""
        for node in ancestors([self.native.output]):
            if isinstance(node.operator, Categorify):
                node.operator.write_where_old_code_reads()

    def transform(self, dataset: Any) -> Any:
        """A data set for a data set and a Dask frame for a Dask frame (lazily), a frame for a frame."""
        if not self.native.has_schema:
            data = _native(dataset)
            if self._has_learned():
                bind(self.native.output, data.schema, data)
                self.native.fit_schema(data.schema)
                self._bound()
        if isinstance(dataset, Dataset):
            return dataset._like(self._on_client().transform(dataset.native))
        if hasattr(dataset, "to_delayed"):
            return self.transform(Dataset(dataset)).to_ddf()
        return _as_given(self.native.transform, dataset)

    def fit_transform(self, dataset: Any) -> Any:
        """Fit, then transform the same rows."""
        if hasattr(dataset, "to_delayed"):
            return self.fit_transform(Dataset(dataset)).to_ddf()
        self.fit(dataset)
        if isinstance(dataset, Dataset):
            return dataset._like(self._on_client()._transformed(dataset.native, training=True))
        return _as_given(partial(self.native._transformed, training=True), dataset)

    def _has_learned(self) -> bool:
        """Whether nothing is left to learn: no operator learns, or each has learned in another workflow."""
        return all(n.fitted_op.is_fitted for n in ancestors([self.native.output]) if n.fitted_op is not None)

    def fit_schema(self, input_schema: Schema) -> Workflow:
        """Work out the schemas without data; dtypes that are not known may be left out of the schema."""
        graph = Graph(self.output_node).construct_schema(input_schema)
        if graph._plan is None:
            self._declared = graph
        else:
            self.native.fit_schema(as_native(input_schema))  # type: ignore[arg-type]
            self._bound()
        return self

    def clear_stats(self) -> None:
        """Forget what was learned."""
        self.native.clear_stats()

    # Schemas.

    @property
    def input_schema(self) -> Schema | None:
        return self.graph.input_schema

    @property
    def output_schema(self) -> Schema | None:
        return self.graph.output_schema

    @property
    def input_dtypes(self) -> dict[str, Any] | None:
        return _dtypes(self.input_schema)

    @property
    def output_dtypes(self) -> dict[str, Any] | None:
        return _dtypes(self.output_schema)

    # Smaller workflows.

    def remove_inputs(self, input_cols: Any) -> Workflow:
        """Take raw columns, and all that depends on them, out of this workflow."""
        if self._declared is not None:
            return self._remove_declared([input_cols] if isinstance(input_cols, str) else list(input_cols))
        self.native = self.native.remove_inputs([input_cols] if isinstance(input_cols, str) else list(input_cols))
        place_nodes(self.native._fitted_plan())
        return self

    def _remove_declared(self, names: list[str]) -> Workflow:
        """The same where dtypes are not known: which columns depend on which does not hang on them."""
        known = self.input_schema
        assert known is not None
        typed = Schema([c.with_dtype("int64") if c.dtype.name == "unknown" else c for c in known])
        bind(self.native.output, typed.to_native())
        self.native = self.native.fit_schema(typed.to_native()).remove_inputs(names)
        self.native._plan = None
        return self.fit_schema(known.excluding_by_name(names))

    def get_subworkflow(self, subgraph_name: str) -> Workflow:
        """The workflow that ends at a named part of the graph."""
        return Workflow._of(self.native.get_subworkflow(subgraph_name))

    def get_subgraph(self, subgraph_name: str) -> Workflow:
        """The same by its later name."""
        if subgraph_name not in self.graph.subgraphs:
            known = suggest(subgraph_name, self.graph.subgraphs, "subgraphs")
            raise ParameterError(f"No subgraph named {subgraph_name!r} in the workflow{known}")
        return self.get_subworkflow(subgraph_name)

    @property
    def subworkflows(self) -> list[str]:
        return list(self.graph.subgraphs)

    # Saving.

    def save(self, path: Any, modules_byvalue: Any = None) -> None:
        """Write the workflow to a folder, over one that was saved there before; JSON and parquet, no pickle.

        What else lies in the folder stays, data that was written there for instance.

        One that has not seen data is saved as well, and is to be fitted when it was loaded. `modules_byvalue` is taken
        and means nothing: functions are saved by name.
        """
        saving.save(self.native, path)

    @classmethod
    def load(cls, path: Any, client: Any = None, trust: Sequence[str] = ()) -> Workflow:
        """A workflow that was saved here, or by a release of NVTabular that saves JSON.

        `trust` names modules whose functions it may name; see `penstock.Workflow.load`.
        """
        folder = Path(path)
        if not folder.exists():
            raise CompatFileNotFoundError(f"{folder} does not exist")
        if (folder / saving.UNFITTED).is_file():
            with loading(trust):
                return cls._of(saving.load_unfitted(folder, client))
        if (folder / MANIFEST).is_file():
            return cls._of(native.Workflow.load(folder, engine=client, trust=trust))
        if (folder / saved_json.GRAPH).is_file():
            with loading(trust):
                return cls._of(saved_json.load(folder, client))
        if (folder / "workflow.pkl").is_file():
            raise ArtefactError(
                f"{folder / 'workflow.pkl'} is a pickle, which runs code when it is loaded, so it never is; fit the "
                f"workflow again here, or save it with a release of NVTabular that writes {saved_json.GRAPH}"
            )
        raise ArtefactError(f"{folder} holds no saved workflow (neither {MANIFEST} nor {saved_json.GRAPH})")

    def __repr__(self) -> str:
        return repr(self.native)


def _dtypes(schema: Schema | None) -> dict[str, Any] | None:
    """By column: Merlin's dtypes in the last release, NumPy's before."""
    if schema is None:
        return None
    merlins = settings.nvtabular() == "latest"
    return {column.name: column.dtype if merlins else column.dtype.to_numpy for column in schema}


def _as_given(transform: Callable[[Any], Any], frame: Any) -> Any:
    """What a transform makes of a frame; for pandas', under the index of its rows where these are still there."""
    if type(frame).__module__.split(".")[0] != "pandas":
        return transform(frame)
    made = as_pandas(transform(to_polars(frame)))
    if len(made) == len(frame):
        made.index = frame.index
    return made


def _native(dataset: Any) -> native_data.Dataset:
    if isinstance(dataset, Dataset):
        return dataset.native
    return opened(dataset, None, None, None, None, None, None, {})
