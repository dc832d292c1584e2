"""Which columns a loader gives, and in what form: as the data set describes them after the transforms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from penstock.compat.merlin.dag.base_operator import BaseOperator
from penstock.compat.merlin.dag.binding import bind
from penstock.compat.merlin.dag.graph import Graph
from penstock.compat.merlin.dag.node import as_node
from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.merlin.dataloader._embeddings import EmbeddingOperator
from penstock.compat.merlin.dataloader._nested import fixed_shapes, flattened, size_of
from penstock.compat.merlin.dataloader._padding import Padding
from penstock.compat.merlin.io.dataset import Dataset
from penstock.compat.merlin.io.opening import opened
from penstock.compat.missing import CompatTypeError
from penstock.core.dtypes import FLOATS, INTEGERS
from penstock.core.errors import ParameterError
from penstock.core.schema import Role
from penstock.core.schema import Schema as NativeSchema
from penstock.data import dataset as native_data
from penstock.etl import workflow as native_etl
from penstock.etl.graph import Node as NativeNode
from penstock.etl.operator import Operator as NativeOperator
from penstock.loader.settings import Pad
from penstock.loader.transforms import with_transform


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
