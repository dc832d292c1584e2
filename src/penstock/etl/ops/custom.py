"""A user's own functions as operators."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from penstock.core import dtypes
from penstock.core.conversion import convert
from penstock.core.dtypes import DtypeLike
from penstock.core.errors import SchemaError
from penstock.core.params import CALLABLE, NONE, STR, Instance, ListOf, Satisfies
from penstock.core.schema import ColumnSchema, Schema
from penstock.etl.operator import Columns, Operator
from penstock.etl.raw_values import policy_of
from penstock.etl.references import reference_to, resolve_reference


class LambdaOp(Operator):
    """A function of each column: `f(series)`, or `f(series, frame)` to see other columns too.

    It runs on one partition at a time, so it must treat each row by itself. A function defined at the top of an
    importable module is saved by its name; a lambda works, but a workflow that holds one cannot be saved.

    Args:
        f: takes a polars Series (and, if it has a second argument, the polars frame) and gives a Series as long.
        dependency: further columns that `f` reads from the frame: names, or nodes.
        label: a name for messages.
        dtype: of the result, which is converted to it (floats are rounded, nothing else is lost: round or cut fractions
            in `f`); found by running `f` on no rows when left out.
        tags, properties: added to the schema.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"clicks": [1, 3], "views": [2, 4]})
    >>> rate = ["clicks"] >> LambdaOp(lambda clicks, frame: clicks / frame["views"], dependency="views")
    >>> Workflow(rate).transform(frame).to_dict(as_series=False)
    {'clicks': [0.5, 0.75]}
    """

    takes_nested_lists = True

    constraints = {
        "f": CALLABLE,
        "label": STR | NONE,
        "dtype": Satisfies(lambda d: d is None or bool(dtypes.canonical(d)), "a dtype"),
        "tags": STR | ListOf(STR) | NONE,
        "properties": Instance(Mapping, "a mapping") | NONE,
    }

    def __init__(
        self,
        f: Callable[..., pl.Series],
        dependency: Any = None,
        label: str | None = None,
        dtype: DtypeLike | None = None,
        tags: str | Sequence[str] | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        self.f = f
        self.dependency = dependency
        self.label = label
        self.dtype = dtype
        self.tags = tags
        self.properties = properties

    def dependencies(self) -> list[Any]:
        if self.dependency is None:
            return []
        return list(self.dependency) if isinstance(self.dependency, (list, tuple)) else [self.dependency]

    def _call(self, frame: pl.DataFrame, name: str) -> pl.Series:
        result = self.f(frame[name], frame) if _takes_two(self.f) else self.f(frame[name])
        if isinstance(result, pl.Expr):
            return frame.select(result.alias(name)).to_series()
        return result if isinstance(result, pl.Series) else pl.Series(name, result)

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        out = []
        for name in columns.names:
            series = self._call(frame, name).alias(name)
            out.append(series if self.dtype is None else self._in_dtype(series))
        return pl.DataFrame(out)

    def _in_dtype(self, series: pl.Series) -> pl.Series:
        """The result in the dtype that was asked for: numbers exactly, times and what they spell as polars has it."""
        dtype = dtypes.canonical(self.dtype or "null")
        inner, is_list = dtypes.split_list(series.dtype)
        if inner.is_temporal() or dtype == "string":
            return series.cast(dtypes.to_polars(dtype, is_list))
        return convert(series, dtype, column=series.name, where=self.name, policy=policy_of(dtype))

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        empty = pl.DataFrame(schema=inputs.polars_schema)
        return Schema(self._column(inputs[name], empty) for name in columns.names)

    def _column(self, column: ColumnSchema, empty: pl.DataFrame) -> ColumnSchema:
        tags = [self.tags] if isinstance(self.tags, str) else list(self.tags or ())
        changes = {"tags": column.tags | set(tags), "properties": {**column.properties, **(self.properties or {})}}
        if self.dtype is not None:
            return column.with_(dtype=dtypes.canonical(self.dtype), cardinality=None, **changes)
        try:
            found, is_list = dtypes.split_list(self._call(empty, column.name).dtype)
        except Exception as error:
            raise SchemaError(
                f"{self.name} failed on no rows, where its dtype for column {column.name!r} is found ({error}); "
                f"pass LambdaOp(..., dtype=...)"
            ) from error
        return column.with_(dtype=dtypes.canonical(found), is_list=is_list, cardinality=None, **changes)

    @property
    def name(self) -> str:
        return self.label or f"LambdaOp({getattr(self.f, '__name__', 'function')})"

    def recipe_params(self) -> dict[str, Any]:
        copied = copy.copy(self)
        copied.f = reference_to(self.f)  # type: ignore[assignment]
        if not all(isinstance(d, str) for d in self.dependencies()):
            copied.dependency = None  # nodes: the recipe lists them as `depends`
        return Operator.recipe_params(copied)

    @classmethod
    def from_recipe(cls, params: Mapping[str, Any]) -> Operator:
        f = params.get("f")
        return super().from_recipe({**params, "f": resolve_reference(f)} if isinstance(f, str) else params)


def _takes_two(function: Callable[..., Any]) -> bool:
    """Whether a function wants the frame as well; what cannot be told takes the column alone."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in places and p.default is inspect.Parameter.empty for p in parameters) >= 2
