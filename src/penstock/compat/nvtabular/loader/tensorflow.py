"""NVTabular's loader for Keras. Importing it follows `TF_MEMORY_ALLOCATION`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.compat.merlin.dataloader.loader_base import missing_numbers
from penstock.compat.merlin.io.dataset import Dataset
from penstock.compat.merlin.io.opening import naturally_sorted, opened
from penstock.compat.merlin.schema.schema import as_native
from penstock.core.errors import ParameterError
from penstock.loader import keras_sequence as native
from penstock.loader.frames import Fill
from penstock.loader.keras_sequence import KerasSequenceValidater

__all__ = ["KerasSequenceLoader", "KerasSequenceValidater"]


class KerasSequenceLoader(native.KerasSequenceLoader):
    """Batches `({name: (B, 1)}, labels)` for `model.fit`; lists as `(values, row lengths)`.

    >>> from penstock.compat.nvtabular import Dataset
    >>> data = Dataset({"user": [1, 2, 3], "click": [0, 1, 0]})
    >>> features, labels = KerasSequenceLoader(data, 2, ["click"], cat_names=["user"], shuffle=False).peek()
    >>> features["user"].shape, labels.shape
    (TensorShape([2, 1]), TensorShape([2, 1]))
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
        seed_fn: Any = None,
        buffer_size: float = 0.1,
        device: Any = None,
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
        source, options = _source(paths_or_dataset, engine, reader_kwargs)
        super().__init__(
            source, batch_size, label_names, feature_columns, cat_names, cont_names, options.pop("engine"), shuffle,
            seed_fn, buffer_size, device, parts_per_chunk, None, global_size, global_rank, drop_last, sparse_names,
            sparse_max, sparse_as_dense, as_native(schema),
        )  # fmt: skip
        self._fill = Fill(missing_numbers(self.schema, self.schema.names))


def _source(source: Any, engine: str | None, reader_kwargs: Mapping[str, Any] | None) -> tuple[Any, dict[str, Any]]:
    """What Penstock's loader opens: paths as they are, unless pandas' reader arguments say how to read them."""
    if isinstance(source, Dataset):
        if reader_kwargs:
            raise ParameterError("reader_kwargs say how to open paths; a Dataset is open already")
        return source.native, {"engine": None}
    if reader_kwargs or engine == "avro" or not isinstance(source, (str, list, tuple)):
        kwargs = dict(reader_kwargs or {})
        known = ("part_mem_fraction", "storage_options", "dtypes")
        fraction, storage, dtypes = (kwargs.pop(name, None) for name in known)
        data = opened(source, engine, None, kwargs.pop("part_size", "1MB"), fraction, storage, dtypes, kwargs)
        return data, {"engine": None}
    return naturally_sorted(source) if isinstance(source, (list, tuple)) else source, {"engine": engine}
