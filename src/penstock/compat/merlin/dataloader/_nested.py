"""Lists of lists in batches: a row's values end to end, and back in their shape where that is one for all rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from penstock.compat.merlin.io.dataset import Dataset
from penstock.core.dtypes import inner_of, is_nested
from penstock.core.schema import Schema
from penstock.data import dataset as native
from penstock.data.lists import Lists, flatten


@dataclass(frozen=True)
class _Flattened:
    """Columns whose rows are lists of single values."""

    names: tuple[str, ...]

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(_flat(frame[name]) for name in self.names)


def _flat(series: pl.Series) -> pl.Series:
    values, lists = flatten(series)
    while isinstance(values.dtype, (pl.List, pl.Array)):
        values, inner = flatten(values)
        lists = Lists(lists.name, inner.offsets[lists.offsets], lists.valid)
    return lists.rebuild(values)


def flattened(data: native.Dataset) -> native.Dataset:
    """The data set with lists of lists as lists of their values."""
    names = tuple(c.name for c in data.schema if c.is_list and is_nested(c.dtype))
    if not names:
        return data
    columns = []
    for column in data.schema:
        dtype = column.dtype
        while column.name in names and is_nested(dtype):
            dtype = inner_of(dtype)
        counts = {k: v for k, v in column.properties.items() if k != "value_count" or column.name not in names}
        columns.append(column.with_(dtype=dtype, properties=counts))
    return data.map(_Flattened(names), Schema(columns))


def fixed_shapes(dataset: Any) -> dict[str, tuple[int, ...]]:
    """The shapes of rows that a data set's schema fixes along more than one axis."""
    if not isinstance(dataset, Dataset):
        return {}
    found = {c.name: tuple(c.shape.dims or ())[1:] for c in dataset.schema}
    return {
        name: tuple(int(axis) for axis in axes)
        for name, axes in found.items()
        if len(axes) > 1 and all(axis.is_fixed for axis in axes)
    }


def reshaped(columns: dict[str, Any], shapes: Mapping[str, tuple[int, ...]], get: Any, put: Any) -> None:
    """Give dense columns of a batch the shapes of their rows."""
    for name, shape in shapes.items():
        if name in columns:
            columns[name] = put(get(columns[name]).reshape(-1, *shape))


def size_of(shape: tuple[int, ...]) -> int:
    """How many values a row of a shape has.

    >>> size_of((3, 4))
    12
    """
    return math.prod(shape)
