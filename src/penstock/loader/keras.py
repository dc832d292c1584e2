"""The loader for Keras 3: a `PyDataset` that `fit`, `evaluate` and `predict` take as it is, and a `tf.data.Dataset`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.core.batch import Batch, Ragged
from penstock.core.errors import DataError, ParameterError, PenstockError
from penstock.core.params import BOOL, check
from penstock.core.schema import Role
from penstock.data.sources import DataLike
from penstock.loader.base import BaseLoader, labels_of
from penstock.loader.keras_import import import_keras
from penstock.loader.keras_passes import Passes
from penstock.loader.loader import padded
from penstock.loader.plan import EpochPlan, LastBatch
from penstock.loader.sampling import WeightedSampling
from penstock.loader.settings import ListLayouts, Pad
from penstock.loader.transforms import Transform

keras = import_keras()

ALIGNMENT = 64  # what TensorFlow takes without a copy; it aborts the process on a DLPack buffer with less


class Loader(BaseLoader, keras.utils.PyDataset):  # type: ignore[name-defined]
    """Batches `({name: (rows, 1)}, labels)` for Keras; `(features,)` where no column is a label.

    `model.fit(loader)` needs nothing else. On the TensorFlow backend batches are tensors over the loader's own memory,
    on the others NumPy arrays, which Keras converts. Arguments are those of `penstock.loader.Loader`, without `layout`,
    and:

    Args:
        flat: columns and labels as `(rows,)` instead of `(rows, 1)`.
        lists: `"ragged"` gives a `tf.RaggedTensor`, `"row_lengths"` gives `(values, row lengths)`, a `Pad` a dense
            array; or by column.

    The order is the loader's own: the `shuffle` of `fit` does not change it, and `loader[i]` is the next batch.

    >>> loader = Loader({"user": [1, 2, 3], "click": [0, 1, 0]}, 2, categorical=["user"], labels=["click"], flat=True)
    >>> [(np.asarray(x["user"]).tolist(), np.asarray(y).tolist()) for x, y in loader]
    [([1, 2], [0, 1]), ([3], [0])]
    """

    _list_choices = ("ragged", "row_lengths")
    _substitutes = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}  # no look-up takes these as ids

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
        flat: bool = False,
        dtypes: Mapping[str, Any] | None = None,
        lists: ListLayouts = "ragged",
        fill: float | Mapping[str, float] | None = None,
        transform: Transform | None = None,
        sampling: WeightedSampling | None = None,
        cache: str | None = None,
        chunk_rows: int | None = None,
        rank: int = 0,
        world: int = 1,
        num_threads: int | None = None,
    ) -> None:
        keras.utils.PyDataset.__init__(self)
        check(f"{type(self).__name__}.flat", flat, BOOL)
        refuse_label_among_features([*_names(categorical), *_names(continuous)], _names(labels))
        BaseLoader.__init__(
            self, data, batch_size, categorical=categorical, continuous=continuous, labels=labels, shuffle=shuffle,
            seed=seed, last_batch=last_batch, dtypes=dtypes, lists=lists, fill=fill, transform=transform,
            sampling=sampling, cache=cache, chunk_rows=chunk_rows, rank=rank, world=world, num_threads=num_threads,
        )  # fmt: skip
        self.flat = flat
        self.closed = False
        self._on_tensorflow = keras.backend.backend() == "tensorflow"
        if not self._on_tensorflow and (ragged := [n for n, choice in self._lists.items() if choice == "ragged"]):
            raise ParameterError(
                f"column {ragged[0]!r} holds lists, and Keras on {keras.backend.backend()} has no ragged tensors; "
                f"use lists=Pad(…) or lists='row_lengths'"
            )
        self._consumed: tuple[int, int] | None = None  # what a LoaderPosition counted
        self._counting = False
        self._passes = Passes(self._open_pass)

    # What Keras calls.

    @property
    def num_batches(self) -> int:
        """Batches of the pass that begins now. Keras asks when it begins a pass; to only look, use `len(loader)`."""
        self._must_be_open()
        if len(self) == 0:
            raise DataError(f"{self!r} has no batch: the data set is empty, or smaller than one batch")
        self._passes.begin()
        return len(self)

    def __getitem__(self, index: int) -> Any:
        self._must_be_open()
        return self._passes.next_batch()

    def on_epoch_begin(self) -> None:
        self._must_be_open()
        self._passes.on_epoch_begin()

    def _open_pass(self) -> tuple[Iterator[Any], int]:
        return self._pass(), len(self)

    def _pass(self) -> Iterator[Any]:
        """As many batches as an epoch has; after a resumption from the middle of one to the middle of the next.

        Keras asks once how many batches there are and keeps to that for all epochs, so that a first one of fewer
        batches would cut the others short.
        """
        left = len(self)
        while left:
            for batch in self:
                left -= 1
                if not left:
                    self._resume = self._batch
                yield batch
                if not left:
                    return

    # Iteration, position, end.

    def _iterate(self, plan: EpochPlan, start: int, stop: int) -> Iterator[Any]:
        self._must_be_open()
        if not self._counting:
            self._consumed = None
        yield from super()._iterate(plan, start, stop)

    def set_epoch(self, epoch: int) -> None:
        self._passes.forget()
        self._consumed = None
        super().set_epoch(epoch)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._passes.forget()
        self._consumed = None
        super().load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands. TensorFlow fetches batches ahead of `fit`; save inside it with `LoaderPosition`."""
        state = super().state_dict()
        if self._consumed is not None:
            state["epoch"], state["batch"] = self._consumed
        return state

    def close(self) -> None:
        """End the threads and let go of the memory; the loader cannot be used any more."""
        self.closed = True
        self._passes.forget()
        self._runtime = None

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _must_be_open(self) -> None:
        if self.closed:
            raise PenstockError("this loader is closed; make a new one to read the data again")

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in super().__getstate__().items() if k != "_passes"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._passes = Passes(self._open_pass)

    # Batches.

    def _convert(self, batch: Batch) -> Any:
        put = _tensor if self._on_tensorflow else np.asarray
        columns: dict[str, Any] = {}
        for spec, block in zip(batch.specs, batch.blocks, strict=True):
            for name, column in zip(spec.names, block, strict=True):
                columns[name] = put(column if self.flat else column.reshape(-1, 1))
        for name, lists in batch.ragged.items():
            columns[name] = self._lists_of(self._lists[name], lists, put)
        list_labels = [s.name for s in self._layout.lists if s.role is Role.LABEL]
        features, labels = labels_of({n: columns[n] for n in self._schema.names}, batch.specs, list_labels)
        return (features,) if labels is None else (features, labels)

    def _lists_of(self, choice: Any, lists: Ragged, put: Any) -> Any:
        if isinstance(choice, Pad):
            return put(padded(lists, choice))
        if choice == "ragged":
            from tensorflow import RaggedTensor

            return RaggedTensor.from_row_splits(put(lists.values), put(lists.offsets), validate=False)
        parts = lists.values, lists.lengths
        return tuple(put(part if self.flat else part.reshape(-1, 1)) for part in parts)

    def as_tf_dataset(self, prefetch: int = 2) -> Any:
        """The batches as a `tf.data.Dataset` with static specs; each iteration over it is an epoch.

        For `tf.distribute`, for tf.data's own operations, and where lists are ragged: Keras takes three times as long
        to hand such a batch over from a `PyDataset`. `prefetch` batches are kept ready.

        Args:
            prefetch: batches that TensorFlow holds ready.

        Returns:
            The data set.
        """
        from penstock.loader.keras_tfdata import dataset_of

        self._must_be_open()
        return dataset_of(self, prefetch)


class LoaderPosition(keras.callbacks.Callback):  # type: ignore[name-defined]
    """Callback of `fit` that makes `loader.state_dict()` name the batch to train on next.

    TensorFlow fetches batches ahead, so that without it the state names a batch or two that were not trained on yet.

    >>> loader = Loader({"x": [1.0, 2.0], "y": [0, 1]}, 1, continuous=["x"], labels=["y"])
    >>> position = LoaderPosition(loader)
    >>> position.on_train_begin(), position.on_epoch_begin(0), position.on_train_batch_end(0)
    (None, None, None)
    >>> loader.state_dict()["batch"]
    1
    """

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self.loader = loader
        self._last_step = -1

    def on_train_begin(self, logs: Any = None) -> None:
        self.loader._consumed = self.loader.epoch, self.loader._resume
        self.loader._counting = True

    def on_train_end(self, logs: Any = None) -> None:
        self.loader._counting = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._last_step = -1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        assert self.loader._consumed is not None
        epoch, position = self.loader._consumed
        position += batch - self._last_step  # several steps at once with steps_per_execution
        self._last_step = batch
        more, position = divmod(position, len(self.loader))
        self.loader._consumed = epoch + more, position


def _tensor(array: np.ndarray) -> Any:
    """A tensor over the same memory where TensorFlow allows that, else over a copy."""
    import tensorflow as tf

    shareable = array.flags.c_contiguous and array.flags.writeable and array.size
    if shareable and array.ctypes.data % ALIGNMENT == 0:
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.convert_to_tensor(array)


def refuse_label_among_features(features: Sequence[str], labels: Sequence[str]) -> None:
    """A label that is also an input teaches the model nothing else."""
    if both := [name for name in labels if name in features]:
        raise ParameterError(f"column {both[0]!r} is a label and a feature; leave it out of the features")


def _names(names: Sequence[str] | str | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or [])
