"""Merlin's loader for NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.compat.merlin.dataloader.loader_base import LoaderBase, columns_of
from penstock.core.batch import Batch
from penstock.loader import Loader as NativeLoader

__all__ = ["ArrayLoader"]


class ArrayLoader(LoaderBase, NativeLoader):
    """Batches `({name: (B,)}, label)` of NumPy arrays; lists as `x__values` and `x__offsets`.

    >>> from penstock.compat.merlin.io import Dataset
    >>> features, label = ArrayLoader(Dataset({"user": [1, 2, 3]}), batch_size=2, shuffle=False).peek()
    >>> features["user"].tolist()
    [1, 2]
    """

    device = "cpu"

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
        super().__init__(
            wanted.data, batch_size, shuffle=shuffle, last_batch="drop" if drop_last else "keep",
            parts_per_chunk=parts_per_chunk, rank=global_rank or 0, world=global_size or 1, **wanted.options,
        )  # fmt: skip

    def array_lib(self) -> Any:
        return np

    def _convert(self, batch: Batch) -> Any:
        features, labels = super()._convert(batch)
        return self._as_today(features, np.asarray, np.asarray), labels
