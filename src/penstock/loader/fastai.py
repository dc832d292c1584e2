"""What FastAI needs of a loader: `DataLoaders` that a `Learner` trains with, predicts with and exports."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.core.errors import ParameterError
from penstock.core.extras import require
from penstock.loader.torch import Loader

fastai_core = require("fastai.data.core", "fastai")


class _NoRows:
    """What an exported learner keeps in place of its data."""

    def new_empty(self) -> _NoRows:
        return self


class FastaiLoader:
    """A `penstock.loader.torch.Loader` under the names by which FastAI asks for things."""

    drop_last = False
    num_workers = 0

    def __init__(self, loader: Loader | None, device: Any = None, num_inputs: int = 1) -> None:
        self.loader, self.device = loader, device
        self.n_inp = num_inputs
        self.dataset = _NoRows()
        if loader is not None:
            self.to(device if device is not None else loader.device)

    @property
    def bs(self) -> int:
        """Rows of a batch."""
        return self._loader.batch_size

    @property
    def n(self) -> int:
        """Rows of an epoch."""
        return self._loader.num_rows

    @property
    def _loader(self) -> Loader:
        if self.loader is None:
            raise ParameterError(
                "this learner was exported without its data; give learn.dls a loader to use it on rows"
            )
        return self.loader

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for batch in self._loader:
            yield tuple(batch)

    def __len__(self) -> int:
        return 0 if self.loader is None else len(self.loader)

    def to(self, device: Any) -> None:
        """Deliver batches on this device from now on."""
        self.device = device
        if self.loader is not None:
            self.loader = self.loader.to(device)

    def one_batch(self) -> tuple[Any, ...]:
        return tuple(self._loader.peek())

    def new(self, dataset: Any = None, **changes: Any) -> FastaiLoader:
        """A copy in stored order, for predictions (`shuffle=False`), or without data, for an export."""
        if isinstance(dataset, _NoRows):
            return FastaiLoader(None, self.device, self.n_inp)
        fresh = copy.copy(self)
        if self.loader is not None:
            fresh.loader = copy.copy(self.loader)
            fresh.loader.shuffle = changes.get("shuffle", self.loader.shuffle)
            fresh.loader._plans = {}
            fresh.loader.set_epoch(0)
        return fresh

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "loader":
            raise AttributeError(name)
        return getattr(self._loader, name)


def dataloaders(train: Loader, *others: Loader, device: Any = None, path: str | Path = ".") -> Any:
    """FastAI `DataLoaders` from penstock loaders with `layout="packed"`: train, valid, and more.

    `device` is where batches and model meet; the GPU when there is one. A `CrossEntropyLoss` wants integer labels:
    make the loaders with `dtypes={"label": "int64"}`.
    """
    torch = require("torch", "torch")
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    for loader in (train, *others):
        if loader.layout != "packed":
            raise ParameterError("FastAI models take tensors: make the loaders with layout='packed'")
    wrapped = [FastaiLoader(loader, device, num_inputs=2) for loader in (train, *others)]
    return fastai_core.DataLoaders(*wrapped, path=path, device=device)
