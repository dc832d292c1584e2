"""What Merlin's loaders share: the columns of a batch, operators on batches, `next`, `epochs`, `map`, `stop`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from penstock.compat.merlin.dag.base_operator import BaseOperator
from penstock.compat.merlin.dag.binding import bind
from penstock.compat.merlin.dag.graph import Graph
from penstock.compat.merlin.dag.node import as_node
from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.merlin.dag.utils import ungroup_values_offsets
from penstock.compat.merlin.dataloader._embeddings import EmbeddingOperator
from penstock.compat.merlin.dataloader._padding import Padding
from penstock.compat.merlin.io.dataset import Dataset
from penstock.compat.merlin.io.opening import opened
from penstock.compat.merlin.schema.schema import Schema
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

__all__ = ["LoaderBase"]


@dataclass
class Columns:
    """What a loader is asked for."""

    data: native_data.Dataset
    options: dict[str, Any]  # of Penstock's loader
    batch_ops: list[EmbeddingOperator]


def columns_of(dataset: Any, transforms: Any) -> Columns:
    """Every column of the data set as it leaves the transforms; lists of one length are dense."""
    data = as_native_dataset(dataset)
    workflow, batch_ops, padding = split_transforms(transforms, data)
    data = with_transform(data, workflow)
    schema = data.schema
    labels = schema.select(roles=Role.LABEL).names
    features = [c for c in schema if c.name not in labels]
    cats = [c.name for c in features if c.role is Role.CATEGORICAL or (c.role is Role.OTHER and c.dtype in INTEGERS)]
    lists = {c.name: _list_choice(c, padding) for c in schema if c.is_list}
    options = {
        "categorical": cats,
        "continuous": [c.name for c in features if c.name not in cats],
        "labels": labels,
        "lists": lists or "ragged",
        "fill": missing_numbers(schema, schema.names),
    }
    return Columns(data, options, batch_ops)


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
        return _workflow(transforms, data), [], None
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


class SeededEpochs:
    """Mixin over one of Penstock's loaders: `seed_fn` gives the seed of each epoch, where there is one."""

    _seed_fn: Callable[[], int] | None = None

    def _epoch_seed(self, epoch: int) -> int:
        return super()._epoch_seed(epoch) if self._seed_fn is None else int(self._seed_fn())  # type: ignore[misc]


class LoaderBase(SeededEpochs):
    """Mixin over one of Penstock's loaders; `num_rows_processed` counts rows.

    >>> LoaderBase._cursor is None
    True
    """

    _cursor: Iterator[Any] | None = None
    _made: Mapping[str, Any] = MappingProxyType({})
    _batch_ops: list[EmbeddingOperator]
    _maps: tuple[Callable[[Any], Any], ...]

    def __next__(self) -> Any:
        """The next batch; at the end of an epoch `StopIteration`, and then the next epoch."""
        if self._cursor is None:
            self._cursor = iter(self)  # type: ignore[call-overload]
        try:
            return next(self._cursor)
        except StopIteration:
            self._cursor = None
            raise

    def stop(self) -> None:
        """Let go of the batches that `next` was reading."""
        if self._cursor is not None:
            self._cursor.close()  # type: ignore[attr-defined]
            self._cursor = None

    def epochs(self, epochs: int = 1) -> Any:
        """The loader for several epochs in a row, with their length."""
        return Epochs(self, epochs)

    def map(self, fn: Callable[..., Any]) -> Any:
        """Run `fn(features, labels)` on each batch from now on."""
        self._maps = (*self._maps, lambda batch: fn(*batch))
        return self

    @property
    def _described(self) -> NativeSchema:
        """The columns as the data describes them: Penstock's loader gives a role to each."""
        loaded: NativeSchema = self.schema  # type: ignore[attr-defined]
        return self.dataset.schema.select(loaded.names) if self._made else loaded  # type: ignore[attr-defined]

    @property
    def cat_names(self) -> list[str]:
        return self._described.select(roles=Role.CATEGORICAL).names

    @property
    def cont_names(self) -> list[str]:
        return self._described.select(roles=Role.CONTINUOUS).names

    @property
    def label_names(self) -> list[str]:
        return self._described.select(roles=Role.LABEL).names

    @property
    def output_schema(self) -> Schema:
        """What comes in a batch, as Merlin's schema."""
        outputs = Schema.from_native(self._described)
        for op in self._batch_ops:
            outputs = op.compute_output_schema(outputs, None)
        return outputs

    @property
    def input_schema(self) -> Schema:
        """What the data set holds, as Merlin's schema. Another one makes the loader anew: its columns are loaded."""
        made = self._made.get("dataset", self.dataset)  # type: ignore[attr-defined]
        return made.schema if isinstance(made, Dataset) else Schema.from_native(as_native_dataset(made).schema)

    @input_schema.setter
    def input_schema(self, schema: Schema) -> None:
        if not self._made:
            raise ParameterError(f"{type(self).__name__} takes its columns by name; make another one")
        data = Dataset(as_native_dataset(self._made["dataset"]))
        data.schema = schema
        self.stop()
        maps = self._maps
        self.__init__(**{**self._made, "dataset": data})  # type: ignore[misc]
        self._maps = maps

    def _remember(self, arguments: dict[str, Any]) -> None:
        """Keep what the loader was made with, by which `input_schema` makes it anew and old code asks for it."""
        self._made = {name: value for name, value in arguments.items() if name not in ("self", "__class__")}
        self.seed_fn, self.drop_last = arguments["seed_fn"], arguments["drop_last"]
        self.global_size, self.global_rank = arguments["global_size"] or 1, arguments["global_rank"] or 0
        self.parts_per_chunk, self.transforms = arguments["parts_per_chunk"], arguments["transforms"]
        self._seed_fn = arguments["seed_fn"]

    def _as_today(
        self, features: dict[str, Any], get: Callable[[Any], Any], put: Callable[[Any], Any]
    ) -> dict[str, Any]:
        """A batch's features as they are today: in the schema's order, lists as values and offsets."""
        names = self.dataset.schema.names  # type: ignore[attr-defined]
        columns = ungroup_values_offsets({n: features[n] for n in names if n in features})
        for op in self._batch_ops:
            op.on_batch(columns, get, put)
        return columns

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_cursor": None}  # type: ignore[dict-item]


class Epochs:
    """Several epochs of a loader."""

    def __init__(self, loader: Any, count: int) -> None:
        self.loader, self.count = loader, count

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.count):
            yield from self.loader

    def __len__(self) -> int:
        return self.count * len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["loader"], name)
