"""The loader for JAX: arrays on the default device, or on the one that is asked for."""

from __future__ import annotations

from typing import Any

from penstock.core.batch import Batch, Ragged
from penstock.core.extras import require
from penstock.core.schema import Role
from penstock.data.sources import DataLike
from penstock.loader.base import BaseLoader, labels_of
from penstock.loader.loader import packed, padded
from penstock.loader.settings import Pad

jax = require("jax", "jax")


class Loader(BaseLoader):
    """Batches of JAX arrays; arguments are those of `penstock.loader.Loader`.

    Without `jax_enable_x64` JAX has no 64-bit numbers, so 64-bit columns are delivered in 32 bits; an id that does not
    fit is an error. Use `last_batch="wrap"` or `"drop"` for batches of one shape, which compile once.

    Args:
        data: as `penstock.loader.Loader` takes it.
        batch_size: rows of a batch.
        device: a JAX device; the first by default.
        options: the others of `penstock.loader.Loader`.

    >>> loader = Loader({"user": [1, 2, 3], "click": [0, 1, 0]}, 2, categorical=["user"], labels=["click"])
    >>> [(features["user"].tolist(), labels.tolist()) for features, labels in loader]
    [([1, 2], [0, 1]), ([3], [0])]
    """

    def __init__(self, data: DataLike, batch_size: int = 65_536, *, device: Any = None, **options: Any) -> None:
        if not jax.config.jax_enable_x64:
            self._substitutes = {"int64": "int32", "uint64": "uint32", "float64": "float32"}
            if options.get("layout") == "packed":
                options["dtypes"] = {"categorical": "int32", **(options.get("dtypes") or {})}
        super().__init__(data, batch_size, **options)
        self.device = device

    def _convert(self, batch: Batch) -> Any:
        if self.layout == "packed":
            batch.blocks = [self._put(block) for block in batch.blocks]
        else:
            batch.blocks = [[self._put(column) for column in block] for block in batch.blocks]
        batch.ragged = {name: self._lists_of(name, lists) for name, lists in batch.ragged.items()}
        if self.layout == "packed":
            return packed(batch, jax.numpy.transpose, lambda rows, dtype: jax.numpy.zeros((rows, 0), "int32"))
        return labels_of(batch.columns(), batch.specs, [s.name for s in self._layout.lists if s.role is Role.LABEL])

    def _put(self, array: Any) -> Any:
        return jax.device_put(array, self.device)

    def _lists_of(self, name: str, lists: Ragged) -> Any:
        choice = self._lists[name]
        if isinstance(choice, Pad):
            return self._put(padded(lists, choice))
        return Ragged(self._put(lists.values), self._put(lists.offsets.astype("int32")))
