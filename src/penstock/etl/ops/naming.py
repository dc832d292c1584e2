"""Other names for columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from penstock.core.errors import ParameterError
from penstock.core.params import CALLABLE, NONE, STR
from penstock.core.schema import Schema
from penstock.etl.cells import BulkFunction, RowFunction
from penstock.etl.operator import Columns, Operator
from penstock.etl.references import reference_to, resolve_reference


class Rename(Operator):
    """Rename columns by one of: a function of the name, a postfix, or (for a single column) a name.

    Args:
        f: takes a name, gives another.
        postfix: put behind each name.
        name: of a single column.

    >>> from penstock import Workflow
    >>> Workflow(["a", "b"] >> Rename(postfix="_raw")).transform(pl.DataFrame({"a": [1], "b": [2]})).columns
    ['a_raw', 'b_raw']
    """

    takes_nested_lists = True

    bulk_takes_lists = True
    constraints = {"f": CALLABLE | NONE, "postfix": STR | NONE, "name": STR | NONE}

    def __init__(
        self, f: Callable[[str], str] | None = None, postfix: str | None = None, name: str | None = None
    ) -> None:
        self.f = f
        self.postfix = postfix
        self.name = name

    def check_params(self) -> None:
        super().check_params()
        if sum(p is not None for p in (self.f, self.postfix, self.name)) != 1:
            raise ParameterError("Rename takes exactly one of f, postfix and name")

    def _names(self, columns: Columns) -> dict[str, str]:
        if self.name is not None:
            if len(columns.names) != 1:
                raise ParameterError(f"Rename(name={self.name!r}) renames one column, got {list(columns.names)}")
            return {columns.names[0]: self.name}
        if self.f is not None:
            return {n: str(self.f(n)) for n in columns.names}
        return {n: f"{n}{self.postfix}" for n in columns.names}

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        return frame.select(pl.col(old).alias(new) for old, new in self._names(columns).items())

    def origins(self, columns: Columns) -> dict[str, str]:
        return {new: old for old, new in self._names(columns).items()}

    def row_function(self, columns: Columns) -> RowFunction:
        pairs = list(self._names(columns).items())
        return lambda values: {new: values[old] for old, new in pairs}

    def bulk_function(self, columns: Columns) -> BulkFunction:
        return self.row_function(columns)  # values or cells: only the names matter

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        return Schema(inputs[old].with_(name=new) for old, new in self._names(columns).items())

    def recipe_params(self) -> dict[str, Any]:
        if self.f is not None:
            return {"f": reference_to(self.f)}
        return super().recipe_params()

    @classmethod
    def from_recipe(cls, params: Mapping[str, Any]) -> Operator:
        f = params.get("f")
        return super().from_recipe({**params, "f": resolve_reference(f)} if isinstance(f, str) else params)
