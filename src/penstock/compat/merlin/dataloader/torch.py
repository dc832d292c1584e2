"""Merlin's loader for torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.compat.merlin.dataloader.loader_base import LoaderBase, columns_of
from penstock.core.batch import Batch
from penstock.core.extras import require
from penstock.loader import torch as native

torch = require("torch", "torch")

__all__ = ["DLDataLoader", "Loader"]


class Loader(LoaderBase, native.Loader):
    """Batches `({name: (B,)}, label)`: every column of the schema, lists as `x__values` and `x__offsets`.

    The columns tagged as target are the labels: one is a tensor, several are a dict, none is None. `transforms` is a
    fitted workflow, a graph, or a list of operators; `device` is a CUDA device's number or name, or `"cpu"`.

    >>> from penstock.compat.merlin.io import Dataset
    >>> loader = Loader(Dataset({"user": [1, 2, 3], "price": [0.5, 1.0, 1.5]}), batch_size=2)
    >>> features, label = next(loader)
    >>> features["user"].tolist(), label
    ([1, 2], None)
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
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
            parts_per_chunk=parts_per_chunk, device=torch_device(device), **wanted.options,
            **ranks(global_rank, global_size),
        )  # fmt: skip

    def _convert(self, batch: Batch) -> Any:
        features, labels = super()._convert(batch)
        return self._as_today(features, _to_numpy, self._to_tensor), labels

    def _to_tensor(self, array: Any) -> Any:
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


def _to_numpy(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy()
