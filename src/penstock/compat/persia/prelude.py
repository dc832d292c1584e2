"""What PERSIA's compiled part gave to scripts: above all `PyPersiaBatchData`, the batch of 2021."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.compat.persia._message import Message, Named, PersiaTrainingBatch, to_bytes
from penstock.compat.persia._stream import Stream
from penstock.compat.persia.embedding.data import checked_array, ids_of, message_of
from penstock.core.batch import Ragged
from penstock.core.errors import DataError

__all__ = [
    "PersiaBatchDataChannel",
    "PersiaBatchDataReceiver",
    "PersiaBatchDataSender",
    "PersiaTrainingBatch",
    "PyPersiaBatchData",
    "PyPersiaBatchDataChannel",
    "PyPersiaBatchDataReceiver",
    "PyPersiaBatchDataSender",
    "PyPersiaReplicaInfo",
    "check_pyarray_dtype_valid",
    "forward_directly_from_bytes",
    "forward_directly_from_data",
    "is_cuda_feature_available",
]


class PyPersiaBatchData:
    """A batch that is filled step by step.

    >>> batch = PyPersiaBatchData()
    >>> batch.add_dense_f32(np.zeros((2, 13), np.float32))
    >>> batch.add_sparse([("user", [np.array([7], np.uint64), np.array([8], np.uint64)])])
    >>> batch.add_target(np.array([[0], [1]], np.float32))
    >>> batch.batch_size
    2
    """

    def __init__(self) -> None:
        self.data = Message(one_each=True)  # contexts of its time took the first array, and one target

    @property
    def batch_size(self) -> int:
        return self.data.rows

    def add_dense(self, data: Sequence[np.ndarray]) -> None:
        """Append several 2-D float32 arrays."""
        if not isinstance(data, (list, tuple)):
            raise DataError("add_dense takes a list of arrays; for one use add_dense_f32")
        for array in data:
            self.add_dense_f32(array)

    def add_dense_f32(self, data: np.ndarray) -> None:
        """Append a 2-D float32 array."""
        self._add_dense(data, np.float32)

    def add_dense_f64(self, data: np.ndarray) -> None:
        """Append a 2-D float64 array."""
        self._add_dense(data, np.float64)

    def add_dense_i32(self, data: np.ndarray) -> None:
        """Append a 2-D int32 array."""
        self._add_dense(data, np.int32)

    def add_dense_i64(self, data: np.ndarray) -> None:
        """Append a 2-D int64 array."""
        self._add_dense(data, np.int64)

    def _add_dense(self, data: np.ndarray, dtype: Any) -> None:
        array = _matrix(data, dtype, f"dense {len(self.data.dense)}")
        self.data.dense.append(Named(f"dense_{len(self.data.dense)}", array))

    def add_sparse(self, data: Sequence[tuple[str, Sequence[np.ndarray]]]) -> None:
        """Set the features with ids: their names, and one array of ids for each sample."""
        names = [name for name, _ in data]
        if len(set(names)) < len(names):
            raise DataError(f"add_sparse: a feature is there twice among {names}")
        self.data.ids = {name: ids_of(name, ids) for name, ids in data}

    def add_target(self, data: np.ndarray) -> None:
        """Append a target: `(rows, targets)`, or `(rows,)` for one. Several make a model of several tasks."""
        array = np.asarray(data)
        if array.ndim == 1:
            array = array.reshape(-1, 1)
        if array.ndim != 2 or array.dtype.kind not in "biuf":
            raise DataError(f"a target must be an array of numbers (rows, targets), got {array.dtype} {array.shape}")
        self.data.labels.append(Named(f"target_{len(self.data.labels)}", np.ascontiguousarray(array, np.float32)))

    def add_map_dense(self, name: str, data: np.ndarray) -> None:
        """Send an array along, by name."""
        self.data.extras[name] = _matrix(data, np.float32, f"map {name!r}")

    def add_map_sparse(self, name: str, data: Sequence[float], offset: Sequence[int]) -> None:
        """Send lists of numbers along, by name."""
        offsets = np.asarray(offset, np.int64)
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(data) or (np.diff(offsets) < 0).any():
            raise DataError(f"map {name!r}: offsets must rise from 0 to the number of values, {len(data)}")
        self.data.extras[name] = Ragged(np.asarray(data, np.float32), offsets)

    def add_meta(self, data: bytes) -> None:
        """Send bytes along."""
        if not isinstance(data, bytes):
            raise DataError(f"meta must be bytes, got {type(data).__name__}; use .encode()")
        self.data.meta = data

    def to_bytes(self) -> bytes:
        """The batch as bytes."""
        self.data.check()
        return to_bytes(self.data)


def _matrix(data: Any, dtype: Any, what: str) -> np.ndarray:
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.dtype != dtype:
        got = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
        raise DataError(f"{what} must be a 2-D array of {np.dtype(dtype)}, got {got}")
    return np.ascontiguousarray(data)


class PersiaBatchDataChannel:
    """A bounded queue of batches in this process.

    >>> channel = PersiaBatchDataChannel(2)
    >>> channel.get_sender().send(PyPersiaBatchData())
    >>> isinstance(channel.get_receiver().recv(), Message)
    True
    """

    def __init__(self, capacity: int) -> None:
        self._stream = Stream(capacity)
        self._stream.open(0, "a sender")
        self._sender, self._receiver = PersiaBatchDataSender(self._stream), PersiaBatchDataReceiver(self._stream)

    def get_sender(self) -> PersiaBatchDataSender:
        """The end that batches go in at."""
        return self._sender

    def get_receiver(self) -> PersiaBatchDataReceiver:
        """The end that batches come out at."""
        return self._receiver


class PersiaBatchDataSender:
    """The end of a channel that batches go in at; `channel.get_sender()` gives it.

    >>> PersiaBatchDataSender(Stream()).__class__.__name__
    'PersiaBatchDataSender'
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def send(self, batch: Any) -> None:
        """Append a batch, waiting for room."""
        self._stream.put(0, message_of(batch))


class PersiaBatchDataReceiver:
    """The end of a channel that batches come out at; `channel.get_receiver()` gives it.

    >>> PersiaBatchDataReceiver(Stream()).__class__.__name__
    'PersiaBatchDataReceiver'
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def recv(self, timeout: float = 600.0) -> Message:
        """The next batch."""
        return self._stream.reader().get(timeout)


PyPersiaBatchDataChannel = PersiaBatchDataChannel
PyPersiaBatchDataSender = PersiaBatchDataSender
PyPersiaBatchDataReceiver = PersiaBatchDataReceiver


@dataclass(frozen=True)
class PyPersiaReplicaInfo:
    """Which of how many processes.

    >>> PyPersiaReplicaInfo(2, 0).replica_size
    2
    """

    replica_size: int
    replica_index: int


def is_cuda_feature_available() -> bool:
    """Whether tensors can be put on a GPU.

    >>> is_cuda_feature_available() in (True, False)
    True
    """
    import torch

    return torch.cuda.is_available()


def forward_directly_from_data(batch: PyPersiaBatchData, device_id: int | None = None) -> PersiaTrainingBatch:
    """Look a batch up now, in the embeddings of the present context; nothing is inserted."""
    from penstock.compat.persia._embedding_ctx import current

    return current().get_embedding_from_data(batch, device_id)


def forward_directly_from_bytes(batch: bytes, device_id: int | None = None) -> PersiaTrainingBatch:
    """Look up a batch that came as bytes; nothing is inserted."""
    from penstock.compat.persia._embedding_ctx import current

    return current().get_embedding_from_bytes(batch, device_id)


def check_pyarray_dtype_valid(data: np.ndarray, dtype: Any) -> None:
    """Refuse an array that no batch can hold, or that is not of `dtype`.

    >>> check_pyarray_dtype_valid(np.zeros(1, np.float32), np.dtype("float32"))
    """
    if checked_array(data, "the array").dtype != dtype:
        raise DataError(f"the array must be of {np.dtype(dtype)}, got {data.dtype}")
