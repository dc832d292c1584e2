"""A column of one framework's arrays: values, and for lists their offsets."""

from __future__ import annotations

import itertools
from enum import Enum
from typing import Any

import numpy as np

from penstock.compat.merlin.dtypes import DType, dtype_of
from penstock.compat.merlin.dtypes.shape import Shape
from penstock.compat.missing import CompatNotImplementedError, CompatTypeError
from penstock.core.errors import DataError
from penstock.core.extras import require

__all__ = ["CupyColumn", "Device", "NumpyColumn", "TensorColumn", "TensorflowColumn", "TorchColumn"]


class Device(Enum):
    """Where a column is.

    >>> Device.CPU.name
    'CPU'
    """

    CPU = 0
    GPU = 1


class TensorColumn:
    """Values and offsets; `TensorColumn(array)` is a column of the array's framework.

    >>> column = TensorColumn(np.array([1, 2, 3]), offsets=np.array([0, 1, 3]))
    >>> type(column).__name__, len(column), column.is_ragged, column.shape.as_tuple
    ('NumpyColumn', 2, True, (2, (0, None)))
    """

    framework = ""

    def __new__(cls, values: Any, *args: Any, **kwargs: Any) -> TensorColumn:
        return super().__new__(_class_of(values) if cls is TensorColumn else cls)

    def __init__(
        self, values: Any, offsets: Any = None, dtype: Any = None, _ref: Any = None, _device: Any = None,
        _unsafe: bool = False,
    ) -> None:  # fmt: skip
        if isinstance(values, (list, tuple)):
            values, offsets = _from_lists(values, offsets, type(self))
        if offsets is not None and _framework_of(offsets) != _framework_of(values):
            raise CompatTypeError(
                f"values and offsets must be of one kind, got {type(values).__name__} and {type(offsets).__name__}"
            )
        if self.framework and _framework_of(values) != self.framework:
            raise CompatTypeError(
                f"{type(self).__name__} takes arrays of {self.framework}, got {type(values).__name__}"
            )
        if offsets is not None and not _unsafe:
            bounds = _numpy(offsets)
            if len(bounds) == 0 or bounds[0] < 0 or (np.diff(bounds) < 0).any() or bounds[-1] != len(values):
                raise DataError(f"offsets must rise to the number of values, {len(values)}, got {bounds}")
        self.values, self.offsets = values, offsets
        self._dtype = dtype_of(values.dtype if dtype is None else dtype)

    @property
    def dtype(self) -> DType:
        return self._dtype.with_shape(self.shape)

    @property
    def shape(self) -> Shape:
        """Rows, then how many elements: a range where lists differ in length."""
        if self.offsets is None:
            return Shape(tuple(int(size) for size in self.values.shape))
        lengths = np.diff(_numpy(self.offsets))
        same = len(lengths) > 0 and (lengths == lengths[0]).all()
        inner = tuple(int(size) for size in self.values.shape[1:])
        return Shape((len(self), int(lengths[0]) if same else None, *inner))

    @property
    def is_list(self) -> bool:
        return self.shape.is_list

    @property
    def is_ragged(self) -> bool:
        return self.offsets is not None and self.shape.is_ragged

    @property
    def device(self) -> Device:
        where = str(getattr(self.values, "device", "cpu")).lower()
        return Device.GPU if "cuda" in where or "gpu" in where else Device.CPU

    def cpu(self) -> TensorColumn:
        """The column in host memory."""
        if self.device is Device.CPU:
            return self
        move = (lambda x: x.cpu()) if self.framework == "torch" else _numpy
        return type(self)(move(self.values), None if self.offsets is None else move(self.offsets), _unsafe=True)

    def gpu(self) -> TensorColumn:
        """The column in a GPU's memory, where its framework has one."""
        if self.framework == "torch" and require("torch", "torch").cuda.is_available():
            offsets = None if self.offsets is None else self.offsets.cuda()
            return type(self)(self.values.cuda(), offsets, _unsafe=True)
        return self

    @classmethod
    def cast(cls, other: TensorColumn) -> TensorColumn:
        """Another framework's column as one of this."""
        offsets = None if other.offsets is None else cls.array_constructor(_numpy(other.offsets))
        return cls(cls.array_constructor(_numpy(other.values)), offsets, _unsafe=True)

    @staticmethod
    def array_constructor(values: Any) -> Any:
        return np.asarray(values)

    @classmethod
    def array_type(cls) -> Any:
        return type(cls.array_constructor([0]))

    @classmethod
    def supported_devices(cls) -> list[Device]:
        only = {"numpy": [Device.CPU], "cupy": [Device.GPU]}
        return only.get(cls.framework, [Device.CPU, Device.GPU])

    def __len__(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    def __getitem__(self, index: int) -> Any:
        if self.offsets is None:
            return self.values[index]
        index = index + len(self) if index < 0 else index
        return self.values[int(self.offsets[index]) : int(self.offsets[index + 1])]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorColumn) or (self.offsets is None) != (other.offsets is None):
            return False
        same = type(self) is type(other) and np.array_equal(_numpy(self.values), _numpy(other.values))
        return same and (self.offsets is None or np.array_equal(_numpy(self.offsets), _numpy(other.offsets)))

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(_numpy(self.values), dtype=dtype)

    def tolist(self) -> list[Any]:
        """The rows as plain Python values."""
        here = _numpy(self.values)
        return here.tolist() if self.offsets is None else [here[a:b].tolist() for a, b in _bounds(self.offsets)]

    def ravel(self) -> np.ndarray:
        """All values end to end."""
        return _numpy(self.values).ravel()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(values={self.values!r}, offsets={self.offsets!r}, dtype={self._dtype.name})"


class NumpyColumn(TensorColumn):
    """A column of NumPy arrays.

    >>> NumpyColumn(np.array([1.5])).dtype.name
    'float64'
    """

    framework = "numpy"


class CupyColumn(TensorColumn):
    """A column of CuPy's arrays, where a program has these."""

    framework = "cupy"

    @staticmethod
    def array_constructor(values: Any) -> Any:
        return require("cupy", "cupy").asarray(values)


class TorchColumn(TensorColumn):
    """A column of torch's tensors."""

    framework = "torch"

    @staticmethod
    def array_constructor(values: Any) -> Any:
        return require("torch", "torch").as_tensor(np.array(values))


class TensorflowColumn(TensorColumn):
    """A column of TensorFlow's tensors."""

    framework = "tensorflow"

    @staticmethod
    def array_constructor(values: Any) -> Any:
        return require("tensorflow", "keras").convert_to_tensor(values)


def create_tensor_column(values: Any, *args: Any, **kwargs: Any) -> TensorColumn:
    """A column of the type that holds such values.

    >>> create_tensor_column(np.array([1, 2])).values.tolist()
    [1, 2]
    """
    return TensorColumn(values, *args, **kwargs)


def convert_col(column: TensorColumn, target_type: type[TensorColumn], *functions: Any) -> TensorColumn:
    """A column as one of another framework.

    >>> convert_col(TensorColumn(np.array([1])), TorchColumn).values.tolist()
    [1]
    """
    if isinstance(column, target_type):
        return column
    if column.device not in target_type.supported_devices():
        raise CompatNotImplementedError(
            f"Could not convert from type {type(column).__name__} to {target_type.__name__}: it lies in the memory of "
            f"the {column.device.name}, where {target_type.__name__} has no arrays; move it with cpu() or gpu() first"
        )
    return target_type.cast(column)


_COLUMNS: dict[str, type[TensorColumn]] = {
    "numpy": NumpyColumn,
    "torch": TorchColumn,
    "tensorflow": TensorflowColumn,
    "cupy": CupyColumn,
}


def column_type_of(kind: Any) -> type[TensorColumn]:
    """The class of columns that a class of columns, or of arrays, stands for.

    >>> column_type_of(np.ndarray).__name__
    'NumpyColumn'
    """
    if isinstance(kind, type) and issubclass(kind, TensorColumn):
        return kind
    # By the library of the class, so that none is imported for the sake of the question.
    known = _COLUMNS.get(kind.__module__.split(".")[0]) if isinstance(kind, type) else None
    if known is None:
        raise DataError(f"Unsupported tensor type {kind!r}: it must be a class of columns or of arrays")
    return known


def _from_lists(values: Any, offsets: Any, kind: type[TensorColumn]) -> tuple[Any, Any]:
    """Arrays from rows in lists: as they are where all have one length, else end to end with offsets."""
    lengths = [len(row) for row in values if isinstance(row, (list, tuple, np.ndarray))]
    if offsets is not None or len(set(lengths)) < 2:
        given = None if offsets is None else kind.array_constructor(np.asarray(offsets))
        return kind.array_constructor(np.asarray(values)), given
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return kind.array_constructor(end_to_end(values)), kind.array_constructor(offsets)


def end_to_end(rows: Any) -> np.ndarray:
    """The items of all rows; an empty row, which NumPy takes for floats, has no say in their dtype.

    >>> end_to_end([[1], [], [2, 3]]).tolist()
    [1, 2, 3]
    """
    arrays = [np.asarray(row) for row in rows]
    return np.concatenate([array for array in arrays if len(array)] or arrays)


def _framework_of(values: Any) -> str:
    return type(values).__module__.split(".")[0]


def _class_of(values: Any) -> type[TensorColumn]:
    known = NumpyColumn if isinstance(values, (list, tuple)) else _COLUMNS.get(_framework_of(values))
    if known is None:
        raise CompatTypeError(f"a column takes arrays of {', '.join(_COLUMNS)}, got {type(values).__name__}")
    return known


def _bounds(offsets: Any) -> list[tuple[int, int]]:
    return list(itertools.pairwise(_numpy(offsets).tolist()))


def _numpy(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)
