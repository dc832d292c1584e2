"""Which columns a loader gives, and in what form: as the data set describes them after the transforms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from penstock.compat.merlin.dag.base_operator import BaseOperator
from penstock.compat.merlin.dag.binding import bind
from penstock.compat.merlin.dag.graph import Graph
from penstock.compat.merlin.dag.node import as_node
from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.merlin.dataloader._embeddings import EmbeddingOperator
from penstock.compat.merlin.io.dataset import Dataset
from penstock.compat.merlin.io.opening import opened
from penstock.compat.merlin.schema import Schema
from penstock.compat.missing import CompatTypeError
from penstock.core.batch import Ragged
from penstock.core.dtypes import FLOATS, INTEGERS, inner_of, is_nested
from penstock.core.errors import DataError, ParameterError
from penstock.core.params import Int, Real, check
from penstock.core.schema import Role
from penstock.core.schema import Schema as NativeSchema
from penstock.data import dataset as native_data
from penstock.data.lists import Lists, flatten
from penstock.etl import workflow as native_etl
from penstock.etl.graph import Node as NativeNode
from penstock.etl.operator import Operator as NativeOperator
from penstock.loader.loader import padded
from penstock.loader.settings import Pad
from penstock.loader.transforms import with_transform

# Lists filled up to one length.


class Padding(BaseOperator):
    """Fill every list up to `padding_size` items; in a loader the batches hold dense `(B, padding_size)` arrays.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"items": [[1, 2], [4]]})
    >>> [row.tolist() for row in Padding(3).transform(["items"], frame)["items"]]
    [[1, 2, 0], [4, 0, 0]]
    """

    keeps_dtypes = True

    def __init__(self, padding_size: int, padding_value: float = 0) -> None:
        check("padding_size", padding_size, Int(min=1))
        check("padding_value", padding_value, Real())
        self.padding_size, self.padding_value = padding_size, padding_value

    def compute_output_schema(self, input_schema: Schema, col_selector: Any, prev_output_schema: Any = None) -> Schema:
        outputs = super().compute_output_schema(input_schema, col_selector, prev_output_schema)
        return Schema([c.with_shape((None, self.padding_size)) if c.is_list else c for c in outputs])

    @property
    def pad(self) -> Pad:
        return Pad(self.padding_size, value=self.padding_value)

    def transform(self, col_selector: Any, df: Any) -> Any:
        out = df.copy(deep=False)
        for name in getattr(col_selector, "names", col_selector):
            series = pl.Series(pl.from_pandas(df[name]))
            if isinstance(series.dtype, pl.List):
                values, lists = flatten(series)
                ragged = Ragged(values.to_numpy(), lists.offsets)
                self.check(name, ragged)
                out[name] = list(padded(ragged, self.pad))
        return out

    def check(self, name: str, lists: Ragged) -> None:
        """Refuse lists that are longer: to cut them would be to lose values."""
        at_most(
            self.padding_size, name, lists, "There are records in data that have more values than padding_size={limit}"
        )


def at_most(limit: int, name: str, lists: Ragged, words: str) -> None:
    """Refuse a batch with a list of more than `limit` items.

    >>> import numpy as np
    >>> at_most(1, "seen", Ragged([4, 5], np.array([0, 2])), "sparse_max allows {limit}")
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: sparse_max allows 1: column 'seen' has a list of 2 items; raise it
    """
    longest = int(lists.lengths.max()) if len(lists.lengths) else 0
    if longest > limit:
        raise DataError(f"{words.format(limit=limit)}: column {name!r} has a list of {longest} items; raise it")


# Lists of lists in batches: a row's values end to end, and back in their shape where that is one for all rows.


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


def flattened(data: native_data.Dataset) -> native_data.Dataset:
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
    return data.map(_Flattened(names), NativeSchema(columns))


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


@dataclass
class Columns:
    """What a loader is asked for."""

    data: native_data.Dataset
    options: dict[str, Any]  # of Penstock's loader
    batch_ops: list[EmbeddingOperator]
    padding: Padding | None
    shapes: dict[str, tuple[int, ...]]  # of rows that have more than one axis


def columns_of(dataset: Any, transforms: Any) -> Columns:
    """Every column of the data set as it leaves the transforms; lists of one length are dense."""
    data = as_native_dataset(dataset)
    workflow, batch_ops, padding = split_transforms(transforms, data)
    data = flattened(with_transform(data, workflow))
    shapes = fixed_shapes(dataset)
    schema = data.schema
    if not schema.names:
        raise ParameterError(
            "Neither Categorical or Continuous columns were found by the dataloader. The data set has no columns"
        )
    labels = schema.select(roles=Role.LABEL).names
    features = [c for c in schema if c.name not in labels]
    cats = [c.name for c in features if c.role is Role.CATEGORICAL or (c.role is Role.OTHER and c.dtype in INTEGERS)]
    lists = {
        c.name: Pad(size_of(shapes[c.name])) if c.name in shapes else _list_choice(c, padding)
        for c in schema
        if c.is_list
    }
    options = {
        "categorical": cats,
        "continuous": [c.name for c in features if c.name not in cats],
        "labels": labels,
        "lists": lists or "ragged",
        "fill": missing_numbers(schema, schema.names),
    }
    return Columns(data, options, batch_ops, padding, shapes)


def as_native_dataset(dataset: Any) -> native_data.Dataset:
    """Penstock's data set from any that a loader is given."""
    if isinstance(dataset, Dataset):
        return dataset.native
    return opened(dataset, None, None, "1MB", None, None, None, {})


def missing_numbers(schema: NativeSchema, names: Any) -> dict[str, float]:
    """Missing floats come as NaN, as they did from pandas and cuDF."""
    return {n: math.nan for n in names if schema[n].dtype in FLOATS and not schema[n].is_list}


def _list_choice(column: Any, padding: Padding | None) -> str | Pad:
    if padding is not None:
        return padding.pad
    counts = column.properties.get("value_count") or {}
    if counts.get("max") and counts.get("min") == counts.get("max"):
        return Pad(int(counts["max"]))
    return "ragged"


def split_transforms(transforms: Any, data: native_data.Dataset) -> tuple[Any, list[EmbeddingOperator], Padding | None]:
    """A workflow for the frames that are read, look-ups for the batches, and how lists are padded."""
    if transforms is None:
        return None, [], None
    if not isinstance(transforms, (list, tuple)):
        graph, looked_up = _look_ups(transforms)
        return _workflow(graph, data), looked_up, None
    batch_ops: list[EmbeddingOperator] = []
    padding: Padding | None = None
    node = as_node(ColumnSelector("*"))
    steps = 0
    for op in transforms:
        if isinstance(op, EmbeddingOperator):
            batch_ops.append(op)
        elif isinstance(op, Padding):
            padding = op
        elif not isinstance(op, (BaseOperator, NativeOperator)):
            raise CompatTypeError(f"transforms takes operators, got {op!r}")
        elif batch_ops or padding is not None:
            raise ParameterError(f"{op!r} comes after an operator on batches; put Padding and embeddings last")
        else:
            node, steps = node >> op, steps + 1
    return _workflow(node, data) if steps else None, batch_ops, padding


def _look_ups(transforms: Any) -> tuple[Any, list[EmbeddingOperator]]:
    """A graph without the look-ups that it ends with, and these: they are made for batches."""
    node = transforms.output_node if isinstance(transforms, Graph) else transforms
    found: list[EmbeddingOperator] = []
    while isinstance(node, NativeNode) and isinstance(op := getattr(node.operator, "op", None), EmbeddingOperator):
        found.insert(0, op)
        [node] = node.feeds
    return (node, found) if found else (transforms, [])


def _workflow(transforms: Any, data: native_data.Dataset) -> native_etl.Workflow:
    found = getattr(transforms, "native", transforms)
    if isinstance(found, native_etl.Workflow):
        return found
    if isinstance(found, Graph):
        found = found.output_node
    if not isinstance(found, (NativeNode, ColumnSelector, BaseOperator)):
        raise ParameterError(f"transforms takes a fitted Workflow, a graph or a list of operators, got {transforms!r}")
    workflow = native_etl.Workflow(as_node(found) if not isinstance(found, BaseOperator) else "*" >> found)
    bind(workflow.output, data.schema, data)
    return workflow.fit_schema(data.schema)
