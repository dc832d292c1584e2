"""A user's operator as one of Penstock's: partitions become pandas frames and back."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import polars as pl

from penstock.compat.merlin.dag.base_operator import BaseOperator, StatOperator
from penstock.compat.merlin.dag.node import as_node
from penstock.compat.merlin.dag.observed import Observed, spelled
from penstock.compat.merlin.dag.selector import ColumnNames, ColumnSelector
from penstock.compat.merlin.dag.unsaved import UnsavedOperator, nameable
from penstock.compat.merlin.dtypes.base import dtype_of
from penstock.compat.merlin.dtypes.base import to_native as dtype_to_native
from penstock.compat.merlin.schema.tags import listed, role_of, text_of
from penstock.core.dtypes import to_polars
from penstock.core.errors import DataError, NotFittedError, ParameterError
from penstock.core.extras import require
from penstock.core.params import Instance
from penstock.core.schema import Schema
from penstock.etl.graph import Node as NativeNode
from penstock.etl.operator import ROW_NUMBER, Columns, FittedOperator, Operator, plain
from penstock.etl.references import reference_to, resolve_reference


class UserOperator(Observed, Operator):
    """Runs `op.transform(col_selector, df)` on each partition.

    >>> class Half(BaseOperator):
    ...     def transform(self, col_selector, df):
    ...         return df / 2
    >>> UserOperator(Half()).changes_rows
    False
    """

    constraints = {"op": Instance(BaseOperator, "an operator")}

    def __init__(self, op: BaseOperator, outputs: Mapping[str, str] | None = None) -> None:
        self.op = op
        self.outputs = None if outputs is None else dict(outputs)

    @property
    def changes_rows(self) -> bool:  # type: ignore[override]
        return bool(self.op.changes_rows)

    def dependencies(self) -> list[Any]:
        return dependencies_of(self.op)

    def compute(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        names = _column_names(columns)
        made = self.op.transform(names, _inputs(frame, columns, self.dependencies()).to_pandas())
        if made is None:
            raise DataError(f"{self.op.label}.transform returned None; it must return a pandas DataFrame")
        out = pl.from_pandas(made.reset_index(drop=True)) if hasattr(made, "reset_index") else pl.DataFrame(made)
        mapping = self.op.column_mapping(names)
        out = out if mapping is None else out.select(list(mapping))
        wanted = self.op.output_dtype
        if wanted is None:
            return out
        inner = dtype_to_native(dtype_of(wanted))
        return out.select(pl.col(n).cast(to_polars(inner, isinstance(d, pl.List))) for n, d in out.schema.items())

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        return self.cast(self.compute(frame, columns))

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        if self._looking:
            return inputs.select(columns.names)
        if self.outputs is None:  # no rows to look at
            made = self.compute(pl.DataFrame(schema=inputs.polars_schema), columns)
            self.outputs = {name: spelled(dtype) for name, dtype in made.schema.items()}
        schema = self.seen_schema(inputs)
        assert schema is not None
        tags = listed(self.op.output_tags)
        role = role_of(tags)
        changes: dict[str, Any] = {} if role is None else {"role": role}
        added = {text_of(tag) for tag in tags if role_of([tag]) is None}
        properties = dict(self.op.output_properties or {})
        return Schema(
            c.with_(tags=c.tags | added, properties={**c.properties, **properties}, **changes) for c in schema
        )

    def recipe_params(self) -> dict[str, Any]:
        kind = nameable(type(self.op), UnsavedOperator)
        arguments = {} if kind is UnsavedOperator else _arguments(self.op)
        params = {"op": {reference_to(kind): arguments}, "outputs": self.outputs}
        return {name: value for name, value in params.items() if value is not None}

    @classmethod
    def from_recipe(cls, params: Mapping[str, Any]) -> Operator:
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
        parts = [frame.to_pandas() for frame in state]
        rows = frames.from_map(lambda i: parts[i], range(len(parts)), meta=parts[0].head(0))
        op: Any = self.op
        found = op.fit(_column_names(columns), rows)
        op.fit_finalize(dask.compute(found, scheduler="synchronous")[0])
        self.state_ = "fitted"

    def clear(self) -> None:
        super().clear()
        self.op.clear()  # type: ignore[attr-defined]

    def recipe_params(self) -> dict[str, Any]:
        raise ParameterError(
            f"{self!r} cannot be saved: what it learned is known to it alone; derive it from penstock's FittedOperator"
        )


def wrapped(op: BaseOperator) -> UserOperator:
    """A user's operator, ready for a graph."""
    return UserStatOperator(op) if isinstance(op, StatOperator) else UserOperator(op)


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
