"""Batches as a data loader makes them: features with ids, features without, labels.

Batches may have any number of rows (PERSIA stopped at 65,535).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.compat.persia._message import DTYPES, Message, Named, to_bytes
from penstock.compat.persia.logger import get_default_logger
from penstock.core.batch import Ragged
from penstock.core.errors import DataError

__all__ = [
    "IDTypeFeature",
    "IDTypeFeatureWithSingleID",
    "Label",
    "NdarrayDataBase",
    "NonIDTypeFeature",
    "PersiaBatch",
]

_ND_ARRAY_SUPPORT_TYPE = {dtype.type for dtype in DTYPES}  # by the name that PERSIA's own tests use


def ids_of(name: str, data: Sequence[np.ndarray]) -> np.ndarray | Ragged:
    """One list of ids for each sample, end to end; a plain array where every sample has one."""
    if not isinstance(data, (list, tuple)):
        raise DataError(f"feature {name!r}: ids must be a list with one array for each sample, got {_kind(data)}")
    values = _end_to_end(name, data)
    lengths = np.fromiter(map(len, data), np.int64, len(data))
    if (lengths == 1).all():
        return values
    return Ragged(values, np.concatenate([[0], np.cumsum(lengths)]))


def _end_to_end(name: str, data: Sequence[np.ndarray]) -> np.ndarray:
    if not data:
        return np.empty(0, np.uint64)
    try:
        values = np.concatenate(data)
    except ValueError:
        values = np.empty(0)
    if values.ndim == 1 and values.dtype == np.uint64:  # which only unsigned integers, and 1-D ones, join up to
        return values
    for number, array in enumerate(data):
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != np.uint64:
            raise DataError(
                f"feature {name!r}, sample {number}: ids must be a 1-D array of uint64, got {_kind(array)}; "
                "use .astype(np.uint64)"
            )
    return values


def _kind(value: Any) -> str:
    return f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__


class IDTypeFeature:
    """A feature with any number of ids for each sample, none included; one array is one id for each (December 2021).

    >>> IDTypeFeature("seen", [np.array([3, 4], np.uint64), np.array([], np.uint64)]).batch_size
    2
    >>> IDTypeFeature("seen", [np.array([3.5])])
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: feature 'seen', sample 0: ids must be a 1-D array of uint64, got float64 (1,); ...
    """

    def __init__(self, name: str, data: list[np.ndarray] | np.ndarray) -> None:
        self.name, self.data = name, data
        self.ids = IDTypeFeatureWithSingleID(name, data).ids if isinstance(data, np.ndarray) else ids_of(name, data)

    @property
    def batch_size(self) -> int:
        return len(self.data)


class IDTypeFeatureWithSingleID:
    """A feature with one id for each sample: one array.

    >>> IDTypeFeatureWithSingleID("user", np.array([1, 2, 3], np.uint64)).batch_size
    3
    """

    def __init__(self, name: str, data: np.ndarray) -> None:
        if not isinstance(data, np.ndarray) or data.ndim != 1 or data.dtype != np.uint64:
            raise DataError(
                f"feature {name!r}: ids must be a 1-D array of uint64, got {_kind(data)}; use .astype(np.uint64)"
            )
        self.name, self.data, self.ids = name, data, data

    @property
    def batch_size(self) -> int:
        return len(self.data)


def checked_array(data: Any, name: str) -> np.ndarray:
    """An array that a batch can hold."""
    if not isinstance(data, np.ndarray) or data.dtype not in DTYPES or data.ndim == 0:
        kinds = ", ".join(str(dtype) for dtype in DTYPES)
        raise DataError(f"{name} must be an array of {kinds} with at least one dimension, got {_kind(data)}")
    return data


class NdarrayDataBase:
    """An array with a row for each sample: what features without ids and labels share.

    >>> NdarrayDataBase(np.zeros((3, 2), np.float16))
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: ndarray_base must be an array of bool, int8, ..., got float16 (3, 2)
    """

    DEFAULT_NAME = "ndarray_base"

    def __init__(self, data: np.ndarray, name: str | None = None) -> None:
        self._name = name
        self.data = checked_array(data, self.name)

    @property
    def name(self) -> str:
        return self._name or self.DEFAULT_NAME

    @property
    def batch_size(self) -> int:
        return len(self.data)

    def __len__(self) -> int:
        return len(self.data)


class Label(NdarrayDataBase):
    """What a model learns to predict; several for several tasks.

    >>> len(Label(np.zeros((4, 1), np.float32), "click"))
    4
    """

    DEFAULT_NAME = "label_anonymous"


class NonIDTypeFeature(NdarrayDataBase):
    """Numbers: `(rows, …)` of any supported dtype.

    >>> NonIDTypeFeature(np.zeros((4, 13), np.float32)).name
    'non_id_type_feature_anonymous'
    """

    DEFAULT_NAME = "non_id_type_feature_anonymous"


class MissingLabelError(DataError, RuntimeError):
    """A batch to train on has no label (PERSIA raised a RuntimeError, which this is too).

    >>> issubclass(MissingLabelError, RuntimeError)
    True
    """


class PersiaBatch:
    """One batch: features with ids, and beside them numbers, labels, and bytes of your own (`meta`).

    With `requires_grad=False` its embeddings are only looked up: nothing is inserted or trained. Otherwise it needs a
    label. As in November 2021, features may be pairs `(name, ids)`; arrays and labels may then be added one by one, and
    must be there when the batch is sent.

    >>> user = IDTypeFeatureWithSingleID("user", np.array([1, 2], np.uint64))
    >>> batch = PersiaBatch([user], labels=[Label(np.zeros((2, 1), np.float32))])
    >>> batch.batch_size, batch.to_bytes()[:8]
    (2, b'\\x93PSBATCH')
    >>> PersiaBatch([user], labels=[Label(np.zeros(3, np.float32), "click")])
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: label 'click' has 3 rows, the batch has 2
    >>> PersiaBatch([user])
    Traceback (most recent call last):
    ...
    penstock.compat.persia.embedding.data.MissingLabelError: a batch to train on needs a label: give labels=[…], ...
    """

    def __init__(
        self,
        id_type_features: Sequence[IDTypeFeature | IDTypeFeatureWithSingleID | tuple[str, Any]] | None = None,
        non_id_type_features: list[NonIDTypeFeature] | None = None,
        labels: list[Label] | None = None,
        batch_size: int | None = None,
        requires_grad: bool = True,
        meta: bytes | None = None,
    ) -> None:
        if id_type_features is not None and not id_type_features:
            raise DataError("a PersiaBatch needs at least one feature with ids")
        features, self.batch_size = id_type_features or (), batch_size
        self.batch = Message(requires_grad=requires_grad, meta=_checked_meta(meta))
        self.add_id_type_features(features)
        for number in non_id_type_features or ():
            self.add_non_id_type_feature(number)
        for label in labels or ():
            self.add_label(label)
        if any(isinstance(feature, (IDTypeFeature, IDTypeFeatureWithSingleID)) for feature in features):
            self._check_labels()  # nothing is added later: when these classes came, the methods below went

    def _check_rows(self, what: str, part: Any) -> None:
        if self.batch_size is None:
            self.batch_size = part.batch_size
        if part.batch_size != self.batch_size:
            raise DataError(f"{what} {part.name!r} has {part.batch_size} rows, the batch has {self.batch_size}")

    def _check_labels(self) -> None:
        if self.batch.requires_grad and not self.batch.labels:
            raise MissingLabelError(
                "a batch to train on needs a label: give labels=[…], or requires_grad=False for one that is "
                "only looked up"
            )

    def add_id_type_features(self, features: Sequence[Any], requires_grad: bool | None = None) -> None:
        """Append features with ids."""
        if requires_grad is not None:
            self.batch.requires_grad = requires_grad
        for given in features:
            feature = IDTypeFeature(*given) if isinstance(given, tuple) and len(given) == 2 else given
            if not isinstance(feature, (IDTypeFeature, IDTypeFeatureWithSingleID)):
                raise DataError(f"id_type_features takes IDTypeFeature and …WithSingleID, got {type(feature).__name__}")
            self._check_rows("feature", feature)
            if feature.name in self.batch.ids:
                raise DataError(f"feature {feature.name!r} is in the batch twice")
            self.batch.ids[feature.name] = feature.ids

    def add_non_id_type_feature(self, feature: Any, name: str | None = None) -> None:
        """Append numbers: a `NonIDTypeFeature`, an array, or a list of them."""
        for part in feature if isinstance(feature, (list, tuple)) else [feature]:
            numbers = part if isinstance(part, NdarrayDataBase) else NonIDTypeFeature(part, name)
            self._check_rows("feature", numbers)
            self.batch.dense.append(Named(numbers.name, numbers.data))

    add_not_id_type_feature = add_non_id_type_feature  # as it was spelled at first

    def add_label(self, label: Any, name: str | None = None) -> None:
        """Append a label: a `Label`, or an array."""
        label = label if isinstance(label, NdarrayDataBase) else Label(label, name)
        self._check_rows("label", label)
        self.batch.labels.append(Named(label.name, label.data))

    @property
    def data(self) -> Message:
        """The batch as it travels."""
        if not self.batch.ids:
            raise DataError("a PersiaBatch needs at least one feature with ids")
        self._check_labels()
        return self.batch

    def to_bytes(self) -> bytes:
        """The batch as bytes, which `get_embedding_from_bytes` takes."""
        return to_bytes(self.data)


def _checked_meta(meta: Any) -> bytes | None:
    if meta is None or isinstance(meta, (bytes, bytearray)):
        return None if meta is None else bytes(meta)
    get_default_logger().warning(
        f"meta must be bytes, got {type(meta).__name__}: it is not sent along; use meta.encode()"
    )
    return None


def message_of(batch: Any) -> Message:
    """What travels, of whichever kind of batch."""
    found = batch if isinstance(batch, Message) else getattr(batch, "data", None)
    if not isinstance(found, Message):
        raise DataError(f"a batch must be a PersiaBatch or a PyPersiaBatchData, got {type(batch).__name__}")
    found.check()
    return found
