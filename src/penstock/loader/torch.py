"""The loader for PyTorch: tensors on the CPU without a copy, or on a GPU through pinned memory and a side stream."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.core.batch import Batch, Ragged
from penstock.core.errors import ParameterError
from penstock.core.extras import require
from penstock.core.runtime.buffers import BufferPool
from penstock.core.schema import Role
from penstock.data.sources import DataLike
from penstock.loader.base import BaseLoader, labels_of
from penstock.loader.loader import packed, padded
from penstock.loader.plan import EpochPlan, LastBatch
from penstock.loader.runtime import Runtime
from penstock.loader.sampling import WeightedSampling
from penstock.loader.settings import ListLayouts, Pad, default_chunk_rows
from penstock.loader.transforms import Transform

if TYPE_CHECKING:
    import torch

    from penstock.loader.staged import StagedBatches
else:
    torch = require("torch", "torch")


class Loader(BaseLoader, torch.utils.data.IterableDataset[Any]):
    """Batches of tensors: `({name: tensor}, labels)`, or `(cats, conts, labels)` with `layout="packed"`.

    Use it as it is in a loop, as `DataLoader(loader, batch_size=None)`, or in Lightning and FastAI. Arguments are those
    of `penstock.loader.Loader` and:

    Args:
        lists: also `"nested"`, a jagged `torch.nested` tensor.
        rank, world: of `torch.distributed` by default, when that is initialized.
        device: where batches are wanted. On a GPU chunks are copied on a side stream while the model runs, ids travel
            in the narrowest type their cardinality allows, and rows are shuffled on the device.
        device_memory: most bytes (or fraction of the device's memory) that chunks may take there.

    >>> loader = Loader({"user": [1, 2, 3], "click": [0, 1, 0]}, 2, categorical=["user"], labels=["click"])
    >>> [(features["user"].tolist(), labels.tolist()) for features, labels in loader]
    [([1, 2], [0, 1]), ([3], [0])]
    """

    _list_choices = ("ragged", "nested")
    _substitutes = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}  # what torch hardly computes with

    def __init__(
        self,
        data: DataLike,
        batch_size: int = 65_536,
        *,
        categorical: Sequence[str] | None = None,
        continuous: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        shuffle: bool = False,
        seed: int = 0,
        last_batch: LastBatch = "keep",
        layout: str = "dict",
        dtypes: Mapping[str, Any] | None = None,
        lists: ListLayouts = "ragged",
        fill: float | Mapping[str, float] | None = None,
        transform: Transform | None = None,
        sampling: WeightedSampling | None = None,
        cache: str | None = None,
        chunk_rows: int | None = None,
        parts_per_chunk: int | None = None,
        rank: int | None = None,
        world: int | None = None,
        num_threads: int | None = None,
        device: torch.device | str | int | None = None,
        device_memory: int | float | None = None,
    ) -> None:
        if (rank is None) != (world is None):
            raise ParameterError("rank and world go together: give both or neither")
        if rank is None or world is None:
            rank, world = _distributed()
        super().__init__(
            data, batch_size, categorical=categorical, continuous=continuous, labels=labels, shuffle=shuffle, seed=seed,
            last_batch=last_batch, layout=layout, dtypes=_plain(dtypes), lists=lists, fill=fill, transform=transform,
            sampling=sampling, cache=cache, chunk_rows=chunk_rows, parts_per_chunk=parts_per_chunk,
            rank=rank, world=world, num_threads=num_threads,
        )  # fmt: skip
        self.device = torch.device(device if device is not None else "cpu")
        self._epochs_expected = 0
        self._begun: StagedBatches | None = None  # of the epoch to come
        if chunk_rows is None and parts_per_chunk is None and self.device.type == "cuda":
            self.chunk_rows = default_chunk_rows(self._stored_bytes(), on_device=True)
        self.device_memory = device_memory
        if device_memory is not None and self.device.type == "cuda":
            self._fit_device()

    def to(self, device: torch.device | str | int) -> Loader:
        """The same loader with its batches on another device.

        Args:
            device: where batches are wanted.

        Returns:
            Another loader; this one stays.
        """
        moved = copy.copy(self)
        moved.device = torch.device(device)
        moved._runtime = None if self._staged != moved._staged else self._runtime
        return moved

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_epochs_expected": 0, "_begun": None}

    @property
    def _staged(self) -> bool:
        """Whether batches go through pinned memory to a device."""
        return self.device.type == "cuda"

    def __iter__(self) -> Iterator[Any]:
        plan = self.plan()
        worker = torch.utils.data.get_worker_info()
        if worker is None:
            return self._iterate(plan, self._start(), plan.num_batches)
        # Each worker process of a DataLoader takes a stretch of the batches; torchdata restores the place it had there.
        count, number = worker.num_workers, worker.id
        first, stop = plan.num_batches * number // count, plan.num_batches * (number + 1) // count
        return self._iterate(plan, min(max(first, self._start()), stop), stop)

    def _source(self, runtime: Runtime, plan: EpochPlan, start: int, stop: int) -> Iterator[Batch]:
        if not self._staged:
            return super()._source(runtime, plan, start, stop)
        from penstock.loader.staged import StagedBatches

        source, self._begun = self._begun, None
        if source is None or not source.is_of(plan, start, stop):
            if source is not None:
                source.close()
            source = StagedBatches(self, runtime, plan, start, stop)
        if self._epochs_expected > 1 and stop == plan.num_batches:
            source.call_near_end(lambda: self._begin(runtime, plan.epoch + 1))
        return source

    def expect_epochs(self, count: int) -> None:
        # Where memory is bounded there is room for the chunks of one epoch; and who draws a seed for each epoch is
        # asked for it when that epoch comes.
        plain = type(self)._epoch_seed is BaseLoader._epoch_seed and self.device_memory is None
        self._epochs_expected = count if plain and self._staged else 0
        if self._epochs_expected == 0 and self._begun is not None:
            self._begun.close()
            self._begun = None

    def _begin(self, runtime: Runtime, epoch: int) -> None:
        from penstock.loader.staged import StagedBatches

        plan = self.plan(epoch)
        if self._epochs_expected > 1 and plan.num_batches:
            self._begun = StagedBatches(self, runtime, plan, 0, plan.num_batches)

    def _make_runtime(self) -> Runtime:
        if not self._staged:
            return Runtime(self)
        from penstock.loader.device_chunks import pinned_buffers

        return Runtime(self, BufferPool(pinned_buffers(self.device)))

    def _fit_device(self) -> None:
        """Chunks small enough for `device_memory`: two in flight and one in use, each as it came and as delivered."""
        limit = float(self.device_memory or 0)
        if limit <= 1:
            limit *= torch.cuda.get_device_properties(self.device).total_memory
        row = 6 * max(self._layout.row_bytes(), 1)
        if limit < row * self.batch_size:
            raise ParameterError(
                f"device_memory={self.device_memory} does not hold the chunks of one batch of {self.batch_size} rows; "
                f"give at least {row * self.batch_size} bytes or use smaller batches"
            )
        self.chunk_rows = min(self.chunk_rows, int(limit // row))

    def _convert(self, batch: Batch) -> Any:
        batch.blocks = [_tensor(block) for block in batch.blocks]
        batch.ragged = {name: self._lists_of(name, lists) for name, lists in batch.ragged.items()}
        if self.layout == "packed":
            return packed(batch, torch.t, lambda rows, dtype: torch.empty((rows, 0), dtype=getattr(torch, dtype)))
        return labels_of(batch.columns(), batch.specs, [s.name for s in self._layout.lists if s.role is Role.LABEL])

    def _lists_of(self, name: str, lists: Ragged) -> Any:
        choice = self._lists[name]
        if isinstance(choice, Pad):
            if isinstance(lists.values, np.ndarray):
                return torch.from_numpy(padded(lists, choice))
            return _padded_tensor(lists, choice)
        values, offsets = _tensor(lists.values), _tensor(lists.offsets)
        return (
            torch.nested.nested_tensor_from_jagged(values, offsets) if choice == "nested" else Ragged(values, offsets)
        )


def _tensor(array: Any) -> Any:
    """A tensor over the same memory; read-only memory (a file, a frame) is copied, since tensors can be written to."""
    if not isinstance(array, np.ndarray):
        return array
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _padded_tensor(lists: Ragged, pad: Pad) -> Any:
    """`padded` on the device."""
    values, offsets = lists
    lengths = offsets[1:] - offsets[:-1]
    width = pad.max_len if pad.max_len is not None else int(lengths.max()) if len(lengths) else 0
    column = torch.arange(width, device=values.device)
    shift = (width - lengths.clamp(max=width))[:, None] if pad.side == "left" else 0
    place = column - shift
    inside = (place >= 0) & (place < lengths[:, None])
    index = (offsets[:-1, None] + place).clamp(min=0, max=max(len(values) - 1, 0))
    picked = values[index] if len(values) else values.new_zeros(index.shape)
    return torch.where(inside, picked, torch.as_tensor(pad.value, dtype=values.dtype, device=values.device))


def _plain(dtypes: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """`torch.int64` as well as "int64"."""
    if dtypes is None:
        return None
    return {k: str(v).removeprefix("torch.") if isinstance(v, torch.dtype) else v for k, v in dtypes.items()}


def _distributed() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
