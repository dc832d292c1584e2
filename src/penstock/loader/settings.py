"""What a loader is asked for, checked once: columns, their dtypes, how lists are delivered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core import dtypes as dt
from penstock.core.conversion import Policy, convert
from penstock.core.errors import ConversionError, ParameterError, SchemaError, suggest
from penstock.core.params import NONE, OneOf, Real, check
from penstock.core.params import Int as IntBetween
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.loader.frames import Fill

PACKED = {Role.CATEGORICAL: "int64", Role.CONTINUOUS: "float32", Role.LABEL: "float32"}
TARGET_BYTES = 64 << 20
TARGET_ROWS = 1 << 20


@dataclass(frozen=True)
class Pad:
    """Lists as a dense `(rows, max_len)` array: cut to `max_len` items, filled up with `value` on one side.

    Without `max_len` a batch is as wide as its longest list.

    Args:
        max_len: items kept of a list.
        side: where it is filled up, `"right"` or `"left"`.
        value: what with.

    >>> Pad(3, side="left").side
    'left'
    """

    max_len: int | None = None
    side: str = "right"
    value: float = 0

    def __post_init__(self) -> None:
        check("Pad.max_len", self.max_len, IntBetween(min=1) | NONE)
        check("Pad.side", self.side, OneOf(("right", "left")))
        check("Pad.value", self.value, Real())


ListLayouts = str | Pad | Mapping[str, "str | Pad"]


def chosen_columns(
    schema: Schema,
    categorical: Sequence[str] | None,
    continuous: Sequence[str] | None,
    labels: Sequence[str] | None,
) -> Schema:
    """The columns to load with their roles: those named, else those with a role, else all numbers."""
    given = {Role.CATEGORICAL: categorical, Role.CONTINUOUS: continuous, Role.LABEL: labels}
    named = {role: [n] if isinstance(n, str) else list(n) for role, n in given.items() if n is not None}
    if named:
        columns = [schema[name].with_(role=role) for role, names in named.items() for name in names]
    else:
        with_role = [c for c in schema if c.role is not Role.OTHER]
        columns = with_role or [c for c in schema if c.dtype in dt.NUMERIC]
    for column in columns:
        if column.dtype not in dt.NUMERIC:
            raise SchemaError(
                f"{schema.place}: column {column.name!r} is {column.dtype}, and a batch holds numbers; encode it first "
                f"(Categorify), or leave it out by naming the others in categorical=, continuous= and labels="
            )
    if not columns:
        raise SchemaError(
            f"{schema.place}: there is no column to load; name some in categorical=, continuous= and labels="
        )
    return Schema(columns)


def delivered_dtypes(
    schema: Schema, layout: str, dtypes: Mapping[str, Any] | None, substitutes: Mapping[str, str]
) -> dict[str, np.dtype]:
    """The dtype of each column in the batches: by column, else by role, else what the layout wants."""
    wanted = {key: dt.canonical(value) for key, value in (dtypes or {}).items()}
    if unknown := [k for k in wanted if k not in schema and k not in set(Role)]:
        names = [*schema.names, *Role]
        raise ParameterError(f"dtypes names {unknown[0]!r}{suggest(unknown[0], names, 'columns and roles')}")
    if layout == "packed" and (stray := [c.name for c in schema if c.role not in PACKED]):
        raise ParameterError(
            f"layout='packed' needs a role for every column, and {stray[0]!r} has none; "
            f"name the columns in categorical=, continuous= and labels="
        )
    return {c.name: np.dtype(_delivered(c, layout, wanted, substitutes)) for c in schema}


def _delivered(column: ColumnSchema, layout: str, wanted: Mapping[str, str], substitutes: Mapping[str, str]) -> str:
    default = PACKED[column.role] if layout == "packed" else substitutes.get(column.dtype, column.dtype)
    name = wanted.get(column.name, wanted.get(column.role, default))
    return "uint8" if name == "bool" else dt.to_numpy(name).name


def default_chunk_rows(row_bytes: int, on_device: bool = False) -> int:
    """A chunk of at most a million rows, fewer where rows are wide: its columns should fit the cache one by one.

    `row_bytes` are those of a stored row with all its columns: which of them are loaded, in which dtypes and layout,
    must not change the order of the rows.

    A device shuffles by itself and likes long copies, so its chunks are larger (measured on an H200: 35, 51 and 67 M
    rows/s with half a million, one and two million rows of 40 columns).
    """
    scale = 4 if on_device else 1
    return max(1, min(scale * TARGET_ROWS, scale * TARGET_BYTES // max(row_bytes, 1)))


def checked_lists(
    lists: Any, schema: Schema, choices: Sequence[str], dtypes: Mapping[str, np.dtype]
) -> dict[str, str | Pad]:
    """How each list column is delivered; `dtypes`, those of the batches, must hold what lists are filled up with."""
    names = [c.name for c in schema if c.is_list]
    per_column = dict(lists) if isinstance(lists, Mapping) else dict.fromkeys(names, lists)
    for name, choice in per_column.items():
        if name not in names:
            raise ParameterError(f"lists names {name!r}{suggest(name, names, 'list columns')}")
        if not isinstance(choice, Pad) and choice not in choices:
            known = ", ".join(repr(c) for c in choices)
            raise ParameterError(f"lists must be one of {known}, a Pad, or {{column: one of these}}, got {choice!r}")
        if isinstance(choice, Pad) and (why := _unfit(choice.value, schema[name].with_(dtype=dtypes[name].name))):
            raise ParameterError(f"Pad.value of the lists in {name!r}: {why}")
    return {name: per_column.get(name, "ragged") for name in names}


def checked_fill(fill: Any, schema: Schema) -> Fill:
    """The replacement of nulls, by column, in the column's dtype.

    A number for all columns that some of them cannot hold is an error once one of these has a null.
    """
    if isinstance(fill, Mapping):
        for name, value in fill.items():
            if name not in schema:
                raise ParameterError(f"fill names {name!r}{suggest(name, schema.names, 'columns')}")
            check(f"fill[{name!r}]", value, Real(finite=False))
    else:
        check("fill", fill, Real(finite=False) | NONE)
        fill = {} if fill is None else dict.fromkeys(schema.names, fill)
        fits = {name: why for name, value in fill.items() if (why := _unfit(value, schema[name])) is not None}
        return Fill({n: _fitting(v, schema[n]) for n, v in fill.items() if n not in fits}, fits)
    for name, value in fill.items():
        if (why := _unfit(value, schema[name])) is not None:
            raise ParameterError(f"fill[{name!r}]: {why}")
    return Fill({name: _fitting(value, schema[name]) for name, value in fill.items()})


def _unfit(value: float, column: ColumnSchema) -> str | None:
    """Why a column cannot hold a fill, or None."""
    try:
        return f"{value} is no {column.dtype}" if _fitting(value, column) is None else None
    except ConversionError as error:
        return f"{value} is no {column.dtype} ({error.reason})"


def _fitting(value: float, column: ColumnSchema) -> Any:
    policy: Policy = "round" if column.dtype in dt.FLOATS else "exact"
    return convert(value, column.dtype, column=column.name, policy=policy)
