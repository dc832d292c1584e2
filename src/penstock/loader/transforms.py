"""A function or a fitted workflow that runs inside the loader, on the frames that are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import polars as pl

from penstock.core.errors import ParameterError
from penstock.core.schema import Schema
from penstock.data import Dataset


class Transformer(Protocol):
    """Something with a `transform`, such as a fitted workflow."""

    def transform(self, frame: pl.DataFrame, /) -> Any:
        """The frame that batches are cut from, with as many rows."""
        ...


Transform: TypeAlias = Callable[[pl.DataFrame], pl.DataFrame] | Transformer


def with_transform(dataset: Dataset, transform: Transform | None) -> Dataset:
    """The data set as `transform` leaves it: a callable on polars frames, or an object with `transform(frame)`.

    A workflow says by itself what it reads and what it makes (`input_schema`, `output_schema`). A plain function gets
    all columns and is tried on the first rows to see what comes out. Both must keep the rows as they are.

    >>> double = lambda frame: frame.with_columns(double=pl.col("price") * 2)
    >>> with_transform(Dataset({"price": [1.0, 2.0]}), double).schema.names
    ['price', 'double']
    """
    if transform is None:
        return dataset
    function: Any = getattr(transform, "transform", transform)
    if not callable(function):
        raise ParameterError(f"transform must be callable or have a transform method, got {transform!r}")
    inputs, output = getattr(transform, "input_schema", None), getattr(transform, "output_schema", None)
    if output is None:
        inputs, output = None, _observed(dataset, function)
    return dataset.map(function, output, inputs=None if inputs is None else list(inputs.names))


def _observed(dataset: Dataset, function: Callable[[pl.DataFrame], pl.DataFrame]) -> Schema:
    """The schema of what the function makes of the first rows; roles and cardinalities of kept columns stay."""
    frame = function(dataset.head(100))
    if not isinstance(frame, pl.DataFrame):
        raise ParameterError(f"transform must return a polars DataFrame, it returned {type(frame).__name__}")
    made = Schema.from_polars(dict(frame.schema))
    columns = []
    for column in made:
        before = dataset.schema.get(column.name)
        columns.append(
            before if before and (before.dtype, before.is_list) == (column.dtype, column.is_list) else column
        )
    return Schema(columns)
