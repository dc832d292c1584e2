"""A few rows at once, for a service that batches: numbers as arrays, anything else as Python values, no frame.

A frame costs hundreds of microseconds a column and operator before it holds a row, a row by itself two microseconds a
column. In between, columns of one dtype are read and computed together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import polars as pl

from penstock.core.conversion import convert
from penstock.core.dtypes import FLOATS, INTEGERS, NUMERIC, to_numpy
from penstock.core.errors import ColumnNotFoundError, ConversionError
from penstock.core.schema import ColumnSchema, Schema
from penstock.core.times import series_of, values_of
from penstock.etl.cells import BulkFunction, Cells, ListCells, Numbers, RowFunction
from penstock.etl.operator import Operator
from penstock.etl.plan import Plan
from penstock.etl.raw_values import policy_of, value_converter
from penstock.etl.row_plan import RowPlan, chooser, gatherer

ROWS = "the rows given to the workflow"
_ROUNDED = 2.0**53  # from here on a float64 does not hold every integer


class BulkPlan:
    """Calls a plan on a list of dicts; gives its output columns. Exactly what `RowPlan` gives for each."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows = RowPlan(plan)  # also refuses plans that do not keep rows
        self.readers = _readers(plan, dict(self.rows.checks))
        lists = [[c.name for c in schema if c.is_list] for schema in plan.schemas]
        self.steps = [(self._step(i), self.rows.settlers(i), lists[i]) for i in range(len(plan.nodes))]

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> Cells:
        if not len(rows):
            return {column.name: _none(column) for column in self.plan.schemas[self.plan.output]}
        raw: Cells = {}
        for read in self.readers:
            raw.update(read(rows))
        values = [raw]
        for step, settlers, lists in self.steps:
            out = step(values)
            for name, settle in settlers.items():
                if isinstance(cell := out[name], list):  # arrays have their dtype
                    out[name] = [None if value is None else settle(value) for value in cell]
            for name in lists:
                out[name] = ListCells(out[name])
            values.append(out)
        return {name: values[-1][name] for name in self.rows.names}

    def _step(self, i: int) -> Callable[[list[Cells]], Cells]:
        plan, node = self.plan, self.plan.nodes[i]
        origins = self.rows.origins(i)
        if node.kind != "apply":
            return chooser(origins, plan.schemas[i].names)
        assert node.operator is not None
        function = self._function(i, node.operator)
        gather = gatherer(origins[::-1])  # parents last: they win over a raw column of the same name
        return lambda values: function(gather(values))

    def _function(self, i: int, op: Operator) -> BulkFunction:
        columns, has_lists = self.plan.columns[i], bool(self.rows.lists(i))
        if not has_lists or op.bulk_takes_lists:
            bulk = op.bulk_function(columns)
            if bulk is not None:
                return bulk
        row = None if has_lists else op.row_function(columns)
        return self._through_frame(i) if row is None else _row_by_row(row)

    def _through_frame(self, i: int) -> BulkFunction:
        plan, schema = self.plan, self.rows.input_dtypes(i)

        def run(cells: Cells) -> Cells:
            columns = [series_of(_listed(cells[name]), dtype, name) for name, dtype in schema.items()]
            done = plan.computed(i, pl.DataFrame(columns))
            return {name: values_of(done[name]) for name in plan.schemas[i].names}

        return run


def _none(column: ColumnSchema) -> Numbers | list[Any]:
    """No rows of a column."""
    if column.is_list:
        return ListCells()
    return Numbers(np.empty(0, to_numpy(column.dtype)), None) if column.dtype in NUMERIC else []


def _row_by_row(function: RowFunction) -> BulkFunction:
    def run(cells: Cells) -> Cells:
        names = list(cells)
        done = [function(dict(zip(names, row, strict=True))) for row in zip(*map(_listed, cells.values()), strict=True)]
        return {name: [row[name] for row in done] for name in done[0]}

    return run


def _listed(cell: Numbers | list[Any]) -> list[Any]:
    return cell.to_list() if isinstance(cell, Numbers) else cell


# Reading rows.


def frame_of(schema: Schema, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Many rows as a frame in a schema's dtypes, each value read as that of a single row is.

    Args:
        schema: of the columns to take.
        rows: values by column.

    Returns:
        The frame.

    Raises:
        ColumnNotFoundError: a row lacks a column.
        ConversionError: a value is none that its column holds; it names column, row and value.
    """
    columns = []
    for column in schema:
        values = _values_of(rows, [column.name], itemgetter(column.name))
        done = _converted(column.name, values, value_converter(column))
        columns.append(series_of(done, column.polars_dtype, column.name))
    return pl.DataFrame(columns)


def _readers(plan: Plan, converters: Mapping[str, Any]) -> list[Callable[[Sequence[Mapping[str, Any]]], Cells]]:
    """Functions that read columns from rows: those of one numeric dtype together, the others one by one."""
    groups: dict[str, list[ColumnSchema]] = {}
    readers: list[Any] = []
    for column in plan.input_schema:
        if not column.is_list and column.dtype in (*INTEGERS, *FLOATS):
            groups.setdefault(column.dtype, []).append(column)
        else:
            readers.append(_value_reader(column.name, converters[column.name]))
    return [*(_number_reader([c.name for c in group], dtype, converters) for dtype, group in groups.items()), *readers]


def _value_reader(name: str, convert: Any) -> Callable[[Sequence[Mapping[str, Any]]], Cells]:
    def read(rows: Sequence[Mapping[str, Any]]) -> Cells:
        return {name: _converted(name, _values_of(rows, [name], lambda row: row[name]), convert)}

    return read


def _number_reader(names: list[str], dtype: str, converters: Mapping[str, Any]) -> Callable[..., Cells]:
    one, kind = itemgetter(*names), to_numpy(dtype)
    read_row = one if len(names) > 1 else lambda row: (one(row),)

    def read(rows: Sequence[Mapping[str, Any]]) -> Cells:
        table = _values_of(rows, names, read_row)
        block = _as_block(table, kind)
        if block is None:  # text, NaN among integers, …: as a single row is read
            values = zip(*table, strict=True)
            return {name: _column(name, v, converters[name], kind) for name, v in zip(names, values, strict=True)}
        numbers, valid = block
        return {name: Numbers(numbers[i], None if valid is None else valid[i]) for i, name in enumerate(names)}

    return read


def _values_of(rows: Sequence[Mapping[str, Any]], names: list[str], read_row: Callable[[Any], Any]) -> list[Any]:
    try:
        return [read_row(row) for row in rows]
    except KeyError:
        row, name = next((row, name) for row in rows for name in names if name not in row)
        raise ColumnNotFoundError(name, row, "the row given to the workflow") from None


def _as_block(table: list[tuple[Any, ...]], dtype: np.dtype) -> tuple[np.ndarray, np.ndarray | None] | None:
    """`(columns, rows)` of numbers and mask, or None where a value is not plainly a number of the dtype's kind."""
    try:
        array, valid = np.array(table), None
        if array.dtype == object and array.ndim == 2:
            missing = (array == None).astype(np.bool_)  # noqa: E711  (element by element)
            array[missing] = 0
            array, valid = np.array(array.tolist()), ~missing.T
    except (TypeError, ValueError):  # lists of different lengths, values that do not compare
        return None
    if array.ndim != 2 or array.dtype.kind not in ("iu" if dtype.kind in "iu" else "iuf"):
        return None
    try:
        # Among floats, integers beyond 2**53 have been rounded already: those take the way of a single row.
        if array.dtype.kind == "f" and (np.abs(array) >= _ROUNDED).any():
            return None
        block = convert(array, dtype.name, column="", policy=policy_of(dtype.name))
    except ConversionError:
        return None
    return np.ascontiguousarray(block.T), valid


def _column(name: str, values: tuple[Any, ...], convert_one: Any, dtype: np.dtype) -> Numbers:
    converted = _converted(name, values, convert_one)
    valid = np.array([value is not None for value in converted])
    numbers = np.array([0 if value is None else value for value in converted], dtype)
    return Numbers(numbers, None if valid.all() else valid)


def _converted(name: str, values: Sequence[Any], convert_one: Any) -> list[Any]:
    """Values as a single row is read; what is refused names its row."""
    try:
        return [None if value is None else convert_one(value) for value in values]
    except ConversionError:
        for row, value in enumerate(values):
            try:
                convert_one(value)
            except ConversionError as error:
                raise ConversionError(error.value, error.dtype, error.reason, name, row, ROWS) from None
        raise
