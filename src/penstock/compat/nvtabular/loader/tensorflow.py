"""NVTabular's loader for Keras. Importing it follows `TF_MEMORY_ALLOCATION`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from penstock.compat import settings as age
from penstock.compat.merlin.dag import ungroup_values_offsets
from penstock.compat.merlin.dataloader._columns import at_most, flattened, missing_numbers
from penstock.compat.merlin.dataloader.loader_base import LoaderMixin, given
from penstock.compat.merlin.io.dataset import Dataset
from penstock.compat.merlin.io.opening import naturally_sorted, opened
from penstock.compat.merlin.schema import as_native
from penstock.core.batch import Batch, Ragged
from penstock.core.errors import ColumnNotFoundError, DataError, ParameterError, SchemaError
from penstock.core.params import BOOL, CALLABLE, NONE, Instance, Int, OneOf, Real, check
from penstock.core.schema import Role, Schema
from penstock.data import dataset as native
from penstock.loader import settings
from penstock.loader.keras import Loader, keras, refuse_label_among_features
from penstock.loader.plan import EpochPlan
from penstock.loader.settings import Pad
from penstock.loader.tensorflow_memory import limit_memory_from_environment
from penstock.nn.keras.columns import FeatureColumn
from penstock.nn.keras.columns import feature_columns as as_feature_columns

limit_memory_from_environment()

__all__ = ["KerasSequenceLoader", "KerasSequenceValidater"]

_LIVE_CHUNKS = 3  # one in use, two on their way
_MEMORY = 16 << 30  # what fractions are of: were it this machine's, the order of the rows would depend on it
_LARGEST = 4  # times the usual chunk: beyond that a fraction of a large memory only delays the first batch
_NAMES = Instance((list, tuple, str), "a list of column names") | NONE


class KerasSequenceLoader(LoaderMixin, Loader):
    """Batches `({name: (rows, 1)}, labels)` for `model.fit`.

    In the last releases lists come as `name__values` and `name__offsets`, before as `(values, row lengths)`; so they do
    once a layer of NVTabular was built on such a pair.

    Args:
        paths_or_dataset: a path, a glob pattern, a list of paths, a frame, or a `Dataset`.
        batch_size: rows of a batch.
        label_names: the columns to predict.
        feature_columns: `tf.feature_column` descriptors of the inputs, instead of `cat_names` and `cont_names`.
        cat_names, cont_names: the inputs by name. Without any of the three, the roles in the schema.
        engine: `"parquet"` or `"csv"`; told from the file names when left out.
        shuffle: permute row groups over the whole data set and rows inside each chunk.
        seed_fn: called at the start of each epoch, gives its seed; must give the same on every rank.
        buffer_size: what is loaded at one time. Below 1 a fraction of 16 GiB (whatever the machine has: the order of
            the rows depends on it), below `batch_size` so many batches, else rows.
        device: `"cpu"` or the number of a GPU. Batches wait in host memory in any case: TensorFlow moves them.
        parts_per_chunk: where a `Dataset` is given, so many of its partitions are shuffled together.
        reader_kwargs: how pandas or cuDF would have read the paths.
        global_size, global_rank: how many processes share the data set, and which of them this is.
        drop_last: leave out the rows that fill no batch.
        sparse_names, sparse_max, sparse_as_dense: list columns that come as a `tf.SparseTensor`, the most items each
            may have, and whether they come as a dense array filled up with 0 instead. One that `sparse_max` does not
            name is a `tf.RaggedTensor`.
        schema: roles and cardinalities, where the data has none beside it.

    >>> from penstock.compat.nvtabular import Dataset
    >>> data = Dataset({"user": [1, 2, 3], "price": [0.5, 1.0, 1.5], "click": [0, 1, 0]})
    >>> loader = KerasSequenceLoader(data, 2, ["click"], cat_names=["user"], cont_names=["price"], shuffle=False)
    >>> [sorted(features) for features, labels in loader]
    [['price', 'user'], ['price', 'user']]
    """

    def __init__(
        self,
        paths_or_dataset: Any,
        batch_size: int,
        label_names: Sequence[str] | None = None,
        feature_columns: Sequence[Any] | None = None,
        cat_names: Sequence[str] | None = None,
        cont_names: Sequence[str] | None = None,
        engine: str | None = None,
        shuffle: bool = True,
        seed_fn: Callable[[], int] | None = None,
        buffer_size: float = 0.1,
        device: int | str | None = None,
        parts_per_chunk: int = 1,
        reader_kwargs: Mapping[str, Any] | None = None,
        global_size: int | None = None,
        global_rank: int | None = None,
        drop_last: bool = False,
        sparse_names: Sequence[str] | None = None,
        sparse_max: Mapping[str, int] | None = None,
        sparse_as_dense: bool = False,
        schema: Any = None,
    ) -> None:
        self._given = given(locals())
        check("seed_fn", seed_fn, CALLABLE | NONE)
        check("buffer_size", buffer_size, Real(min=0))
        check("parts_per_chunk", parts_per_chunk, Int(min=1))
        check("device", device, Int(min=0) | OneOf(("cpu",)) | NONE)
        check("drop_last", drop_last, BOOL)
        check("label_names", label_names, _NAMES)
        if feature_columns is not None and (cat_names is not None or cont_names is not None):
            raise ParameterError("feature_columns replaces cat_names and cont_names: give one or the others")
        data, is_open = _opened(paths_or_dataset, engine, reader_kwargs, as_native(schema))
        data = flattened(data)
        columns = None if feature_columns is None else as_feature_columns(feature_columns)
        names = _chosen(data.schema, columns, cat_names, cont_names, label_names)
        if columns is not None:
            data = data.with_schema(_sized(data.schema, columns))
        self._tables = {c.name: c.size for c in columns or () if c.has_ids and c.default is None}
        self._seed_fn, self._batch_ops, self._age = seed_fn, [], age.nvtabular()
        self._widths = {n: int(width) for n, width in (sparse_max or {}).items() if n in (sparse_names or ())}
        self._dense_lists = sparse_as_dense
        super().__init__(
            data,
            batch_size,
            categorical=names[Role.CATEGORICAL],
            continuous=names[Role.CONTINUOUS],
            labels=names[Role.LABEL],
            shuffle=shuffle,
            last_batch="drop" if drop_last else "keep",
            lists=_lists(data.schema, names, columns, sparse_names, sparse_max, sparse_as_dense),
            chunk_rows=_partition_rows(data, parts_per_chunk) if is_open and parts_per_chunk > 1 else None,
            fill=missing_numbers(data.schema, [name for group in names.values() for name in group]),
            rank=global_rank or 0,
            world=global_size or 1,
        )
        if not is_open:
            self.chunk_rows = _buffered_rows(buffer_size, batch_size, self._stored_bytes())
            self._plans.clear()

    def _lists_of(self, choice: Any, lists: Ragged, put: Any) -> Any:
        if choice == "row_lengths" and self._flat_lists():
            return tuple(put(part) for part in lists)
        return super()._lists_of(choice, lists, put)

    def _convert(self, batch: Batch) -> Any:
        for name, width in self._widths.items():
            at_most(width, name, batch.ragged[name], "sparse_max allows {limit} items")
        made = super()._convert(batch)
        if not self._dense_lists:
            made[0].update({name: _sparse(made[0][name], width) for name, width in self._widths.items()})
        return (ungroup_values_offsets(made[0]), *made[1:]) if self._flat_lists() else made

    def _flat_lists(self) -> bool:
        return self._age == "latest" and not age.list_pairs()

    def _iterate(self, plan: EpochPlan, start: int, stop: int) -> Iterator[Any]:
        try:
            yield from super()._iterate(plan, start, stop)
        except DataError as error:
            self._name_small_table(error)
            raise

    def _name_small_table(self, error: DataError) -> None:
        """If an id was found outside an embedding, say which embedding has to grow, and how far."""
        for name, size in self._tables.items():
            if f"column {name!r} holds" in str(error):
                pieces = (frame.get_column(name) for frame in self.dataset.iter_frames([name]))
                tops = [(s.list.max() if self._schema[name].is_list else s).max() for s in pieces]
                largest = max(int(top) for top in tops if top is not None)  # type: ignore[arg-type]
                raise SchemaError(
                    f"the feature column of {name!r} has {size} buckets, and the largest id in the data is {largest}: "
                    f"it needs {largest + 1}"
                ) from error


class KerasSequenceValidater(keras.callbacks.Callback):  # type: ignore[name-defined]
    """Callback that evaluates the model on a loader at the end of each epoch.

    Metrics start from nothing each time. Results go into the logs as `val_*`, and so into the history. Callbacks that
    watch them (`EarlyStopping`, `ModelCheckpoint`) come after this one in the list.

    >>> KerasSequenceValidater(Loader({"x": [1.0], "y": [1]}, continuous=["x"], labels=["y"])).loader.num_rows
    1
    """

    _supports_tf_logs = False

    def __init__(self, dataloader: Any) -> None:
        super().__init__()
        if len(dataloader) == 0:
            raise DataError(f"the validation set is empty: {dataloader!r}")
        self.loader = dataloader

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        results = self.model.evaluate(self.loader, verbose=0, return_dict=True)
        if logs is not None:
            logs.update({f"val_{name}": value for name, value in results.items()})


def _sparse(lists: Any, width: int) -> Any:
    """A `tf.RaggedTensor` as a `tf.SparseTensor` of a given width."""
    from tensorflow import SparseTensor

    sparse = lists.to_sparse()
    return SparseTensor(sparse.indices, sparse.values, (lists.shape[0], width))


def _opened(source: Any, engine: str | None, reader_kwargs: Any, schema: Schema | None) -> tuple[native.Dataset, bool]:
    """The data, and whether it was open already."""
    if isinstance(source, (Dataset, native.Dataset)):
        if reader_kwargs:
            raise ParameterError("reader_kwargs say how to open paths; a Dataset is open already")
        data = source.native if isinstance(source, Dataset) else source
        return data if schema is None else data.with_schema(schema), True
    if reader_kwargs or engine == "avro" or not isinstance(source, (str, list, tuple)):
        kwargs = dict(reader_kwargs or {})
        known = ("part_mem_fraction", "storage_options", "dtypes")
        fraction, storage, dtypes = (kwargs.pop(name, None) for name in known)
        data = opened(source, engine, None, kwargs.pop("part_size", "1MB"), fraction, storage, dtypes, kwargs)
        return data if schema is None else data.with_schema(schema), True
    check("engine", engine, OneOf((None, "parquet", "csv", "tsv", "ipc")))
    paths = naturally_sorted(source) if isinstance(source, (list, tuple)) else source
    return native.Dataset(paths, format=engine, schema=schema, part_size="1MB"), False


def _chosen(
    schema: Schema,
    columns: Sequence[FeatureColumn] | None,
    cat_names: Sequence[str] | None,
    cont_names: Sequence[str] | None,
    label_names: Sequence[str] | None,
) -> dict[Role, list[str]]:
    """The columns by role, all of them in the data and none twice."""
    roles = {role: schema.select(roles=role).names for role in (Role.CATEGORICAL, Role.CONTINUOUS, Role.LABEL)}
    labels = roles[Role.LABEL] if label_names is None else _names(label_names)
    if columns is not None:
        cats = [c.name for c in columns if c.has_ids]
        conts = [c.name for c in columns if not c.has_ids]
    elif cat_names is None and cont_names is None:
        cats, conts = ([n for n in roles[r] if n not in labels] for r in (Role.CATEGORICAL, Role.CONTINUOUS))
    else:
        cats, conts = _names(cat_names), _names(cont_names)
    refuse_label_among_features([*cats, *conts], labels)
    for name in (*cats, *conts, *labels):
        if name not in schema:
            raise ColumnNotFoundError(name, schema.names)
    if not cats and not conts:
        raise ParameterError("there are no features: give feature_columns, or cat_names and cont_names")
    return {Role.CATEGORICAL: cats, Role.CONTINUOUS: conts, Role.LABEL: labels}


def _names(names: Sequence[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or [])


def _sized(schema: Schema, columns: Sequence[FeatureColumn]) -> Schema:
    """The schema with the sizes of the embeddings as cardinalities, which the loader checks ids against."""
    for column in columns:
        known = schema[column.name]
        if not column.has_ids or column.default is not None:
            schema = schema.with_column(known.with_(cardinality=None))
            continue
        if known.cardinality is not None and known.cardinality > column.size:
            raise SchemaError(
                f"the feature column of {column.name!r} has {column.size} buckets, and the largest id in the data is "
                f"{known.cardinality - 1}, as its schema says: it needs {known.cardinality}"
            )
        schema = schema.with_column(known.with_(cardinality=column.size))
    return schema


def _lists(
    schema: Schema,
    names: Mapping[Role, Sequence[str]],
    columns: Sequence[FeatureColumn] | None,
    sparse_names: Sequence[str] | None,
    sparse_max: Mapping[str, int] | None,
    as_dense: bool,
) -> dict[str, str | Pad]:
    """How each list column comes."""
    chosen = [n for group in names.values() for n in group if schema[n].is_list]
    widths = {c.name: c.size for c in columns or () if not c.has_ids}
    for name in (*(sparse_names or ()), *(sparse_max or {})):
        if name not in chosen:
            raise ParameterError(
                f"sparse_names and sparse_max name {name!r}, which is not a list column that is loaded"
            )
    lists: dict[str, str | Pad] = {}
    for name in chosen:
        if name in widths:
            lists[name] = Pad(widths[name])
        elif name in (sparse_names or ()):
            lists[name] = Pad((sparse_max or {}).get(name)) if as_dense else "ragged"
        else:
            lists[name] = "row_lengths"
    return lists


def _partition_rows(data: native.Dataset, parts: int) -> int:
    return max(1, parts * -(-data.num_rows // data.num_partitions))


def _buffered_rows(buffer_size: float, batch_size: int, row_bytes: int) -> int:
    """`buffer_size` as rows."""
    if buffer_size < 1:
        usual = settings.default_chunk_rows(row_bytes)
        rows = int(buffer_size * _MEMORY / (_LIVE_CHUNKS * max(row_bytes, 1)))
        return max(1, min(rows, _LARGEST * usual))
    return int(buffer_size * batch_size if buffer_size < batch_size else buffer_size)
