"""What Merlin's loaders share: the columns of a batch, operators on batches, `next`, `epochs`, `map`, `stop`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np

from penstock.compat.merlin.dag import ungroup_values_offsets
from penstock.compat.merlin.dataloader._columns import Columns, Padding, as_native_dataset, columns_of, reshaped
from penstock.compat.merlin.dataloader._embeddings import EmbeddingOperator
from penstock.compat.merlin.io.dataset import Dataset
from penstock.compat.merlin.schema import Schema
from penstock.compat.merlin.table import TensorTable
from penstock.compat.missing import CompatIndexError, CompatRuntimeError
from penstock.core.errors import ParameterError
from penstock.core.schema import Role
from penstock.core.schema import Schema as NativeSchema
from penstock.loader import Loader as NativeLoader


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a constructor, from its `locals()`.

    >>> given({"self": 1, "__class__": 2, "batch_size": 3})
    {'batch_size': 3}
    """
    return {name: value for name, value in arguments.items() if name not in ("self", "__class__")}


class SeededEpochs:
    """Mixin over one of Penstock's loaders: `seed_fn` gives the seed of each epoch, where there is one."""

    _seed_fn: Callable[[], int] | None = None

    def _epoch_seed(self, epoch: int) -> int:
        return super()._epoch_seed(epoch) if self._seed_fn is None else int(self._seed_fn())  # type: ignore[misc]


class LoaderMixin(SeededEpochs):
    """Mixin over one of Penstock's loaders; `num_rows_processed` counts rows.

    >>> LoaderMixin._cursor is None
    True
    """

    _cursor: Iterator[Any] | None = None
    _given: Mapping[str, Any]  # what the loader was made with
    _made: Mapping[str, Any] = MappingProxyType({})  # the same, of a loader that takes its columns from a schema
    _batch_ops: list[EmbeddingOperator]
    _padding: Padding | None = None
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

    @property
    def _working(self) -> bool:
        """Whether `next` is in the middle of an epoch."""
        return self._cursor is not None

    @property
    def _batch_itr(self) -> Iterator[Any] | None:
        return self._cursor

    @property
    def indices(self) -> np.ndarray:
        """The numbers of the data set's partitions; every rank reads from all of them here."""
        return np.arange(self.dataset.num_partitions) if self._order is None else self._order  # type: ignore[attr-defined]

    # Merlin's way to the rows, which old code looks into; batches come by the plan of Penstock's loader.

    _order: np.ndarray | None = None

    def _shuffle_indices(self) -> None:
        """Put `indices` in another order: that of `seed_fn`, which is called once, or any."""
        seed = None if self._seed_fn is None else self._seed_fn()
        self._order = np.random.RandomState(seed).permutation(self.indices)

    def _indices_for_process(self) -> list[int]:
        """The partitions that Merlin gave to this rank."""
        world, rank = self.global_size, self.global_rank
        if len(self.indices) < world:
            raise CompatIndexError(
                f"there are {world} processes for {len(self.indices)} partitions; take fewer processes"
            )
        each = math.ceil(len(self.indices) / world)
        return [int(number) for number in self.indices[rank * each : (rank + 1) * each]]

    def _data_iter(self, epochs: int = 1) -> Any:
        """The frames of this rank's partitions."""
        data = self._given["dataset"]
        data = data if isinstance(data, Dataset) else Dataset(data)
        return data.to_iter(indices=self._indices_for_process(), epochs=epochs)

    @property
    def _buff(self) -> SimpleNamespace:
        return SimpleNamespace(itr=self._data_iter())

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
        loaded: NativeSchema = self._schema  # type: ignore[attr-defined]
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
        """The columns of a batch, as Merlin's schema; with `transforms`, its features."""
        whole = bool(self._made) and self.transforms is None
        columns = [c for c in self._described if whole or c.role is not Role.LABEL]
        outputs = Schema.from_native(NativeSchema(columns))
        if self._padding is not None:
            outputs = self._padding.compute_output_schema(outputs, None)
        for op in self._batch_ops:
            outputs = op.compute_output_schema(outputs, None)
        return outputs

    _output_schema = output_schema  # as old code reads it too

    @property
    def input_schema(self) -> Schema:
        """What the data set holds, as Merlin's schema. Another one makes the loader anew: its columns are loaded."""
        made = self._made.get("dataset", self.dataset)  # type: ignore[attr-defined]
        return made.schema if isinstance(made, Dataset) else Schema.from_native(as_native_dataset(made).schema)

    @input_schema.setter
    def input_schema(self, schema: Schema) -> None:
        if not self._made:
            raise ParameterError(f"{type(self).__name__} takes its columns by name; make another one")
        if self._working:
            raise CompatRuntimeError(
                "Setting the input_schema after the dataloader has started is not supported: set it before the first "
                "batch, or after stop()"
            )
        data = Dataset(as_native_dataset(self._made["dataset"]))
        data.schema = schema
        self._again(dataset=data)

    @property
    def batch_size(self) -> int:
        """Rows of a batch. Another number makes the loader anew."""
        return int(self.__dict__["batch_size"])

    @batch_size.setter
    def batch_size(self, rows: int) -> None:
        before = self.__dict__.get("batch_size")
        if before is None or before == rows or self._given["batch_size"] == rows:
            self.__dict__["batch_size"] = rows
        else:
            self._again(batch_size=rows)

    def _again(self, **changes: Any) -> None:
        """Make the loader anew, with other arguments."""
        self.stop()
        maps, given = self._maps, self._given
        self.__dict__.pop("batch_size", None)
        self.__init__(**{**given, **changes})  # type: ignore[misc]
        self._maps = maps

    def _remember(self, arguments: dict[str, Any]) -> None:
        """Keep what the loader was made with, by which `input_schema` makes it anew and old code asks for it."""
        self._made = self._given = given(arguments)
        self.seed_fn, self.drop_last = arguments["seed_fn"], arguments["drop_last"]
        self.global_size, self.global_rank = arguments["global_size"] or 1, arguments["global_rank"] or 0
        self.parts_per_chunk, self.transforms = arguments["parts_per_chunk"], arguments["transforms"]
        self._seed_fn = arguments["seed_fn"]

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_cursor": None}  # type: ignore[dict-item]


class MerlinLoader(LoaderMixin):
    """Mixin: Merlin's constructor and batches `({name: (B,)}, label)`, over the loader of one framework.

    The columns tagged as target are the labels: one is an array, several are a dict, none is None. `transforms` is a
    fitted workflow, a graph, or a list of operators.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        shuffle: bool = True,
        seed_fn: Callable[[], int] | None = None,
        parts_per_chunk: int = 1,
        global_size: int | None = None,
        global_rank: int | None = None,
        drop_last: bool = False,
        transforms: Any = None,
        device: Any = None,
    ) -> None:
        self._remember(locals())
        wanted = columns_of(dataset, transforms)
        self._batch_ops, self._padding, self._row_shapes = wanted.batch_ops, wanted.padding, wanted.shapes
        super().__init__(  # type: ignore[call-arg]
            wanted.data,
            batch_size,
            shuffle=shuffle,
            last_batch="drop" if drop_last else "keep",
            **{**wanted.options, **self._options(wanted)},
        )

    def _options(self, wanted: Columns) -> dict[str, Any]:
        """What the framework's own loader is told besides."""
        made = self._made
        rank, world = made["global_rank"] or 0, made["global_size"] or 1
        return {"parts_per_chunk": made["parts_per_chunk"], "rank": rank, "world": world}

    @property
    def schema(self) -> Any:  # Merlin's, where Penstock's loader has its own
        """What the data set holds; `output_schema` is what comes in a batch."""
        return self.input_schema

    # From the framework's arrays to NumPy's, and back.

    def _get(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def _put(self, array: Any) -> Any:
        return array

    def _row_lengths_to_offsets(self, row_lengths: Any) -> Any:
        """Where each list begins and the last one ends, from their lengths."""
        return self._put(np.concatenate([[0], np.cumsum(self._get(row_lengths))]))

    def convert_batch(self, batch: Any) -> Any:
        """A batch of NumPy arrays (`features`, or features and labels) as one of the loader's framework."""
        if isinstance(batch, tuple):
            return tuple(self.convert_batch(part) for part in batch)
        if isinstance(batch, Mapping):
            return {name: self.convert_batch(part) for name, part in ungroup_values_offsets(batch).items()}
        return None if batch is None else self._put(np.asarray(batch))

    def _convert(self, batch: Any) -> Any:
        """In the schema's order, lists as values and offsets, with what operators on batches add."""
        if self._padding is not None:
            for name, lists in batch.ragged.items():
                self._padding.check(name, lists)
        features, *labels = super()._convert(batch)  # type: ignore[misc]
        names = self.dataset.schema.names  # type: ignore[attr-defined]
        columns = ungroup_values_offsets({n: features[n] for n in names if n in features})
        reshaped(columns, self._row_shapes, self._get, self._put)
        for op in self._batch_ops:
            op.on_batch(columns, self._get, self._put)
        return columns, labels[0] if labels else None


class LoaderBase(MerlinLoader, NativeLoader):
    """A loader without a framework: batches `(TensorTable, label)`, whose columns have `values` and `offsets`.

    >>> features, label = LoaderBase(Dataset({"user": [1, 2, 3], "seen": [[4], [5, 6], []]}), 2, shuffle=False).peek()
    >>> features["user"].values.tolist(), features["seen"].offsets.tolist(), label
    ([1, 2], [0, 1, 3], None)
    """

    device = "cpu"

    def _convert(self, batch: Any) -> Any:
        features, label = super()._convert(batch)
        return TensorTable(features), label


class Epochs:
    """Several epochs of a loader."""

    def __init__(self, loader: Any, count: int) -> None:
        self.loader, self.count = loader, count

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.count):
            yield from self.loader

    @property
    def _buff(self) -> SimpleNamespace:
        return SimpleNamespace(itr=self.loader._data_iter(self.count))

    def __len__(self) -> int:
        return self.count * len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["loader"], name)


# Merlin's loader for NumPy.


class ArrayLoader(MerlinLoader, NativeLoader):
    """Batches `({name: (B,)}, label)` of NumPy arrays; lists as `x__values` and `x__offsets`.

    >>> from penstock.compat.merlin.io import Dataset
    >>> features, label = ArrayLoader(Dataset({"user": [1, 2, 3]}), batch_size=2, shuffle=False).peek()
    >>> features["user"].tolist()
    [1, 2]
    """

    device = "cpu"

    def array_lib(self) -> Any:
        return np

    def __getitem__(self, index: int) -> Any:
        """The next batch, whatever the number is, as in Merlin."""
        return next(self)
