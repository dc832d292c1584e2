"""Rows of tables for ids, however the ids come: one a row, padded lists, ragged lists, or values and row lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from penstock.core.errors import ColumnNotFoundError, ParameterError, SchemaError
from penstock.loader.keras_import import import_keras
from penstock.nn.keras.columns import FeatureColumn

keras = import_keras()
ops = keras.ops


def column_input(inputs: Mapping[str, Any], name: str) -> Any:
    """A layer's input by name."""
    if not isinstance(inputs, Mapping):
        raise ParameterError(f"this layer takes a dict of inputs by column name, got {type(inputs).__name__}")
    try:
        return inputs[name]
    except KeyError:
        # Keras adds the layer's arguments to an error, and for that makes it anew from its message alone.
        raise SchemaError(str(ColumnNotFoundError(name, inputs, "the inputs of the layer"))) from None


def on_tensorflow() -> bool:
    return bool(keras.backend.backend() == "tensorflow")


def is_ragged(value: Any) -> bool:
    return type(value).__name__ == "RaggedTensor" or bool(getattr(value, "ragged", False))


def numbers(value: Any, column: FeatureColumn, dtype: str) -> Any:
    """A numeric input as `(rows, size)`."""
    if is_ragged(value) or isinstance(value, (tuple, list)):
        raise ParameterError(f"column {column.name!r} is numeric and got lists of any length; load it with a Pad")
    return ops.reshape(ops.cast(value, dtype), (-1, column.size))


def embedded(value: Any, table: Any, column: FeatureColumn, padding: int) -> Any:
    """`(rows, dimension)`: the table's row for each id, or the combined rows of each list."""
    if is_ragged(value):
        return _pooled(value.values, value.value_rowids(), value.nrows(), table, column)
    if isinstance(value, (tuple, list)):
        return _pooled(*_parts(value, column), table, column)
    ids = _in_range(value, column)
    if is_single(value, column):
        return _rows(table, ops.reshape(ids, (-1,)))
    # Padding counts for nothing. Ids below 0 are what tf.feature_column takes for missing.
    valid = ops.logical_and(ops.not_equal(ids, padding), ops.greater_equal(ids, 0))
    mask = ops.expand_dims(ops.cast(valid, table.dtype), -1)
    rows = _rows(table, ops.where(valid, ids, ops.zeros_like(ids)))
    return _combined(ops.sum(rows * mask, axis=1), ops.sum(mask, axis=1), column.combiner)


def is_single(value: Any, column: FeatureColumn) -> bool:
    """Whether a dense input holds one id a row."""
    return column.is_list is not True and (len(value.shape) == 1 or value.shape[-1] == 1)


def _parts(value: Sequence[Any], column: FeatureColumn) -> tuple[Any, Any, Any]:
    """Values, the row of each, and the number of rows, from `(values, row lengths)`."""
    if len(value) != 2:
        raise ParameterError(f"column {column.name!r}: lists come as (values, row lengths), got {len(value)} parts")
    values, lengths = (ops.reshape(part, (-1,)) for part in value)
    count = ops.shape(lengths)[0]
    if on_tensorflow():
        import tensorflow as tf

        return values, tf.repeat(tf.range(count), lengths), count
    return values, ops.repeat(ops.arange(count), lengths), count


def _pooled(values: Any, row_of: Any, num_rows: Any, table: Any, column: FeatureColumn) -> Any:
    rows = _rows(table, _in_range(values, column))
    ones = ops.ones_like(rows[:, :1])
    if on_tensorflow():  # Keras's own wants the number of rows to be known in advance
        import tensorflow as tf

        total, count = (tf.math.unsorted_segment_sum(x, row_of, num_rows) for x in (rows, ones))
    else:
        total, count = (ops.segment_sum(x, row_of, num_segments=num_rows) for x in (rows, ones))
    return _combined(total, count, column.combiner)


def _combined(total: Any, count: Any, combiner: str) -> Any:
    """Sums to what the combiner asks for; an empty list gives zeros."""
    if combiner == "sum":
        return total
    count = ops.maximum(count, 1)
    return total / (count if combiner == "mean" else ops.sqrt(count))


def _rows(table: Any, ids: Any) -> Any:
    if on_tensorflow():  # the gradient of this gather touches only the rows that were used
        import tensorflow as tf

        return tf.gather(table.value if hasattr(table, "value") else table, ids)
    return ops.take(table, ids, axis=0)


def _in_range(ids: Any, column: FeatureColumn) -> Any:
    if column.default is None:
        return ids
    inside = ops.logical_and(ops.greater_equal(ids, 0), ops.less(ids, column.size))
    return ops.where(inside, ids, ops.cast(column.default, ids.dtype))


def ids_checked(inputs: Mapping[str, Any], columns: Sequence[FeatureColumn]) -> AbstractContextManager[None]:
    """Inside it, ids are known to be below the size of their table; if not, an error names column and largest id.

    On a CPU TensorFlow would name neither, on a GPU it would deliver zeros. The price is one pass over the ids.
    """
    checked = [c for c in columns if c.has_ids and c.default is None]
    if not checked or not on_tensorflow():
        return nullcontext()
    import tensorflow as tf

    largest = tf.stack([_largest(column_input(inputs, c.name)) for c in checked])
    sizes = tf.constant([c.size for c in checked], tf.int64)
    wrong = largest >= sizes
    assertion = tf.debugging.Assert(
        tf.logical_not(tf.reduce_any(wrong)),
        [
            "ids outside their embedding: columns", tf.boolean_mask(tf.constant([c.name for c in checked]), wrong),
            "largest ids", tf.boolean_mask(largest, wrong), "rows of the tables", tf.boolean_mask(sizes, wrong),
        ],
    )  # fmt: skip
    # In a graph nothing else would keep the look-up from running first, and failing without a name.
    known: AbstractContextManager[None] = tf.control_dependencies([assertion] if assertion is not None else [])
    return known


def _largest(value: Any) -> Any:
    import tensorflow as tf

    flat = value.values if is_ragged(value) else value[0] if isinstance(value, (tuple, list)) else value
    return tf.cast(tf.reduce_max(flat), tf.int64)  # of nothing: the smallest number there is
