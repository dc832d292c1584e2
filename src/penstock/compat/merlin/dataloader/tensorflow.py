"""Merlin's loader for Keras and TensorFlow."""

from __future__ import annotations

from typing import Any

from penstock.compat.merlin.dataloader._columns import Columns
from penstock.compat.merlin.dataloader.loader_base import MerlinLoader
from penstock.core.batch import Ragged
from penstock.loader import keras as native
from penstock.loader.settings import Pad
from penstock.loader.tensorflow_memory import limit_memory
from penstock.nn.keras.columns import feature_columns as as_feature_columns


class Loader(MerlinLoader, native.Loader):
    """Batches `({name: (B,)}, label)` for `model.fit`; lists as `x__values` and `x__offsets`.

    >>> from penstock.compat.merlin.io import Dataset
    >>> loader = Loader(Dataset({"user": [1, 2, 3]}), batch_size=2, shuffle=False)
    >>> features, label = loader.peek()
    >>> features["user"].numpy().tolist()
    [1, 2]
    """

    def _options(self, wanted: Columns) -> dict[str, Any]:
        options = super()._options(wanted)
        rows = max(1, *wanted.data._row_counts())
        lists = wanted.options["lists"]
        if isinstance(lists, dict):  # ragged lists leave as values and offsets, on every backend
            lists = {n: c if isinstance(c, Pad) else "row_lengths" for n, c in lists.items()}
        chunk_rows = options.pop("parts_per_chunk") * rows
        return {**options, "chunk_rows": chunk_rows, "flat": True, "lists": lists}

    def _put(self, array: Any) -> Any:
        return native._tensor(array)

    def _lists_of(self, choice: Any, lists: Ragged, put: Any) -> Any:
        return super()._lists_of(choice, lists, put) if isinstance(choice, Pad) else tuple(put(part) for part in lists)


# How much GPU memory TensorFlow takes.


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
