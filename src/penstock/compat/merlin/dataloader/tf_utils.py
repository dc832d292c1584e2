"""How much GPU memory TensorFlow takes."""

from __future__ import annotations

from typing import Any

from penstock.loader.tensorflow_memory import limit_memory
from penstock.nn.keras.columns import feature_columns as as_feature_columns

__all__ = ["configure_tensorflow", "get_dataset_schema_from_feature_columns"]


def configure_tensorflow(memory_allocation: Any = None, device: Any = None) -> Any:
    """Keep TensorFlow within `memory_allocation` (or `TF_MEMORY_ALLOCATION`); gives its `from_dlpack`.

    >>> callable(configure_tensorflow())
    True
    """
    limit_memory(memory_allocation)
    from tensorflow.experimental.dlpack import from_dlpack

    return from_dlpack


def get_dataset_schema_from_feature_columns(feature_columns: Any) -> tuple[list[str], list[str]]:
    """The names of the columns of ids and of numbers that `tf.feature_column` descriptors read.

    >>> from penstock.nn.keras.columns import FeatureColumn
    >>> columns = [FeatureColumn("user", "embedding", 9, 4), FeatureColumn("age", "numeric")]
    >>> get_dataset_schema_from_feature_columns(columns)
    (['user'], ['age'])
    """
    columns = as_feature_columns(feature_columns)
    return [c.name for c in columns if c.has_ids], [c.name for c in columns if not c.has_ids]
