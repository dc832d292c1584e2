"""Operators that map each value by itself: one method for columns, one for single values, lists handled once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from penstock.core.dtypes import NUMERIC
from penstock.core.errors import ColumnNotFoundError, SchemaError
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.data.keys import raw_values, valid_mask
from penstock.data.lists import flatten
from penstock.etl.cells import BulkFunction, Cells, Numbers, RowFunction
from penstock.etl.operator import Columns, Operator, per_column

Block = tuple[np.ndarray, np.ndarray | None]  # values and mask, (columns, rows)


class Elementwise(Operator):
    """Define `apply` (a column) or `expression`, `apply_one` (a value that is not None) and `output_column`.

    List columns are mapped element by element. `apply_one` must give exactly what `apply` gives, once its result is
    stored in the declared dtype.
    """

    def expression(self, series: pl.Series, name: str) -> pl.Expr | None:
        """What becomes of a column, over the column of the series' name; polars then does all columns in one call.

        Args:
            series: the values.
            name: of the column they belong to.

        Returns:
            The expression, or None where there is none.
        """
        return None

    def apply(self, series: pl.Series, name: str) -> pl.Series:
        """What becomes of a column's values; those inside lists come end to end.

        Args:
            series: the values.
            name: of the column they belong to.

        Returns:
            As many values.

        Raises:
            TypeError: a subclass defines neither this nor an expression.
        """
        made = self.expression(series, name)
        if made is None:
            raise TypeError(f"{type(self).__name__} defines neither apply nor expression")
        return series.to_frame().select(made).to_series()

    def apply_one(self, value: Any, name: str) -> Any:
        """What becomes of one value.

        Args:
            value: one that is not missing.
            name: of its column.

        Returns:
            The value as the output holds it.

        Raises:
            TypeError: a subclass does not define it.
        """
        raise TypeError(f"{type(self).__name__} does not define apply_one")

    def output_column(self, column: ColumnSchema) -> ColumnSchema:
        """The schema of what becomes of a column.

        Args:
            column: the input.

        Returns:
            The output.
        """
        return column

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        return per_column(inputs, columns, self.output_column)

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        given = {name: frame.get_column(name) for name in columns.names}
        made = {n: self.expression(series, n) for n, series in given.items() if not _is_list(series)}
        wanted = [expression.alias(n) for n, expression in made.items() if expression is not None]
        done = {s.name: s for s in frame.select(wanted)} if wanted else {}
        return pl.DataFrame([done[n] if n in done else self.mapped(given[n], n) for n in columns.names])

    def mapped(self, series: pl.Series, name: str) -> pl.Series:
        """`apply`, inside lists where the column has lists.

        Args:
            series: the values.
            name: of the column they belong to.

        Returns:
            As many values, or lists.
        """
        if _is_list(series):
            values, lists = flatten(series)
            return lists.rebuild(self.apply(values, name)).alias(series.name)
        return self.apply(series, name).alias(series.name)

    def row_function(self, columns: Columns) -> RowFunction | None:
        names, apply_one, null = columns.names, self.apply_one, self.apply_null

        def run(values: dict[str, Any]) -> dict[str, Any]:
            return {n: _one(values[n], n, apply_one, null) for n in names}

        return run

    def apply_null(self, name: str) -> Any:
        """What a missing value becomes.

        Args:
            name: of the column.

        Returns:
            The value, None where it stays missing.
        """
        return None

    def apply_block(self, names: list[str], values: np.ndarray, valid: np.ndarray | None) -> Block | None:
        """`apply` for a few rows of several columns of one dtype, `(columns, rows)`; None: value by value.

        Args:
            names: of the columns.
            values: `(columns, rows)`.
            valid: false where a value is missing; None where none is.

        Returns:
            Values and which are valid, or None.
        """
        return None

    def bulk_function(self, columns: Columns) -> BulkFunction | None:
        names, apply_one, null = columns.names, self.apply_one, self.apply_null

        def run(cells: Cells) -> Cells:
            out: Cells = {}
            for group, block in blocks(cells, names):
                done = self.apply_block(group, *block)
                if done is not None:
                    values, valid = done
                    for i, name in enumerate(group):
                        out[name] = Numbers(values[i], None if valid is None else valid[i])
            for name in names:
                if name not in out:
                    cell = cells[name]
                    listed = cell.to_list() if isinstance(cell, Numbers) else cell
                    out[name] = [_one(value, name, apply_one, null) for value in listed]
            return out

        return run


def _is_list(series: pl.Series) -> bool:
    return isinstance(series.dtype, (pl.List, pl.Array))


def blocks(cells: Cells, names: Sequence[str]) -> list[tuple[list[str], Block]]:
    """Columns of numbers put together by dtype, each group as `(columns, rows)`."""
    groups: dict[np.dtype, list[str]] = {}
    for name in names:
        cell = cells[name]
        if isinstance(cell, Numbers):
            groups.setdefault(cell.values.dtype, []).append(name)
    return [(group, _block([cells[name] for name in group])) for group in groups.values()]


def _block(cells: list[Any]) -> Block:
    values = np.array([cell.values for cell in cells])
    if all(cell.valid is None for cell in cells):
        return values, None
    everywhere = np.ones(values.shape[1], np.bool_)
    return values, np.array([everywhere if cell.valid is None else cell.valid for cell in cells])


def _one(value: Any, name: str, apply_one: Any, null: Any) -> Any:
    if value is None:
        return null(name)
    if isinstance(value, (list, tuple, np.ndarray)):
        return [null(name) if v is None else apply_one(v, name) for v in value]
    return apply_one(value, name)


def numeric(series: pl.Series, what: str) -> tuple[np.ndarray, np.ndarray | None]:
    """A numeric column's values (anything in null slots) and mask, or an error that names column and operator."""
    dtype = series.dtype
    if isinstance(dtype, (pl.Boolean, pl.Null)):
        series = series.cast(pl.UInt8 if isinstance(dtype, pl.Boolean) else pl.Float32)
    elif not dtype.is_numeric():
        raise SchemaError(f"{what} needs numbers; column {series.name!r} is {series.dtype}")
    return raw_values(series), valid_mask(series)


def require_numbers(column: ColumnSchema, what: str) -> ColumnSchema:
    """The column, or an error before a row is read where it can hold no numbers."""
    if column.dtype not in (*NUMERIC, "null"):
        raise SchemaError(f"{what} needs numbers; column {column.name!r} is {column.dtype}")
    return column


def from_values(name: str, values: np.ndarray, valid: np.ndarray | None) -> pl.Series:
    """A column from values and mask."""
    series = pl.Series(name, values)
    return series if valid is None else series.set(pl.Series(~valid), None)


def as_continuous(column: ColumnSchema, dtype: str = "float32") -> ColumnSchema:
    """The column as a number for the model; a code that was scaled is none any more."""
    role = Role.CONTINUOUS if column.role in (Role.OTHER, Role.CATEGORICAL) else column.role
    return column.with_(dtype=dtype, role=role, cardinality=None, properties=_without_text(column))


def _without_text(column: ColumnSchema) -> dict[str, Any]:
    """Properties that still hold once the raw form (hexadecimal text, spans of time) is gone."""
    return {k: v for k, v in column.properties.items() if k not in ("text", "duration")}


def setting_of(value: Any, name: str, where: str) -> Any:
    """A setting for one column: the value itself, or its entry in a `{column: value}`."""
    if not isinstance(value, Mapping):
        return value
    if name not in value:
        raise ColumnNotFoundError(name, value, where)
    return value[name]
