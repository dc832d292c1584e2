"""Merlin's loader for Keras and TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.compat.merlin.dataloader.loader_base import LoaderBase, columns_of
from penstock.core.batch import Batch, Ragged
from penstock.loader import keras as native
from penstock.loader.settings import Pad

__all__ = ["Loader"]


class Loader(LoaderBase, native.Loader):
    """Batches `({name: (B,)}, label)` for `model.fit`; lists as `x__values` and `x__offsets`.

    >>> from penstock.compat.merlin.io import Dataset
    >>> loader = Loader(Dataset({"user": [1, 2, 3]}), batch_size=2, shuffle=False)
    >>> features, label = loader.peek()
    >>> features["user"].numpy().tolist()
    [1, 2]
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
        self._batch_ops = wanted.batch_ops
        lists = wanted.options.pop("lists")
        if isinstance(lists, dict):  # ragged lists leave as values and offsets, on every backend
            lists = {n: c if isinstance(c, Pad) else "row_lengths" for n, c in lists.items()}
        rows = max(1, *wanted.data._row_counts())
        super().__init__(
            wanted.data, batch_size, shuffle=shuffle, last_batch="drop" if drop_last else "keep", flat=True,
            lists=lists, chunk_rows=parts_per_chunk * rows, rank=global_rank or 0, world=global_size or 1,
            **wanted.options,
        )  # fmt: skip

    def _lists_of(self, choice: Any, lists: Ragged, put: Any) -> Any:
        return super()._lists_of(choice, lists, put) if isinstance(choice, Pad) else tuple(put(part) for part in lists)

    def _convert(self, batch: Batch) -> Any:
        features, *labels = super()._convert(batch)
        return self._as_today(features, np.asarray, native._tensor), labels[0] if labels else None
