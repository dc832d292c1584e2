"""Columns from another table."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import polars as pl

from penstock.core.conversion import held
from penstock.core.dtypes import FLOATS, INTEGERS, canonical, common
from penstock.core.errors import ColumnNotFoundError, ParameterError, SchemaError
from penstock.core.params import BOOL, NONE, STR, ListOf, OneOf
from penstock.core.schema import Schema
from penstock.data.dataset import Dataset
from penstock.data.frames import to_polars
from penstock.data.keys import one_zero
from penstock.data.sources import DataLike, are_paths, paths_of
from penstock.etl.operator import ROW_NUMBER, Columns, Operator, same_names

_NAMES = STR | ListOf(STR)


class JoinExternal(Operator):
    """Join the columns of another table by key; the inputs pass through.

    A left join on keys that are unique in the table keeps the rows as they are. An inner join, or a key that the
    table holds several times, changes them. A missing key matches nothing.

    Args:
        df_ext: a polars, pandas or Arrow frame, a Dataset, or paths of one. A saved workflow holds the
            table; a recipe, where paths were given, the paths.
        on: the key columns of the data; among the inputs.
        how: `"left"` or `"inner"`.
        on_ext: the key columns of the table, where they are named otherwise.
        columns_ext: the table's columns to join; all by default.
        drop_duplicates_ext: drop repeated rows of the table first.

    >>> from penstock import Workflow
    >>> cities = pl.DataFrame({"city": ["Rome", "Oslo"], "country": ["IT", "NO"]})
    >>> frame = pl.DataFrame({"city": ["Oslo", "Lima", "Rome"]})
    >>> Workflow(["city"] >> JoinExternal(cities, on="city")).transform(frame)["country"].to_list()
    ['NO', None, 'IT']
    """

    constraints = {
        "on": _NAMES,
        "how": OneOf(("left", "inner")),
        "on_ext": _NAMES | NONE,
        "columns_ext": _NAMES | NONE,
        "drop_duplicates_ext": BOOL,
    }

    def __init__(
        self,
        df_ext: DataLike,
        on: str | Sequence[str],
        how: str = "left",
        on_ext: str | Sequence[str] | None = None,
        columns_ext: str | Sequence[str] | None = None,
        drop_duplicates_ext: bool = False,
    ) -> None:
        self.df_ext = df_ext
        self.on = on
        self.how = how
        self.on_ext = on_ext
        self.columns_ext = columns_ext
        self.drop_duplicates_ext = drop_duplicates_ext

    def check_params(self) -> None:
        super().check_params()
        if len(_listed(self.on)) != len(self._keys_ext):
            raise ParameterError(f"JoinExternal.on and on_ext must name as many columns: {self.on!r}, {self.on_ext!r}")

    @property
    def _keys_ext(self) -> list[str]:
        return _listed(self.on if self.on_ext is None else self.on_ext)

    def _keys_left_out(self, columns: Columns) -> list[str]:
        """The table's keys that do not come out: the data's own keys say the same."""
        return self._keys_ext

    @property
    def changes_rows(self) -> bool:  # type: ignore[override]
        return self.how == "inner" or bool(self.table.select(self._keys_ext).drop_nulls().is_duplicated().any())

    @property
    def table(self) -> pl.DataFrame:
        """The other table's keys and columns, read once."""
        if not hasattr(self, "_table"):
            source = Dataset(self.df_ext) if are_paths(self.df_ext) else self.df_ext
            whole = source.to_polars() if isinstance(source, Dataset) else to_polars(source)
            wanted = whole.columns if self.columns_ext is None else _listed(self.columns_ext)
            names = list(dict.fromkeys([*self._keys_ext, *wanted]))
            for name in names:
                if name not in whole.columns:
                    raise ColumnNotFoundError(name, whole.columns, "JoinExternal.df_ext")
            table = whole.select(names)
            self._table = table.unique(maintain_order=True) if self.drop_duplicates_ext else table
        return self._table

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        keys = _listed(self.on)
        names = [*columns.names, ROW_NUMBER] if ROW_NUMBER in frame.columns else list(columns.names)
        left = frame.select(names).with_columns(pl.col(k).alias(f"on:{i}") for i, k in enumerate(keys))
        right = self.table.with_columns(pl.col(k).alias(f"on:{i}") for i, k in enumerate(self._keys_ext))
        right = right.drop(self._keys_left_out(columns))
        for i, key in enumerate(keys):
            name = f"on:{i}"
            sides = _as_keys(left[name], right[name], key)
            left, right = left.with_columns(sides[0]), right.with_columns(sides[1])
        on = [f"on:{i}" for i in range(len(keys))]
        joined = left.join(right, on=on, how=self.how, maintain_order="left_right")  # type: ignore[arg-type]
        return joined.drop(on)

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        for name in _listed(self.on):
            if name not in columns.names:
                raise ColumnNotFoundError(name, columns.names, "JoinExternal's inputs (on)")
        added = Schema.from_polars(self.table.drop(self._keys_left_out(columns)).schema)
        for column in added:
            if column.name in columns.names:
                raise SchemaError(
                    f"JoinExternal: column {column.name!r} is in the data and in df_ext; choose others with columns_ext"
                )
        return inputs.select(columns.names) + added

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def frames(self) -> dict[str, pl.DataFrame]:
        return {"df_ext": self.table}

    def recipe_params(self) -> dict[str, Any]:
        source = self.df_ext
        if not are_paths(source):
            raise ParameterError(
                f"JoinExternal.df_ext cannot be written in a recipe: a {type(source).__name__} lives in memory; write "
                f"it as parquet and give JoinExternal the path, or save the workflow, which keeps the table"
            )
        copied = copy.copy(self)
        copied.df_ext = paths_of(source)
        return Operator.recipe_params(copied)

    def __getstate__(self) -> dict[str, Any]:
        """Other processes read a path themselves; a frame travels once."""
        gone = "_table" if are_paths(self.df_ext) else ""
        return {k: v for k, v in self.__dict__.items() if k != gone}


def _as_keys(left: pl.Series, right: pl.Series, key: str) -> tuple[pl.Series, pl.Series]:
    """Both sides' keys as they meet: NaN is missing, -0.0 is 0.0, int32 ids find int64 ones, and 1.0 finds 1.

    A value that the other side's dtype does not hold meets nothing, like a missing one.
    """
    left, right = (one_zero(s.fill_nan(None)) if s.dtype.is_float() else s for s in (left, right))
    if left.dtype == right.dtype:
        return left, right
    both = {canonical(left.dtype), canonical(right.dtype)}
    whole = [dtype for dtype in both if dtype in INTEGERS]
    dtype = common(both) if len(whole) != 1 or not both & set(FLOATS) else whole[0]
    if dtype is None and len(whole) == 2:
        dtype = "int64"  # of uint64, only what int64 holds as well can meet it
    if dtype is None and not all(d.startswith(("date", "datetime")) for d in both):
        raise SchemaError(f"JoinExternal: column {key!r} is {left.dtype}, its counterpart in df_ext {right.dtype}")
    dtype = dtype or "datetime[us]"
    return held(left, dtype)[0], held(right, dtype)[0]


def _listed(names: Any) -> list[str]:
    return [names] if isinstance(names, str) else list(names)
