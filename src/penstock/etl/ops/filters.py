"""Leaving rows out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from penstock.core.errors import ColumnNotFoundError, DataError
from penstock.core.overflow import filtered
from penstock.core.params import CALLABLE, STR, Instance
from penstock.core.schema import Schema
from penstock.etl.operator import ROW_NUMBER, Columns, Operator, same_names
from penstock.etl.references import (
    check_row_wise,
    expression_from_recipe,
    expression_from_text,
    expression_to_recipe,
    reference_to,
    resolve_reference,
)
from penstock.etl.trust import is_reference


class Filter(Operator):
    """Only the rows for which `f` holds.

    Args:
        f: an expression, of polars or as text in the words of SQL (`"price > 0"`), which treats each row by itself; or
            a function of the frame that gives a mask, or the frame with fewer rows.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"price": [1.0, -2.0, 3.0]})
    >>> Workflow(["price"] >> Filter(pl.col("price") > 0)).transform(frame)["price"].to_list()
    [1.0, 3.0]
    """

    takes_nested_lists = True

    changes_rows = True
    constraints = {"f": CALLABLE | STR | Instance(pl.Expr, "a polars expression")}

    def __init__(self, f: pl.Expr | str | Callable[[pl.DataFrame], Any]) -> None:
        self.f = f

    def check_params(self) -> None:
        super().check_params()
        if isinstance(self.f, (pl.Expr, str)):
            check_row_wise(self._expression, str(self.f), "Filter")

    @property
    def _expression(self) -> pl.Expr:
        assert isinstance(self.f, (pl.Expr, str))
        return expression_from_text(self.f, "Filter") if isinstance(self.f, str) else self.f

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        if isinstance(self.f, (pl.Expr, str)):
            return filtered(frame, self._expression, "Filter")
        kept = self.f(frame.drop(ROW_NUMBER, strict=False))
        if isinstance(kept, pl.Expr):
            return frame.filter(kept)
        if not isinstance(kept, (pl.DataFrame, pl.LazyFrame)):
            mask = kept if isinstance(kept, pl.Series) else pl.Series(kept, dtype=pl.Boolean)
            if len(mask) != frame.height:
                raise DataError(f"Filter's function gave a mask of {len(mask)} rows for {frame.height}")
            return frame.filter(mask)
        if ROW_NUMBER in frame.columns:
            kept = self.f(frame)  # once more, so that the rows that are left keep their numbers
        left: pl.DataFrame = kept.lazy().collect()
        missing = [n for n in (*columns.names, ROW_NUMBER) if n in frame.columns and n not in left.columns]
        if missing:
            raise DataError(f"Filter's function dropped the columns {missing}; filter rows only, or give a mask")
        return left

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        for name in self._expression.meta.root_names() if isinstance(self.f, (pl.Expr, str)) else ():
            if name not in inputs:
                raise ColumnNotFoundError(name, inputs.names, "the inputs of Filter")
        return super().output_schema(inputs, columns)

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def recipe_params(self) -> dict[str, Any]:
        if isinstance(self.f, str):
            return {"f": self.f}
        return {"f": expression_to_recipe(self.f) if isinstance(self.f, pl.Expr) else reference_to(self.f)}

    @classmethod
    def from_recipe(cls, params: Mapping[str, Any]) -> Operator:
        f = params.get("f")
        if isinstance(f, str) and is_reference(f):
            f = resolve_reference(f)
        elif isinstance(f, Mapping):
            f = expression_from_recipe(f)
        return super().from_recipe({**params, "f": f})


class Dropna(Operator):
    """Only the rows in which every input has a value (neither null nor NaN).

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"a": [1, None, 3], "b": [0.5, 1.0, float("nan")]})
    >>> Workflow(["a", "b"] >> Dropna()).transform(frame).rows()
    [(1, 0.5)]
    """

    takes_nested_lists = True

    changes_rows = True

    def __init__(self) -> None:
        pass

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        floats = [n for n in columns.names if frame.schema[n].is_float()]
        present = [pl.col(n).is_not_null() for n in columns.names] + [pl.col(n).is_not_nan() for n in floats]
        return frame.filter(pl.all_horizontal(present))

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        return Schema(inputs[n].with_(nullable=False) for n in columns.names)
