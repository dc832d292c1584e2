"""List columns: slices of each list, and how long lists are."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from penstock.core.dtypes import FLOATS, NUMERIC, canonical
from penstock.core.errors import ConversionError, ParameterError, SchemaError
from penstock.core.params import BOOL, NONE, Int, Real
from penstock.core.schema import ColumnSchema, Schema
from penstock.data.lists import Lists, flatten
from penstock.etl.fitted_operator import FittedOperator
from penstock.etl.operator import Columns, Operator, per_column, same_names
from penstock.etl.raw_values import held_value


class ListSlice(Operator):
    """`values[start:end]` of each list, as Python slices count, negative bounds included.

    With one positive bound that many elements are kept from the front: `ListSlice(10)` is `values[:10]`;
    `ListSlice(-10)` keeps the last ten.

    Args:
        start, end: the bounds.
        pad: fill short lists at the end, so that all have the slice's full length (missing lists too).
        pad_value: what to fill with.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"items": [[1, 2, 3], [4], []]})
    >>> Workflow(["items"] >> ListSlice(2)).transform(frame)["items"].to_list()
    [[1, 2], [4], []]
    >>> Workflow(["items"] >> ListSlice(-2, pad=True)).transform(frame)["items"].to_list()
    [[2, 3], [4, 0], [0, 0]]
    """

    constraints = {"start": Int(), "end": Int() | NONE, "pad": BOOL, "pad_value": Real()}

    def __init__(self, start: int, end: int | None = None, pad: bool = False, pad_value: float = 0.0) -> None:
        self.start = start
        self.end = end
        self.pad = pad
        self.pad_value = pad_value

    def check_params(self) -> None:
        super().check_params()
        if self.pad and self._most() is None:
            raise ParameterError(f"ListSlice can pad only to a known length; [{self.start}:{self.end}] has none")

    @property
    def _bounds(self) -> tuple[int, int | None]:
        return (0, self.start) if self.end is None and self.start > 0 else (self.start, self.end)

    def _most(self) -> int | None:
        """The most elements the slice can have; None where the list's length decides."""
        start, end = self._bounds
        if end is None:
            return -start if start < 0 else None
        if (start < 0) == (end < 0):
            return max(0, end - start)
        return min(-start, end) if start < 0 else None

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        return pl.DataFrame([self._sliced(frame[name]) for name in columns.names])

    def _sliced(self, series: pl.Series) -> pl.Series:
        values, lists = flatten(series)
        start, end = self._bounds
        lengths = lists.lengths
        first = np.clip(start + lengths if start < 0 else np.full_like(lengths, start), 0, lengths)
        last = lengths if end is None else np.clip(end + lengths if end < 0 else np.full_like(lengths, end), 0, lengths)
        sizes = np.maximum(last - first, 0)
        if self.pad:
            return self._padded(values, lists, lists.offsets[:-1] + first, sizes)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        places = np.arange(offsets[-1]) + np.repeat(lists.offsets[:-1] + first - offsets[:-1], sizes)
        return Lists(series.name, offsets, lists.valid).rebuild(values.gather(places))

    def _padded(self, values: pl.Series, lists: Lists, first: np.ndarray, sizes: np.ndarray) -> pl.Series:
        width = self._most()
        assert width is not None
        within = np.arange(width)
        inside = (within < sizes[:, None]).ravel()
        places = np.where(inside, (first[:, None] + within).ravel(), len(values))
        filler = pl.Series(values.name, [self._pad_value(canonical(values.dtype), lists.name)], dtype=values.dtype)
        padded = pl.concat([values, filler]).gather(places)
        return Lists(lists.name, np.arange(len(sizes) + 1) * width, None).rebuild(padded)

    def _pad_value(self, dtype: str, name: str) -> Any:
        """What to fill with, as the lists' dtype has it; NaN is a missing element where there is no NaN."""
        if dtype not in (*NUMERIC, "null"):
            raise SchemaError(f"ListSlice pads lists of numbers; column {name!r} holds lists of {dtype}")
        if dtype == "null" or (dtype not in FLOATS and self.pad_value != self.pad_value):
            return None
        try:
            return held_value(self.pad_value, dtype, name)
        except ConversionError as error:
            message = f"ListSlice.pad_value {self.pad_value} does not fit column {name!r}: {dtype} ({error.reason})"
            raise SchemaError(message) from None

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        return per_column(inputs, columns, self._column)

    def _column(self, column: ColumnSchema) -> ColumnSchema:
        if not column.is_list:
            raise SchemaError(f"ListSlice needs lists; column {column.name!r} is {column.dtype}")
        if self.pad:
            self._pad_value(column.dtype, column.name)
        properties = {k: v for k, v in column.properties.items() if k != "value_count"}
        most = self._most()
        if most is not None:
            properties["value_count"] = {"min": most if self.pad else 0, "max": most}
        return column.with_(properties=properties, nullable=column.nullable and not self.pad)


class ValueCount(FittedOperator):
    """Learn the shortest and the longest list of each column, as `value_count` in the schema; data passes through.

    >>> from penstock import Workflow
    >>> workflow = Workflow(["items"] >> ValueCount()).fit(pl.DataFrame({"items": [[1, 2, 3], [4]]}))
    >>> workflow.output_schema["items"].properties["value_count"]
    {'min': 1, 'max': 3}
    """

    learns_by_column = True

    def __init__(self) -> None:
        pass

    def partial(self, frame: pl.DataFrame, columns: Columns) -> dict[str, list[int | None]]:
        state = {}
        for name in columns.names:
            lengths = frame[name].list.len() if isinstance(frame[name].dtype, pl.List) else frame[name].arr.len()
            lengths = lengths.fill_null(0)
            state[name] = [lengths.min(), lengths.max()]
        return state  # type: ignore[return-value]

    def merge(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        return {
            name: [
                min((s[name][0] for s in (left, right) if s[name][0] is not None), default=None),
                max((s[name][1] for s in (left, right) if s[name][1] is not None), default=None),
            ]
            for name in left
        }

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        return frame.select(columns.names)

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def row_function(self, columns: Columns) -> Any:
        names = columns.names
        return lambda values: {name: values[name] for name in names}

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        return per_column(inputs, columns, self._column)

    def _column(self, column: ColumnSchema) -> ColumnSchema:
        if not column.is_list:
            raise SchemaError(f"ValueCount needs lists; column {column.name!r} is {column.dtype}")
        if not self.is_fitted:
            return column
        low, high = self.state_[column.name]
        count = {"min": low or 0, "max": high or 0}
        return column.with_(properties={**column.properties, "value_count": count})
