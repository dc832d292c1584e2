"""A user's operator as one of Penstock's: partitions become pandas frames and back."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import polars as pl

from penstock.compat.merlin.dag.base_operator import BaseOperator, StatOperator
from penstock.compat.merlin.dag.node import as_node
from penstock.compat.merlin.dag.observed import Observed, spelled
from penstock.compat.merlin.dag.selector import ColumnNames, ColumnSelector
from penstock.compat.merlin.dag.unsaved import KEPT, UnsavedOperator, keep, kept, nameable
from penstock.compat.merlin.dtypes import dtype_of
from penstock.compat.merlin.dtypes import to_native as dtype_to_native
from penstock.compat.merlin.io._frames import as_pandas
from penstock.compat.merlin.schema import Schema as MerlinSchema
from penstock.compat.merlin.schema.columns import ColumnSchema as MerlinColumn
from penstock.core.artefact import SavedFolder
from penstock.core.dtypes import to_polars
from penstock.core.errors import DataError, NotFittedError, ParameterError
from penstock.core.extras import require
from penstock.core.params import Instance
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.etl.arguments import plain
from penstock.etl.fitted_operator import FittedOperator
from penstock.etl.graph import Node as NativeNode
from penstock.etl.operator import ROW_NUMBER, Columns, Operator
from penstock.etl.references import reference_to, resolve_reference

# What a user's class may define to say which columns come out, and what they are.
_NAMING = ("column_mapping", "output_column_names", "compute_output_schema")
_DESCRIBING = ("compute_column_schema", "_compute_dtype", "_compute_tags", "_compute_properties", "_compute_shape",
               "output_dtype", "output_tags", "output_properties")  # fmt: skip


class UserOperator(Observed, Operator):
    """Runs `op.transform(col_selector, df)` on each partition.

    >>> class Half(BaseOperator):
    ...     def transform(self, col_selector, df):
    ...         return df / 2
    >>> UserOperator(Half()).changes_rows
    False
    """

    takes_nested_lists = True
    constraints = {"op": Instance(BaseOperator, "an operator")}

    def __init__(self, op: BaseOperator, outputs: Mapping[str, str] | None = None) -> None:
        self.op = op
        self.outputs = None if outputs is None else dict(outputs)

    @property
    def changes_rows(self) -> bool:  # type: ignore[override]
        return bool(self.op.changes_rows)

    def dependencies(self) -> list[Any]:
        return dependencies_of(self.op)

    def observe(self, frame: pl.DataFrame, columns: Columns) -> None:
        if getattr(self.op, "keeps_dtypes", False):  # a built-in one that a user derived from says nothing of it
            self.outputs = {name: spelled(frame.schema[name]) for name in columns.names}
        else:
            super().observe(frame, columns)

    def compute(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        names = _column_names(columns)
        made = self.op.transform(names, as_pandas(_inputs(frame, columns, self.dependencies())))
        if made is None:
            raise DataError(f"{self.op.label}.transform returned None; it must return a pandas DataFrame")
        out = pl.from_pandas(made.reset_index(drop=True)) if hasattr(made, "reset_index") else pl.DataFrame(made)
        if _overrides(self.op, *_NAMING):
            out = out.select(self._declared_names(names, out.columns))
        wanted = self.op.output_dtype
        if wanted is None:
            return out
        inner = dtype_to_native(dtype_of(wanted))
        return out.select(pl.col(n).cast(to_polars(inner, isinstance(d, pl.List))) for n, d in out.schema.items())

    def _declared_names(self, names: ColumnNames, made: list[str]) -> list[str]:
        if _overrides(self.op, "compute_output_schema"):
            return made  # it needs a schema to say so: `output_schema` chooses
        declared: Any = self.op.output_column_names(names)
        return list(getattr(declared, "names", declared))

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        return self.cast(self.compute(frame, columns))

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        if self._looking:
            return inputs.select(columns.names)
        self.left_of(inputs, columns)
        if self.outputs is None:  # no rows to look at
            made = self.compute(pl.DataFrame(schema=inputs.polars_schema), columns)
            self.outputs = {name: spelled(dtype) for name, dtype in made.schema.items()}
        seen = self.seen_schema(inputs)
        assert seen is not None
        declared = self._declared(inputs, columns)
        if declared is None:
            return seen
        if _overrides(self.op, "compute_output_schema"):
            seen = seen.select([name for name in declared.column_names if name in seen])
        schema = Schema(self._column(column, declared.get(column.name)) for column in seen)
        self.outputs = {column.name: spelled(column.polars_dtype) for column in schema}
        return schema

    def _declared(self, inputs: Schema, columns: Columns) -> MerlinSchema | None:
        """What the operator says of its outputs; None where it says nothing of its own."""
        if not _overrides(self.op, *_NAMING, *_DESCRIBING):
            return None
        known = MerlinSchema.from_native(inputs)
        return self.op.compute_output_schema(known, _column_names(columns).selector, None)

    def _column(self, seen: ColumnSchema, declared: MerlinColumn | None) -> ColumnSchema:
        """A column as it was seen, with what is declared of it; a declared dtype counts where the operator chose it."""
        if declared is None:
            return seen
        column = declared.to_native()
        counts = {k: v for k, v in column.properties.items() if k != "value_count" or seen.is_list}
        changes: dict[str, Any] = {"tags": column.tags, "properties": counts, "cardinality": column.cardinality}
        if column.role is not Role.OTHER:
            changes["role"] = column.role
        if _overrides(self.op, "compute_output_schema", "compute_column_schema", "_compute_dtype") and (
            column.dtype != "null"
        ):
            changes["dtype"] = column.dtype
        return seen.with_(**changes)

    def recipe_params(self) -> dict[str, Any]:
        kind = nameable(type(self.op), UnsavedOperator)
        arguments = {} if kind is UnsavedOperator else _arguments(self.op)
        params = {"op": {reference_to(kind): arguments}, "outputs": self.outputs, KEPT: keep(self.op)}
        return {name: value for name, value in params.items() if value is not None}

    @classmethod
    def from_recipe(cls, params: Mapping[str, Any]) -> Operator:
        own = kept(params.get(KEPT))
        if isinstance(own, BaseOperator):
            return wrapped(own, params.get("outputs"))
        [(reference, arguments)] = params["op"].items()
        return cls(resolve_reference(reference, UnsavedOperator)(**arguments), params.get("outputs"))

    def __repr__(self) -> str:
        return self.op.label


class UserStatOperator(UserOperator, FittedOperator):
    """A user's operator that learns: `op.fit(col_selector, ddf)` is given its columns as one Dask frame.

    The rows of these columns are held in memory while it fits.
    """

    def __init__(self, op: StatOperator) -> None:
        super().__init__(op)

    def partial(self, frame: pl.DataFrame, columns: Columns) -> list[pl.DataFrame]:
        return [_inputs(frame, columns, self.dependencies())]

    def merge(self, left: Any, right: Any) -> Any:
        if left == "fitted":
            raise NotFittedError(f"{self!r} cannot be updated with more rows; fit the workflow on all of them")
        return [*left, *right]

    def finish(self, state: list[pl.DataFrame], columns: Columns) -> None:
        dask, frames = require("dask", "dask"), require("dask.dataframe", "dask")
        parts = [as_pandas(frame) for frame in state]
        rows = frames.from_map(lambda i: parts[i], range(len(parts)), meta=parts[0].head(0))
        op: Any = self.op
        found = op.fit(_column_names(columns), rows)
        op.fit_finalize(dask.compute(found, scheduler="synchronous")[0])
        self.state_ = "fitted"

    def load_state(self, folder: SavedFolder, columns: Columns) -> None:
        self.state_ = folder.json("state.json")  # that it learned; what, it knows itself

    def clear(self) -> None:
        super().clear()
        self.op.clear()  # type: ignore[attr-defined]

    def recipe_params(self) -> dict[str, Any]:
        warnings.warn(
            f"{self!r}: what it learned is known to it alone, so the workflow is saved without it; other processes can "
            f"load the rest, but cannot transform rows then. Derive it from penstock's FittedOperator to save it",
            UserWarning,
            stacklevel=2,
        )
        return {"op": {reference_to(UnsavedStatOperator): {}}, "outputs": self.outputs or {}, KEPT: keep(self.op)}

    @classmethod
    def from_recipe(cls, params: Mapping[str, Any]) -> Operator:
        own = kept(params.get(KEPT))
        return wrapped(own if isinstance(own, StatOperator) else UnsavedStatOperator(), params.get("outputs"))


class UnsavedStatOperator(UnsavedOperator, StatOperator):
    """Stands where a user's operator that learns was."""


def wrapped(op: BaseOperator, outputs: Mapping[str, str] | None = None) -> UserOperator:
    """A user's operator, ready for a graph."""
    made = UserStatOperator(op) if isinstance(op, StatOperator) else UserOperator(op)
    made.outputs = None if not outputs else dict(outputs)
    return made


def dependencies_of(op: Any) -> list[Any]:
    """What an operator names besides its inputs, as names and nodes."""
    found = op.dependencies() if inspect.ismethod(op.dependencies) else op.dependencies
    return names_and_nodes(found)


def names_and_nodes(found: Any) -> list[Any]:
    """Names, selectors and nodes, single or listed, as Penstock takes them."""
    if found is None:
        return []
    items = found if isinstance(found, (list, tuple)) else [found]
    out: list[Any] = []
    for item in items:
        if isinstance(item, ColumnSelector) and not item.tags and not item.all:
            out += item.names
        elif isinstance(item, (ColumnSelector, NativeNode)):
            out.append(as_node(item))
        else:
            out.append(item)
    return out


def _inputs(frame: pl.DataFrame, columns: Columns, dependencies: list[Any]) -> pl.DataFrame:
    frame = frame.drop(ROW_NUMBER, strict=False)
    return frame if dependencies else frame.select(columns.names)


def _overrides(op: BaseOperator, *methods: str) -> bool:
    """Whether the user's class defines any of these methods itself."""
    return any(getattr(type(op), name) is not getattr(BaseOperator, name) for name in methods)


def _column_names(columns: Columns) -> ColumnNames:
    return ColumnNames([group[0] if len(group) == 1 else group for group in columns.groups])


def _arguments(op: Any) -> dict[str, Any]:
    """The constructor's arguments, where the operator keeps them under the same names."""
    names = [n for n, p in inspect.signature(type(op)).parameters.items() if p.kind is not p.VAR_KEYWORD]
    for name in names:
        if not hasattr(op, name):
            raise ParameterError(
                f"{type(op).__name__} cannot be saved: it does not keep its argument {name!r} as self.{name}"
            )
    return {name: plain(getattr(op, name), f"{type(op).__name__}.{name}") for name in names}
