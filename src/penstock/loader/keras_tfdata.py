"""A Keras loader as a `tf.data.Dataset`: static specs, no batch looked at in advance, no copy of aligned columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.core.extras import require
from penstock.core.params import Int, check
from penstock.core.schema import Role
from penstock.loader.settings import Pad

if TYPE_CHECKING:
    from penstock.loader.keras import Loader

tf = require("tensorflow", "keras")


def dataset_of(loader: Loader, prefetch: int) -> Any:
    """The loader's batches. Each iteration is an epoch; leaving it early ends the threads behind it."""
    check("prefetch", prefetch, Int(min=0))
    specs = element_spec(loader)
    flat_specs = tf.nest.flatten(specs, expand_composites=True)

    def generate() -> Iterator[tuple[Any, ...]]:
        for batch in loader._pass():
            yield tuple(tf.nest.flatten(batch, expand_composites=True))

    def packed(*tensors: Any) -> Any:
        return tf.nest.pack_sequence_as(specs, tensors, expand_composites=True)

    # Ragged tensors cross into tf.data as their parts: as wholes they would take a slower road.
    dataset = tf.data.Dataset.from_generator(generate, output_signature=tuple(flat_specs)).map(packed)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(loader)))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = dataset.with_options(options)
    return dataset.prefetch(prefetch) if prefetch else dataset


def element_spec(loader: Loader) -> Any:
    """The structure, dtypes and shapes of a batch; the number of rows is open where the last batch may be shorter."""
    if loader._maps:
        return tf.nest.map_structure(_open_spec, loader.peek())
    rows = None if loader.last_batch == "keep" else loader.batch_size
    specs = {column.name: _column_spec(loader, column.name, rows) for column in loader._schema}
    labels = {column.name: specs.pop(column.name) for column in loader._schema if column.role is Role.LABEL}
    if not labels:
        return (specs,)
    return specs, labels if len(labels) > 1 else labels.popitem()[1]


def _column_spec(loader: Loader, name: str, rows: int | None) -> Any:
    dtype = tf.as_dtype(loader._dtypes[name])
    width = () if loader.flat else (1,)
    choice = loader._lists.get(name)
    if choice is None:
        return tf.TensorSpec((rows, *width), dtype)
    if isinstance(choice, Pad):
        return tf.TensorSpec((rows, choice.max_len), dtype)
    if choice == "ragged":
        return tf.RaggedTensorSpec((rows, None), dtype, ragged_rank=1, row_splits_dtype=tf.int64)
    return tf.TensorSpec((None, *width), dtype), tf.TensorSpec((rows, *width), tf.int64)


def _open_spec(value: Any) -> Any:
    """The spec of a value with any number of rows."""
    spec = tf.type_spec_from_value(value)
    shape = [None, *spec.shape[1:]]
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensorSpec(shape, spec.dtype, spec.ragged_rank, spec.row_splits_dtype)
    return tf.TensorSpec(shape, spec.dtype)
