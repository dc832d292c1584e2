"""Merlin's loader for torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.compat.merlin.dataloader._columns import Columns
from penstock.compat.merlin.dataloader.loader_base import MerlinLoader
from penstock.core.extras import require
from penstock.loader import torch as native

torch = require("torch", "torch")

__all__ = ["DLDataLoader", "Loader"]


class Loader(MerlinLoader, native.Loader):
    """Batches `({name: (B,)}, label)`: every column of the schema, lists as `x__values` and `x__offsets`.

    The columns tagged as target are the labels: one is a tensor, several are a dict, none is None. `transforms` is a
    fitted workflow, a graph, or a list of operators; `device` is a CUDA device's number or name, or `"cpu"`.

    >>> from penstock.compat.merlin.io import Dataset
    >>> loader = Loader(Dataset({"user": [1, 2, 3], "price": [0.5, 1.0, 1.5]}), batch_size=2)
    >>> features, label = next(loader)
    >>> features["user"].tolist(), label
    ([1, 2], None)
    """

    def __init__(self, dataset: Any, batch_size: int = 1, shuffle: bool = False, *args: Any, **kwargs: Any) -> None:
        super().__init__(dataset, batch_size, shuffle, *args, **kwargs)

    def _options(self, wanted: Columns) -> dict[str, Any]:
        made = self._made
        share = ranks(made["global_rank"], made["global_size"])
        return {"parts_per_chunk": made["parts_per_chunk"], "device": torch_device(made["device"]), **share}

    def _get(self, array: Any) -> np.ndarray:
        return array.detach().cpu().numpy()

    def _put(self, array: Any) -> Any:
        return torch.from_numpy(array).to(self.device)


class DLDataLoader(torch.utils.data.DataLoader):  # type: ignore[name-defined]
    """torch's DataLoader over a loader, with its device and its number of batches.

    >>> from penstock.compat.merlin.io import Dataset
    >>> len(DLDataLoader(Loader(Dataset({"x": [1.0, 2.0, 3.0]}), batch_size=2), batch_size=None))
    2
    """

    @property
    def device(self) -> Any:
        return self.dataset.device

    def __len__(self) -> int:
        return len(self.dataset)


def torch_device(device: Any) -> Any:
    """NVTabular's devices as torch's: a number is a GPU, and where there is none everything is on the CPU.

    >>> torch_device("cpu")
    device(type='cpu')
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", device or 0) if device is None or isinstance(device, int) else torch.device(device)


def ranks(rank: int | None, world: int | None) -> dict[str, Any]:
    """The share of the data: as given, else as `torch.distributed` says."""
    return {} if rank is None and world is None else {"rank": rank or 0, "world": world or 1}
