"""One spelling for every dtype: the names that schemas store and artefacts carry.

>>> canonical("int32"), canonical(np.float32), canonical(pl.String), canonical(str)
('int32', 'float32', 'string', 'string')
>>> to_polars("uint16")
UInt16
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from penstock.core.errors import SchemaError, suggest

DtypeLike: TypeAlias = str | type | np.dtype | pl.DataType  # what `canonical` knows the name of

_POLARS: dict[str, pl.DataType] = {
    "bool": pl.Boolean(),
    "int8": pl.Int8(),
    "int16": pl.Int16(),
    "int32": pl.Int32(),
    "int64": pl.Int64(),
    "uint8": pl.UInt8(),
    "uint16": pl.UInt16(),
    "uint32": pl.UInt32(),
    "uint64": pl.UInt64(),
    "float32": pl.Float32(),
    "float64": pl.Float64(),
    "string": pl.String(),
    "binary": pl.Binary(),
    "date": pl.Date(),
    "time": pl.Time(),
    "datetime[ms]": pl.Datetime("ms"),
    "datetime[us]": pl.Datetime("us"),
    "datetime[ns]": pl.Datetime("ns"),
    "null": pl.Null(),
}
_NAMES = {dtype: name for name, dtype in _POLARS.items()}
# Dtypes that their class tells all about. Comparing polars' dtypes runs Python for each, and for every column of every
# partition the interpreter's lock is held meanwhile, which is what many threads wait for.
_NAMES_BY_CLASS = {type(dtype): name for dtype, name in _NAMES.items() if not isinstance(dtype, pl.Datetime)}
_ALIASES = {
    "str": "string", "object": "string", "utf8": "string", "large_string": "string", "category": "string",
    "int": "int64", "float": "float64", "boolean": "bool", "double": "float64", "datetime": "datetime[us]",
    "datetime64[ns]": "datetime[ns]", "datetime64[us]": "datetime[us]", "datetime64[ms]": "datetime[ms]",
    # Hexadecimal text ("68fd1e64") that readers turn into the integer it spells.
    "hex32": "uint32", "hex64": "uint64",
}  # fmt: skip

_LIST = "list["  # how the name of a list's dtype begins
MAX_NESTED = 8  # axes of a list column's cells; each costs a step of the stack, so there is a bound

INTEGERS = tuple(n for n in _POLARS if n.startswith(("int", "uint")))
FLOATS = ("float32", "float64")
NUMERIC = (*INTEGERS, *FLOATS, "bool")
HEX = {"hex32": "uint32", "hex64": "uint64"}


def canonical(dtype: DtypeLike) -> str:
    """The schema's name for a polars, numpy, pandas or Python dtype (or the name itself).

    Where a column holds lists of lists, the dtype of its elements is `list[int64]` or the like.
    """
    known = _NAMES_BY_CLASS.get(type(dtype))  # type: ignore[arg-type]
    if known is not None:
        return known
    if isinstance(dtype, str):
        if dtype in _POLARS:
            return dtype
        if is_nested(dtype):
            if levels_of(dtype) >= MAX_NESTED:
                raise SchemaError(f"unknown dtype {dtype!r}: lists are nested {MAX_NESTED} deep at most")
            return f"{_LIST}{canonical(inner_of(dtype))}]"
        name = _ALIASES.get(dtype.lower(), dtype.lower())
        if name in _POLARS:
            return name
        raise SchemaError(f"unknown dtype {dtype!r}{suggest(dtype, [*_POLARS, *_ALIASES], 'dtypes')}")
    if isinstance(dtype, type) and not issubclass(dtype, (pl.DataType, np.generic)):
        python = {str: "string", int: "int64", float: "float64", bool: "bool", bytes: "binary"}
        if dtype in python:
            return python[dtype]
    if isinstance(dtype, pl.DataType) or (isinstance(dtype, type) and issubclass(dtype, pl.DataType)):
        return _from_polars(dtype)
    try:
        return canonical(np.dtype(dtype).name)
    except TypeError as error:
        raise SchemaError(f"unknown dtype {dtype!r}") from error


def canonical_each(dtypes: Mapping[str, DtypeLike]) -> dict[str, str]:
    """The schema's names for the dtypes of columns; hexadecimal ones stay.

    Raises:
        SchemaError: a dtype is unknown; the message names its column.

    >>> canonical_each({"user": "hex32", "age": int})
    {'user': 'hex32', 'age': 'int64'}
    """
    found = {}
    for name, dtype in dtypes.items():
        try:
            found[name] = dtype if isinstance(dtype, str) and dtype in HEX else canonical(dtype)
        except SchemaError as error:
            raise SchemaError(f"column {name!r}: {error}") from None
    return found


def is_nested(name: str) -> bool:
    """Whether the dtype of a list's elements is itself one of lists.

    >>> is_nested("list[int64]"), is_nested("int64")
    (True, False)
    """
    return name.startswith(_LIST) and name.endswith("]")


def inner_of(name: str) -> str:
    """The dtype in the lists that a nested one holds.

    >>> inner_of("list[int64]")
    'int64'
    """
    return name[len(_LIST) : -1]


def levels_of(name: str) -> int:
    """How many levels deep the elements of a list column are lists themselves.

    >>> levels_of("list[list[int64]]"), levels_of("int64")
    (2, 0)
    """
    return name.count(_LIST)


def nested(name: str, levels: int) -> str:
    """A dtype as that of elements which are lists of lists, so many levels deep.

    >>> nested("int64", 2)
    'list[list[int64]]'
    """
    return f"{_LIST * levels}{name}{']' * levels}"


def _from_polars(dtype: Any) -> str:
    dtype = dtype() if isinstance(dtype, type) else dtype
    if isinstance(dtype, (pl.List, pl.Array)):
        return canonical(f"{_LIST}{_from_polars(dtype.inner)}]")
    if dtype == pl.Float16:
        return "float32"  # which holds the same numbers
    if isinstance(dtype, (pl.Categorical, pl.Enum)):
        return "string"
    if isinstance(dtype, pl.Datetime):
        return f"datetime[{dtype.time_unit}]"
    if isinstance(dtype, pl.Duration):
        return "int64"
    if isinstance(dtype, pl.Decimal):  # without places behind the point it holds ids, as NUMBER(38, 0) does
        return "int64" if dtype.scale == 0 else "float64"
    if dtype in _NAMES:
        return _NAMES[dtype]
    raise SchemaError(f"columns of type {dtype} are not supported; cast them first or leave them out")


def is_readable(dtype: pl.DataType) -> bool:
    """Whether a column of a polars dtype can be read: it has a name here.

    >>> is_readable(pl.List(pl.String())), is_readable(pl.Struct({"a": pl.Int64()}))
    (True, False)
    """
    try:
        _from_polars(dtype)
    except SchemaError:
        return False
    return True


def is_canonical(dtype: pl.DataType) -> bool:
    """Whether a polars dtype is the one that its name stands for, as far as its class tells.

    >>> is_canonical(pl.Int8()), is_canonical(pl.Enum(["a"])), is_canonical(pl.Datetime("us", "Asia/Tokyo"))
    (True, False, False)
    """
    return type(dtype) in _NAMES_BY_CLASS


def same_dtype(one: pl.DataType, other: pl.DataType) -> bool:
    """Whether two polars dtypes are equal.

    >>> same_dtype(pl.Int8(), pl.Int8()), same_dtype(pl.List(pl.Int8), pl.List(pl.Int16))
    (True, False)
    """
    if type(one) is not type(other):
        return False
    return type(one) in _NAMES_BY_CLASS or one == other


def split_list(dtype: pl.DataType) -> tuple[pl.DataType, bool]:
    """`(element dtype, is_list)` of a polars dtype; the elements of lists of lists are lists."""
    if isinstance(dtype, (pl.List, pl.Array)):
        inner = dtype.inner
        inner = inner() if isinstance(inner, type) else inner
        deeper, depth = inner, 1
        while isinstance(deeper, (pl.List, pl.Array)):
            deeper, depth = deeper.inner, depth + 1
        if depth > MAX_NESTED:
            raise SchemaError(
                f"lists are nested {MAX_NESTED} deep at most, and these are deeper ({dtype}); flatten the column first"
            )
        return inner, True
    return dtype, False


def without_half(dtype: pl.DataType) -> pl.DataType:
    """A dtype as data sets hold it: floats of 16 bits, which nothing computes in, as float32.

    >>> without_half(pl.List(pl.Float16))
    List(Float32)
    """
    if isinstance(dtype, pl.List):
        inner = dtype.inner() if isinstance(dtype.inner, type) else dtype.inner
        return pl.List(without_half(inner))
    return pl.Float32() if dtype == pl.Float16 else dtype


def to_polars(name: str, is_list: bool = False) -> pl.DataType:
    """The polars dtype of a canonical name."""
    if not is_list and name in _POLARS:
        return _POLARS[name]
    name = canonical(name)
    dtype = to_polars(inner_of(name), is_list=True) if is_nested(name) else _POLARS[name]
    return pl.List(dtype) if is_list else dtype


def to_numpy(name: str) -> np.dtype:
    """The NumPy dtype of a canonical name (numbers and booleans only)."""
    name = canonical(name)
    if name not in NUMERIC:
        raise SchemaError(f"dtype {name} has no numeric NumPy equivalent")
    return np.dtype(name)


def narrowest_int(cardinality: int) -> str:
    """The narrowest signed integer that holds codes in `[0, cardinality)`.

    >>> narrowest_int(100), narrowest_int(40_000), narrowest_int(3_000_000_000)
    ('int8', 'int32', 'int64')
    """
    for name in ("int8", "int16", "int32"):
        if cardinality - 1 <= np.iinfo(name).max:
            return name
    return "int64"


def common(names: Iterable[str]) -> str | None:
    """The narrowest dtype in which values of all these dtypes can stand side by side; None where there is none.

    >>> common(["int32", "uint32"]), common(["int8", "float32"]), common(["int64", "string"])
    ('int64', 'float32', None)
    """
    wanted = {canonical(name) for name in names} - {"null"}
    if len(wanted) <= 1:
        return next(iter(wanted), "null")
    if not wanted <= set(NUMERIC):
        return None
    if wanted <= {*INTEGERS, "bool"}:
        low = min(np.iinfo(n).min for n in wanted if n != "bool")
        high = max(np.iinfo(n).max for n in wanted if n != "bool")
        return next((n for n in INTEGERS if np.iinfo(n).min <= low and high <= np.iinfo(n).max), None)
    narrow = all(n in ("float32", "bool") or (n in INTEGERS and np.iinfo(n).bits <= 16) for n in wanted)
    return "float32" if narrow else "float64"
