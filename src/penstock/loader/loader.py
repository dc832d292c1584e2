"""The loader in plain NumPy: what every adapter builds on, and enough for anything that reads arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.batch import Batch, Ragged
from penstock.core.schema import Role
from penstock.kernels.cpu_gather import pad_lists
from penstock.loader.base import BaseLoader, labels_of
from penstock.loader.settings import Pad


class Loader(BaseLoader):
    """Batches of NumPy arrays from files or frames, decoded and shuffled ahead by threads.

    Args:
        data: a `Dataset`, or anything `Dataset` takes: paths, globs, folders, frames.
        batch_size: rows of a batch.
        categorical, continuous, labels: column names by role; the schema's roles when none is given.
        shuffle: permute the row groups over the whole data set, and the rows inside each chunk.
        seed: with the epoch, rank and world the only thing the order depends on.
        last_batch: `"keep"`, `"drop"` or `"wrap"` the rows that fill no batch (see `EpochPlan`).
        layout: `"dict"` gives `({name: array}, labels)`, `"packed"` gives `(cats, conts, labels)` of `(rows, columns)`.
        dtypes: `{column or role: dtype}` of what is delivered; the stored dtypes by default, and for `"packed"` int64
            ids, float32 numbers and float32 labels.
        lists: `"ragged"` gives `Ragged(values, offsets)`, a `Pad` gives a dense array; or by column.
        fill: what replaces nulls, by column or for all; without it a null is an error.
        transform: a function on polars frames or a fitted workflow, run by the reading threads.
        sampling: a `WeightedSampling` instead of a plain shuffle.
        cache: keep decoded columns for later epochs in `"memory"` or on `"disk"`.
        chunk_rows: rows decoded and shuffled together; about a million by default. Memory is about three chunks.
        parts_per_chunk: the same as a number of partitions of the data set (of its largest).
        rank, world: which share of the data set this loader delivers.
        num_threads: that read and shuffle; one per core by default.

    Arrays stay valid as long as they are kept, but keeping many costs memory: a batch holds on to its whole chunk.

    >>> data = {"user": [1, 2, 3, 4, 5], "price": [0.5, 1.0, 1.5, 2.0, 2.5], "click": [0, 1, 0, 0, 1]}
    >>> loader = Loader(data, batch_size=2, categorical=["user"], continuous=["price"], labels=["click"])
    >>> for features, labels in loader:
    ...     print(features["user"], labels)
    [1 2] [0 1]
    [3 4] [0 0]
    [5] [1]
    >>> len(loader), loader.num_rows_processed
    (3, 5)
    """

    def _convert(self, batch: Batch) -> Any:
        for name in batch.ragged:
            choice = self._lists[name]
            if isinstance(choice, Pad):
                batch.ragged[name] = padded(batch.ragged[name], choice)  # type: ignore[assignment]
        if self.layout == "packed":
            return packed(batch, np.ndarray.transpose, lambda rows, dtype: np.empty((rows, 0), dtype))
        return labels_of(batch.columns(), batch.specs, self._list_labels)

    @property
    def _list_labels(self) -> list[str]:
        return [spec.name for spec in self._layout.lists if spec.role is Role.LABEL]


def padded(ragged: Ragged, pad: Pad) -> np.ndarray:
    """Lists as a dense array."""
    values, offsets = ragged
    width = pad.max_len if pad.max_len is not None else int(np.diff(offsets).max(initial=0))
    out = np.empty((len(offsets) - 1, width), values.dtype)
    pad_lists(values, offsets, out, values.dtype.type(pad.value), pad.side == "left")
    return out


def packed(batch: Batch, transpose: Any, empty: Any) -> tuple[Any, Any, Any]:
    """`(cats, conts, labels)` as transposed views of the blocks; one label is `(rows,)`.

    With list columns `cats` is `(cats, {name: lists})`.
    """
    parts: dict[Role, Any] = {}
    for spec, block in zip(batch.specs, batch.blocks, strict=True):
        if spec.role is Role.LABEL and len(spec.names) == 1:
            parts[spec.role] = block[0]
        else:
            parts[spec.role] = transpose(block)
    cats = parts.get(Role.CATEGORICAL)
    if cats is None:
        cats = empty(batch.num_rows, "int64")
    conts = parts.get(Role.CONTINUOUS)
    if conts is None:
        conts = empty(batch.num_rows, "float32")
    return (cats, dict(batch.ragged)) if batch.ragged else cats, conts, parts.get(Role.LABEL)
