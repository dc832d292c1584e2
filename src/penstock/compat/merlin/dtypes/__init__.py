"""`merlin.dtypes`: one spelling of dtypes for all frameworks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from penstock.compat.merlin.dtypes.shape import Shape
from penstock.compat.missing import CompatTypeError
from penstock.core import dtypes as native
from penstock.core.errors import SchemaError

# Merlin's dtype, and how others become it.


class ElementType(Enum):
    """What an element is.

    >>> ElementType("int") is ElementType.Int
    True
    """

    Bool = "bool"
    Int = "int"
    UInt = "uint"
    Float = "float"
    String = "string"
    DateTime = "datetime"
    Object = "object"
    Struct = "struct"
    Unknown = "unknown"


class ElementUnit(Enum):
    """The unit of a time.

    >>> ElementUnit.Nanosecond.value
    'nanosecond'
    """

    Year = "year"
    Month = "month"
    Day = "day"
    Hour = "hour"
    Minute = "minute"
    Second = "second"
    Millisecond = "millisecond"
    Microsecond = "microsecond"
    Nanosecond = "nanosecond"


@dataclass(frozen=True)
class DType:
    """A dtype of elements, with the shape of the column.

    >>> DType("int32", ElementType.Int, 32, signed=True).to_numpy
    dtype('int32')
    """

    name: str
    element_type: ElementType
    element_size: int | None = None
    element_unit: ElementUnit | None = None
    signed: bool | None = None
    shape: Shape | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", Shape(self.shape))

    def to(self, mapping_name: str) -> Any:
        """This dtype in the words of a library: numpy, python, pandas, torch, tensorflow, or one that was registered.

        >>> named("int32").to("numpy"), named("str").to("python")
        (dtype('int32'), <class 'str'>)
        """
        from penstock.compat.merlin.dtypes.mapping import converted

        return converted(self, mapping_name)

    @property
    def to_numpy(self) -> np.dtype:
        if self.element_type is ElementType.String:
            return np.dtype("O")
        try:
            return np.dtype(self.name)
        except TypeError:
            raise SchemaError(f"dtype {self.name} has no NumPy equivalent") from None

    @property
    def dtype(self) -> np.dtype:
        """By this NumPy and pandas take it for a dtype of theirs.

        >>> np.zeros(2, dtype=named("int32")).dtype
        dtype('int32')
        """
        return self.to_numpy

    @property
    def to_python(self) -> type:
        kinds = {"int": int, "uint": int, "float": float, "bool": bool, "string": str}
        return kinds.get(self.element_type.value, object)

    @property
    def is_integer(self) -> bool:
        return self.element_type in (ElementType.Int, ElementType.UInt)

    @property
    def is_float(self) -> bool:
        return self.element_type is ElementType.Float

    @property
    def is_list(self) -> bool:
        return bool(self.shape and self.shape.is_list)

    @property
    def is_ragged(self) -> bool:
        return bool(self.shape and self.shape.is_ragged)

    @property
    def without_shape(self) -> DType:
        return dataclasses.replace(self, shape=None)

    def with_shape(self, shape: Any) -> DType:
        if not isinstance(shape, (tuple, list, Shape)):
            raise CompatTypeError(f"a dtype's shape is a tuple or a Shape, got {shape!r}")
        return dataclasses.replace(self, shape=Shape(shape))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DType):
            try:
                other = dtype_of(other)
            except TypeError:
                return False
            return self.name == other.name  # a foreign dtype says nothing of shapes
        return self.name == other.name and self.shape == other.shape  # an unknown shape fits every other

    def __hash__(self) -> int:
        return hash(self.name)


_UNITS = {"Y": "Year", "M": "Month", "D": "Day", "h": "Hour", "m": "Minute", "s": "Second", "ms": "Millisecond",
          "us": "Microsecond", "ns": "Nanosecond"}  # fmt: skip


def named(name: str) -> DType:
    """The dtype of one of Merlin's names.

    >>> named("uint8").element_type, named("datetime64[ns]").element_unit
    (<ElementType.UInt: 'uint'>, <ElementUnit.Nanosecond: 'nanosecond'>)
    """
    for kind in ("uint", "int", "float"):
        if name.startswith(kind) and name[len(kind) :].isdigit():
            signed = None if kind == "uint" else True
            return DType(name, ElementType(kind), int(name[len(kind) :]), signed=signed)
    if name.startswith("datetime64"):
        unit = name[len("datetime64[") : -1] if "[" in name else ""
        return DType(name, ElementType.DateTime, 64, ElementUnit[_UNITS[unit]] if unit else None)
    kinds = {"str": ElementType.String, "bool": ElementType.Bool, "object": ElementType.Object,
             "struct": ElementType.Struct}  # fmt: skip
    return DType(name, kinds.get(name, ElementType.Unknown))


_OWN = {
    "str",
    "string",
    "object",
    "struct",
    "unknown",
    "float16",
    "datetime64",
    *(f"datetime64[{unit}]" for unit in _UNITS),
}


def dtype_of(external: Any) -> DType:
    """Merlin's dtype for any other."""
    from penstock.compat.merlin.dtypes.mapping import registered

    if isinstance(external, DType):
        return external
    if (known := registered(external)) is not None:
        return known
    if external is None:
        raise CompatTypeError("None is no dtype; give one, or merlin.dtypes.unknown")
    if isinstance(external, type):
        external = _known_class(external)
        if external is None:
            return named("unknown")
    if isinstance(external, np.dtype) and external.kind in "US":
        return named("str")
    name = getattr(external, "name", None) if not isinstance(external, (str, type)) else external
    if str(external).startswith("torch."):
        name = str(external).removeprefix("torch.")
    if isinstance(name, str) and name.lower() in _OWN:
        return named({"string": "str"}.get(name.lower(), name.lower() if "[" not in name else name))
    python = {np.float16: "float16", np.datetime64: "datetime64", object: "object"}
    if isinstance(external, type) and external in python:
        return named(python[external])
    try:
        return from_native(native.canonical(name if isinstance(name, str) else external))
    except SchemaError as error:
        if (spelled := _numpy_name(name)) is not None:
            return dtype_of(spelled)
        raise CompatTypeError(f"{external!r} is no dtype that is known here: {error}") from error


def _numpy_name(name: Any) -> str | None:
    """What NumPy calls a dtype that is spelled as only NumPy does, such as "<M8[ms]" or "i4"."""
    try:
        full = np.dtype(name).name if isinstance(name, str) else name
    except TypeError:
        return None
    return None if full == name else full


def _known_class(external: type) -> Any:
    """A class that is a dtype; None for others, which NumPy would take for one of objects."""
    library = external.__module__.split(".")[0]
    if library == "pandas":
        return external()
    return external if library in ("builtins", "numpy", "polars", "datetime") else None


def from_native(name: str) -> DType:
    """Penstock's name of a dtype as Merlin's.

    >>> from_native("string").name, from_native("datetime[ns]").name
    ('str', 'datetime64[ns]')
    """
    if native.is_nested(name):
        return from_native(native.inner_of(name))  # the shape says that these are lists
    if name == "string":
        return named("str")
    if name.startswith("datetime["):
        return named(name.replace("datetime", "datetime64"))
    known = name == "bool" or name in native.INTEGERS or name in native.FLOATS
    return named(name if known else {"date": "datetime64[D]", "null": "unknown"}.get(name, "object"))


def to_native(dtype: DType) -> str:
    """Merlin's dtype as Penstock's name; what is not known is "null".

    >>> to_native(named("str")), to_native(named("unknown"))
    ('string', 'null')
    """
    if dtype.element_type is ElementType.Unknown:
        return "null"
    if dtype.element_type is ElementType.DateTime:
        return "date" if dtype.name == "datetime64[D]" else native.canonical(dtype.name.replace("64", ""))
    return native.canonical(dtype.name)


# The dtypes by name.

uint8 = named("uint8")
uint16 = named("uint16")
uint32 = named("uint32")
uint64 = named("uint64")
int8 = named("int8")
int16 = named("int16")
int32 = named("int32")
int64 = named("int64")
float16 = named("float16")
float32 = named("float32")
float64 = named("float64")
datetime64 = named("datetime64")
datetime64Y = named("datetime64[Y]")
datetime64M = named("datetime64[M]")
datetime64D = named("datetime64[D]")
datetime64h = named("datetime64[h]")
datetime64m = named("datetime64[m]")
datetime64s = named("datetime64[s]")
datetime64ms = named("datetime64[ms]")
datetime64us = named("datetime64[us]")
datetime64ns = named("datetime64[ns]")
string = named("str")
boolean = named("bool")
object_ = named("object")
struct = named("struct")
unknown = named("unknown")


def dtype(external_dtype: Any) -> DType:
    """Merlin's dtype for a NumPy, pandas, polars, torch, TensorFlow or Python one.

    >>> import numpy as np
    >>> from penstock.compat.merlin.dtypes import int32
    >>> dtype(np.int32) == int32, dtype(str).name, dtype("float32").is_float
    (True, 'str', True)
    """
    return dtype_of(external_dtype)
