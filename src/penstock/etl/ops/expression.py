"""Columns from expressions: polars' own, or text in the words of SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from penstock.core.errors import ParameterError, SchemaError
from penstock.core.overflow import check_overflow
from penstock.core.params import Satisfies
from penstock.core.schema import Role, Schema
from penstock.etl.operator import Columns, Operator
from penstock.etl.references import (
    check_row_wise,
    expression_from_recipe,
    expression_from_text,
    expression_to_recipe,
)

Expression = pl.Expr | str


class Expr(Operator):
    """Columns from expressions over the inputs (and any other raw columns that they name).

    An expression is text in the words of SQL (`"rating >= 4"`, `"hour % 100"`, `"coalesce(price, 0) / 100"`), or a
    polars expression. It treats each row by itself: one that looks at other rows (an aggregate, `over`, `shift`) is
    refused, since it would see one partition at a time; `Groupby`, `JoinGroupby`, `DifferenceLag` and the fitted
    operators do that. Integers that would leave their dtype on the way are refused: cast a column to a wider one first.
    What is made of a label under a new name is a label.

    Args:
        expressions: one expression, several, or `{name: expression}`. A recipe has the names right below:
            `Expr: {liked: "rating >= 4"}`.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"clicks": [1, 3], "views": [2, 4]})
    >>> rate = ["clicks", "views"] >> Expr({"rate": pl.col("clicks") / pl.col("views"), "many": "clicks >= 2"})
    >>> Workflow(rate).transform(frame).to_dict(as_series=False)
    {'rate': [0.5, 0.75], 'many': [False, True]}
    >>> Expr("clicks - avg(clicks)")
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: Expr: 'clicks - avg(clicks)' looks at other rows (...)...
    """

    constraints = {
        "expressions": Satisfies(
            lambda e: all(isinstance(x, (pl.Expr, str)) for x in _listed(e)) and bool(_listed(e)),
            "an expression (of polars, or text in the words of SQL), a list of them or {name: expression}",
        )
    }

    def __init__(self, expressions: Expression | Sequence[Expression] | Mapping[str, Expression]) -> None:
        self.expressions = expressions

    def check_params(self) -> None:
        super().check_params()
        for given, made in zip(_listed(self.expressions), self._named(), strict=True):
            check_row_wise(made, given if isinstance(given, str) else str(given), "Expr")

    def _named(self) -> list[pl.Expr]:
        made = [expression_from_text(e, "Expr") if isinstance(e, str) else e for e in _listed(self.expressions)]
        if isinstance(self.expressions, Mapping):
            return [e.alias(n) for n, e in zip(self.expressions, made, strict=True)]
        return made

    def dependencies(self) -> list[str]:
        return list(dict.fromkeys(n for e in self._named() for n in e.meta.root_names()))

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        named = self._named()
        out = frame.select(named)
        if out.height != frame.height:  # expressions of literals alone give one row; they stand for all
            out = frame.with_columns(named).select(out.columns)
        check_overflow(frame, named, out, "Expr")
        return out

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        named = self._named()
        try:
            found = pl.LazyFrame(schema=inputs.polars_schema).select(named).collect_schema()
        except pl.exceptions.PolarsError as error:
            raise SchemaError(f"Expr does not fit the columns {inputs.names}: {error}") from error
        labels = set(inputs.select(roles=Role.LABEL).names)
        made = {e.meta.output_name(raise_if_undetermined=False): e for e in named}
        out = []
        for column in Schema.from_polars(dict(found)):
            before = inputs.get(column.name)
            if before is not None:  # an expression of the same name keeps what the column is
                column = column.with_(role=before.role, tags=before.tags)
            elif column.name in made and labels & set(made[column.name].meta.root_names()):
                column = column.with_(role=Role.LABEL)
            out.append(column)
        return Schema(out)

    def recipe_params(self) -> dict[str, Any]:
        written = [e if isinstance(e, str) else expression_to_recipe(e) for e in _listed(self.expressions)]
        if not isinstance(self.expressions, Mapping):
            return {"expressions": written}
        by_name = dict(zip(self.expressions, written, strict=True))
        is_plain = all(isinstance(e, str) for e in written) and "expressions" not in by_name
        return by_name if is_plain else {"expressions": by_name}

    @classmethod
    def from_recipe(cls, params: Mapping[str, Any]) -> Operator:
        given = params.get("expressions")
        if given is None and params:
            given = params  # {name: text}
        elif len(params) != 1:
            raise ParameterError("Expr takes expressions: a list, or {name: expression}")
        if isinstance(given, Mapping):
            return cls({str(n): _read(e, f"Expr, {n}") for n, e in given.items()})
        return cls([_read(e, "Expr") for e in _listed(given)])


def _read(given: Any, where: str) -> Expression:
    if isinstance(given, Mapping):
        return expression_from_recipe(given)
    if isinstance(given, str):
        return given
    if isinstance(given, (bool, int, float)):
        return str(given).lower() if isinstance(given, bool) else str(given)  # a constant
    raise ParameterError(f'{where}: an expression is text such as "rating >= 4", got {given!r}')


def _listed(given: Any) -> list[Any]:
    if isinstance(given, Mapping):
        return list(given.values())
    return list(given) if isinstance(given, (list, tuple)) else [given]
