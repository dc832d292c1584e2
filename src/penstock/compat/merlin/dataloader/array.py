"""Merlin's loader for NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.compat.merlin.dataloader.loader_base import MerlinLoader
from penstock.loader import Loader as NativeLoader

__all__ = ["ArrayLoader"]


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
