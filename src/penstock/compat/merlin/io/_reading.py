"""What pandas' and Dask's readers did to rows as they read them: an index left out, missing values, dates, filters."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import polars as pl

from penstock.core.errors import ColumnNotFoundError, ParameterError
from penstock.core.schema import Schema
from penstock.data.dataset import Dataset
from penstock.data.files import parse_bytes
from penstock.data.formats.row_groups import whole_row_groups
from penstock.data.partition import Partition, SlicedPartition

_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name in a parquet file
_COMPARED = {
    "=": pl.Expr.eq, "==": pl.Expr.eq, "!=": pl.Expr.ne, "<": pl.Expr.lt, "<=": pl.Expr.le, ">": pl.Expr.gt,
    ">=": pl.Expr.ge,
}  # fmt: skip


def without_index(data: Dataset) -> Dataset:
    """Without the index that pandas wrote into its files: it is no feature."""
    kept = [name for name in data.schema.names if not _INDEX.fullmatch(name)]
    return data if len(kept) == len(data.schema.names) or not kept else data.select(kept)


@dataclass(frozen=True)
class _Signed:
    """Ids of 32 bits with a sign, as NVTabular read hexadecimal text: `ffffffff` is -1."""

    names: tuple[str, ...]

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(
            pl.col(n).reinterpret(signed=True) for n in self.names if frame.schema[n] == pl.UInt32
        )


def signed(data: Dataset, names: Sequence[str]) -> Dataset:
    """Columns that were asked for as `"hex"`."""
    if not names:
        return data
    plain = [c.with_(dtype="int32", properties={}) if c.name in names else c for c in data.schema]
    return data.map(_Signed(tuple(names)), Schema(plain))


@dataclass(frozen=True)
class _Missing:
    """Texts that stand for a missing value; a column that holds numbers besides becomes one of numbers."""

    values: Mapping[str, tuple[Any, ...]]
    numbers: tuple[str, ...]

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        changed = []
        for name, values in self.values.items():
            column, dtype = pl.col(name), frame.schema[name]
            known = [str(v) for v in values] if dtype == pl.String else [v for v in values if not isinstance(v, str)]
            column = pl.when(column.is_in(known)).then(None).otherwise(column) if known else column
            changed.append((column.cast(pl.Float64) if name in self.numbers else column).alias(name))
        return frame.with_columns(changed)


def with_missing(data: Dataset, na_values: Any, dtypes: Mapping[str, Any]) -> Dataset:
    """`na_values` as pandas takes it: one value, several, or `{column: values}`."""
    if na_values is None:
        return data
    by_column = na_values if isinstance(na_values, Mapping) else dict.fromkeys(data.schema.names, na_values)
    values = {name: tuple(v) if isinstance(v, (list, tuple, set)) else (v,) for name, v in by_column.items()}
    for name in values:
        data.schema[name]
    plain = _Missing(values, ())
    texts = [name for name in values if data.schema[name].dtype == "string" and name not in dtypes]
    sample = plain(data.head(1000)) if texts else pl.DataFrame()
    numbers = [n for n in texts if sample[n].drop_nulls().len() and _numeric(sample[n])]
    return _mapped(data, _Missing(values, tuple(numbers)))


def _numeric(series: pl.Series) -> bool:
    return series.drop_nulls().cast(pl.Float64, strict=False).null_count() == 0


@dataclass(frozen=True)
class _Dates:
    names: tuple[str, ...]

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        texts = [name for name in self.names if frame.schema[name] == pl.String]
        return frame.with_columns(pl.col(name).str.to_datetime(time_unit="ns") for name in texts)


def with_dates(data: Dataset, parse_dates: Any) -> Dataset:
    """Columns of text that are read as times."""
    if not parse_dates:
        return data
    if parse_dates is True or isinstance(parse_dates, Mapping):
        raise ParameterError(f"parse_dates takes a list of columns here, got {parse_dates!r}")
    names = [parse_dates] if isinstance(parse_dates, str) else list(parse_dates)
    known = [data.schema.names[name] if isinstance(name, int) else name for name in names]
    for name in known:
        data.schema[name]
    return _mapped(data, _Dates(tuple(known)))


def _mapped(data: Dataset, change: Any) -> Dataset:
    found = Schema.from_polars(change(data.head(1000)).schema)
    return data.map(change, Schema(data.schema[c.name].with_(dtype=c.dtype) for c in found))


def aggregated(data: Dataset, how: Any, part_size: int | str) -> Dataset:
    """Small files together in one partition: all of them, or those of one folder `how=…` with each other."""
    if not how:
        return data
    most, parts = parse_bytes(part_size), list[list[Partition]]()
    for part in data.partitions:
        last = parts[-1] if parts else []
        fits = last and sum(p.num_bytes for p in (*last, part)) <= most
        if fits and (how is True or folder_value(last[0], how) == folder_value(part, how)):
            last.append(part)
        else:
            parts.append([part])
    return Dataset.from_partitions([together(group) for group in parts], data.schema)


def together(parts: Sequence[Any]) -> Partition:
    """Partitions as one."""
    return parts[0] if len(parts) == 1 else SlicedPartition(tuple(parts), 0, sum(part.count() for part in parts))


def folder_value(part: Partition, name: str) -> str | None:
    """What the folders of a partition's file say of a column, as `day` in `data/day=3/0.parquet`."""
    found = re.search(rf"[\\/]{re.escape(name)}=([^\\/]*)[\\/]", part.path or "")
    return None if found is None else found[1]


def filtered(data: Dataset, filters: Any) -> Dataset:
    """Rows that hold all of `[(column, operator, value), …]`, or of one of several such lists."""
    if not filters:
        return data
    either = filters if isinstance(filters[0], list) else [filters]
    groups = [reduce(pl.Expr.and_, [_condition(data, c) for c in conditions]) for conditions in either]
    return data.filter(reduce(pl.Expr.or_, groups))


def _condition(data: Dataset, condition: Sequence[Any]) -> pl.Expr:
    if not isinstance(condition, (list, tuple)) or len(condition) != 3:
        raise ParameterError(f"filters are (column, operator, value), got {condition!r}")
    name, operator, value = condition
    if name not in data.schema:
        raise ColumnNotFoundError(name, data.schema.names, "the data (filters)")
    column = pl.col(name)
    values = list(value) if isinstance(value, (list, tuple, set)) else [value]
    if data.schema[name].dtype == "string" and all(isinstance(v, (int, float)) for v in values):
        column = column.cast(pl.Float64, strict=False)  # the numbers that the names of folders spell
    if operator == "in":
        return column.is_in(list(value))
    if operator == "not in":
        return ~column.is_in(list(value))
    if operator not in _COMPARED:
        raise ParameterError(f"filters compare by {', '.join(_COMPARED)}, in and not in, got {operator!r}")
    return _COMPARED[operator](column, value)


def by_row_groups(data: Dataset, count: int) -> Dataset:
    """Partitions of so many row groups of one file each, where every partition is one row group."""
    parts: list[Partition] = []
    for _, same in itertools.groupby(whole_row_groups(data.partitions), key=lambda part: part.path):
        listed = list(same)
        parts += [_joined(listed[i : i + count]) for i in range(0, len(listed), count)]
    return Dataset.from_partitions(parts, data.schema)


def _joined(parts: list[Any]) -> Partition:
    """Adjacent row groups as one partition."""
    groups = tuple(group for part in parts for group in part.row_groups)
    rows, size = sum(part.num_rows for part in parts), sum(part.num_bytes for part in parts)
    return replace(parts[0], row_groups=groups, num_rows=rows, num_bytes=size)
