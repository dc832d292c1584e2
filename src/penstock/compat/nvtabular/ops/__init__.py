"""`nvtabular.ops`: Penstock's operators under NVTabular's names and arguments."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from penstock.compat.merlin.core._clients import later
from penstock.compat.merlin.dag.base_operator import BaseOperator, StatOperator
from penstock.compat.merlin.dag.declaring import DeclaresNatively, as_columns, as_selector, inherited
from penstock.compat.merlin.dag.node import Node, as_node
from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.merlin.io._frames import as_pandas
from penstock.compat.merlin.schema import Schema as MerlinSchema
from penstock.core.errors import ParameterError
from penstock.core.schema import Role, Schema
from penstock.data.frames import to_polars
from penstock.etl import ops as native
from penstock.etl.fitted_operator import FittedOperator
from penstock.etl.graph import Node as NativeNode
from penstock.etl.operator import ROW_NUMBER, Columns
from penstock.etl.operator import Operator as NativeOperator

# Penstock's operators in graphs of NVTabular's nodes; those that take the same arguments are made here from a list.

SAME_ARGUMENTS = (
    "Clip", "Dropna", "TagAsItemFeatures", "TagAsItemID", "TagAsUserFeatures", "TagAsUserID",
)  # fmt: skip
# Operators whose `transform(selector, frame)` gave the whole frame; that of the others gave their own columns only.
WHOLE_FRAME = frozenset((
    "AddMetadata", "Categorify", "ColumnSimilarity", "DataStats", "FillMedian", "FillMissing", "HashBucket",
    "JoinExternal", "LogOp", "ReduceDtypeSize", "TagAsItemFeatures", "TagAsItemID", "TagAsUserFeatures", "TagAsUserID",
    "ValueCount",
))  # fmt: skip


class Placed(DeclaresNatively):
    """Mixin: `columns >> op` gives a node that knows selectors and pandas functions; recipes name the native class.

    `op.transform(selector, frame)` works on a pandas frame at once, and `op.fit(selector, dask_frame)` with
    `op.fit_finalize(result)` learns from one, as Merlin's operators did.
    """

    gives_tags = True  # whether NVTabular's operator tags what it makes
    makes_features = False  # whether what it makes of a target is no target, as NVTabular's tags would have it

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        (StatOperator if issubclass(cls, FittedOperator) else BaseOperator).register(cls)

    def __rrshift__(self, left: Any) -> Node:
        return as_node(left) >> self

    @classmethod
    def recipe_class(cls) -> type[NativeOperator]:
        return next(own for own in cls.__mro__ if own.__module__.startswith(native.__name__))

    def create_node(self, selector: Any) -> Node:
        return as_node(selector)

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        """As Merlin has it: an output has the tags and properties of what it is made from, and the operator's own."""
        made = super().output_schema(inputs, columns)
        plain = Schema(column.with_(role=Role.OTHER, tags=()) for column in inputs)
        own = super().output_schema(plain, columns) if self.gives_tags else Schema()
        sources = {column.name: inputs.get(self.made_from(column.name, columns)) for column in made}
        return Schema(inherited(c, sources[c.name], own.get(c.name), self.makes_features) for c in made)

    def made_from(self, output: str, columns: Columns) -> str:
        """The column that an output takes its tags and properties from."""
        if output in columns.names:
            return output
        named = [name for name in columns.names if output.startswith(name)]
        return self.origins(columns).get(output) or max(named, key=len, default=output)  # type: ignore[attr-defined]

    def transform(self, frame: Any, columns: Any) -> Any:
        if isinstance(frame, pl.DataFrame):
            return super().transform(frame, columns)  # type: ignore[misc]
        ours = next(own for own in type(self).__mro__ if own.__module__.startswith("penstock."))  # not a user's class
        return at_once(self, functools.partial(ours.transform, self), frame, columns)  # type: ignore[attr-defined]

    @property
    def fit(self) -> Callable[[Any, Any], Any]:
        """`fit(selector, dask_frame)` is what Dask shall compute; `fit_finalize` takes the result."""
        return functools.partial(_fit, self._learner())

    @property
    def fit_finalize(self) -> Callable[[tuple[Columns, Any]], None]:
        """`fit_finalize(computed)`: from then on the operator knows what it learned."""
        return functools.partial(_fit_finalize, self._learner())

    def _learner(self) -> FittedOperator:
        if not isinstance(self, FittedOperator):
            raise AttributeError(f"{type(self).__name__} learns nothing; use transform")
        return self

    @property
    def fitted(self) -> bool:
        return bool(getattr(self, "is_fitted", True))

    def set_storage_path(self, new_path: str, copy: bool = False) -> None:
        """Where NVTabular kept files of an operator; what is learned is held by the operator here."""


def at_once(op: Any, transform: Callable[[pl.DataFrame, Columns], pl.DataFrame], columns: Any, frame: Any) -> Any:
    """What an operator makes of a pandas frame, with its index where rows stay."""
    if isinstance(op, FittedOperator):
        op.check_fitted()
    if hasattr(frame, "to_df"):  # a table of tensors
        return type(frame).from_df(at_once(op, transform, columns, frame.to_df()))
    rows = to_polars(frame)
    whole = any(own.__name__ in WHOLE_FRAME for own in type(op).__mro__)
    chosen = "*" if whole and op.changes_rows else columns  # a join repeats the other columns' rows with its own
    made = transform(rows, as_columns(as_selector(chosen).resolve(MerlinSchema.from_native(_schema(rows)))))
    out = as_pandas(made.drop(ROW_NUMBER, strict=False))
    keeps = whole and not op.changes_rows
    if isinstance(frame, Mapping):
        return {**(frame if keeps else {}), **{name: out[name].to_numpy() for name in out.columns}}
    if not op.changes_rows and hasattr(frame, "index"):
        out.index = frame.index
    return frame.assign(**{name: out[name] for name in out.columns}) if keeps and hasattr(frame, "assign") else out


def _schema(frame: pl.DataFrame) -> Schema:
    return Schema.from_polars(frame.schema)


def _fit(op: FittedOperator, col_selector: Any, ddf: Any) -> Any:
    parts = ddf.to_delayed() if hasattr(ddf, "to_delayed") else [ddf]
    return later(_learn, op, as_columns(as_selector(col_selector)), list(parts))


def _fit_finalize(op: FittedOperator, dask_stats: tuple[Columns, Any]) -> None:
    columns, state = dask_stats
    op.finish(state, columns)


def _learn(op: FittedOperator, columns: Columns, parts: list[Any]) -> tuple[Columns, Any]:
    state = None
    for part in parts:
        state = op.accumulate(state, to_polars(part), columns)
    return columns, state


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


def placed(name: str) -> type[NativeOperator]:
    """A native operator that stands in graphs of NVTabular's nodes.

    >>> placed("Clip")(min_value=0)
    Clip(min_value=0)
    """
    own = getattr(native, name)
    says = (own.__doc__ or name).split(">>>")[0].rstrip()
    return type(name, (Placed, own), {"__module__": __name__, "__doc__": says})


globals().update({name: placed(name) for name in SAME_ARGUMENTS})


def as_old(op: Any) -> None:
    """Give an operator that was loaded the class that old code knows: they hold the same, under more names."""
    if op is None or isinstance(op, Placed) or not type(op).__module__.startswith(native.__name__):
        return
    ours = importlib.import_module("penstock.compat.nvtabular.ops")
    twin = getattr(ours, type(op).__name__, None)
    if isinstance(twin, type) and issubclass(twin, type(op)):
        op.__class__ = twin
