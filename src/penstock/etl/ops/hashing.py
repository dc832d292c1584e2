"""Categories by hash: no vocabulary to learn, ship or outgrow."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from penstock.core.errors import ColumnNotFoundError, SchemaError
from penstock.core.params import Int, Satisfies
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.core.times import series_of
from penstock.data.keys import stable_hashes
from penstock.etl.operator import Columns, Operator
from penstock.etl.ops.elementwise import Elementwise

_BUCKETS = Int(min=1, max=2**31 - 1)
NULL_HASH = 0x9E3779B97F4A7C15  # what `stable_hashes` gives a missing value


class HashBucket(Elementwise):
    """The bucket that a value's hash falls in, in `[0, num_buckets)`, as int32.

    Hashes are the same on every machine and release, and for every width of integer. Missing values hash as a value
    of their own; lists are hashed element by element.

    Args:
        num_buckets: an int, or `{column: int}`.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"city": ["Rome", "Oslo", "Rome"]})
    >>> Workflow(["city"] >> HashBucket(100)).transform(frame)["city"].to_list()
    [0, 8, 0]
    """

    constraints = {
        "num_buckets": Satisfies(
            lambda n: all(_BUCKETS.accepts(v) for v in n.values()) if isinstance(n, Mapping) else _BUCKETS.accepts(n),
            f"{_BUCKETS.describe()}, or {{column: value}} of such",
        )
    }

    def __init__(self, num_buckets: int | Mapping[str, int]) -> None:
        self.num_buckets = num_buckets

    def _size(self, name: str) -> int:
        if not isinstance(self.num_buckets, Mapping):
            return self.num_buckets
        if name not in self.num_buckets:
            raise ColumnNotFoundError(name, self.num_buckets, "HashBucket.num_buckets")
        return self.num_buckets[name]

    def apply(self, series: pl.Series, name: str) -> pl.Series:
        return pl.Series(name, (hashes(series) % np.uint64(self._size(name))).astype(np.int32))

    def apply_one(self, value: Any, name: str) -> int:
        return hash_one(value) % self._size(name)

    def apply_null(self, name: str) -> int:
        return NULL_HASH % self._size(name)

    def mapped(self, series: pl.Series, name: str) -> pl.Series:
        out = super().mapped(series, name)
        return out.fill_null([]) if isinstance(out.dtype, pl.List) else out

    def output_column(self, column: ColumnSchema) -> ColumnSchema:
        return _hashed(column, column.name, self._size(column.name))


class HashId(Elementwise):
    """An id for every value without a vocabulary: 63 bits of its hash, as int64, for tables that take any id.

    Nothing is learned from the data and values that come later have ids of their own, where `HashBucket` has them share
    one. Hashes are those of `HashBucket`; missing values hash as a value of their own, lists element by element. Two of
    a billion values get the same id with a probability of 5 %.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"city": ["Rome", None, "Rome"]})
    >>> Workflow(["city"] >> HashId()).transform(frame)["city"].to_list()
    [8841694659976129950, 5700357409661599242, 8841694659976129950]
    """

    def apply(self, series: pl.Series, name: str) -> pl.Series:
        return pl.Series(name, (hashes(series) >> np.uint64(1)).astype(np.int64))

    def apply_one(self, value: str | bytes | float, name: str) -> int:
        return hash_one(value) >> 1

    def apply_null(self, name: str) -> int:
        return NULL_HASH >> 1

    def mapped(self, series: pl.Series, name: str) -> pl.Series:
        out = super().mapped(series, name)
        return out.fill_null([]) if isinstance(out.dtype, pl.List) else out

    def output_column(self, column: ColumnSchema) -> ColumnSchema:
        own = {"ids": "hashed"}  # by which ids are told from the raw values, which may be integers as well
        return ColumnSchema(column.name, "int64", Role.CATEGORICAL, column.is_list, False, None, column.tags, own)


class HashedCross(Operator):
    """The hash of several columns together: `[["a", "b"]] >> HashedCross(1000)` gives `a_X_b` in `[0, 1000)`, int32.

    Args:
        num_buckets: an int, or `{"a_X_b": int}`.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"a": [1, 1, 2], "b": ["x", "x", "x"]})
    >>> crossed = Workflow([["a", "b"]] >> HashedCross(1000)).transform(frame)["a_X_b"]
    >>> crossed.n_unique()
    2
    """

    constraints = HashBucket.constraints

    def __init__(self, num_buckets: int | Mapping[str, int]) -> None:
        self.num_buckets = num_buckets

    def _crosses(self, columns: Columns) -> list[tuple[str, tuple[str, ...], int]]:
        """`(output, inputs, buckets)`; plain names without groups are one cross."""
        groups = [g for g in columns.groups if len(g) > 1] or [columns.names]
        out = []
        for group in groups:
            name = "_X_".join(group)
            size = self.num_buckets
            if isinstance(size, Mapping):
                if name not in size:
                    raise ColumnNotFoundError(name, size, "HashedCross.num_buckets")
                size = size[name]
            out.append((name, group, size))
        return out

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        from penstock.kernels.cpu_hash import combine_hashes

        out = []
        for name, group, size in self._crosses(columns):
            crossed = combine_hashes(*(hashes(frame[n]) for n in group))
            out.append(pl.Series(name, (crossed % np.uint64(size)).astype(np.int32)))
        return pl.DataFrame(out)

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        for name in columns.names:
            if inputs[name].is_list:
                raise SchemaError(f"HashedCross crosses single values; column {name!r} holds lists")
        crosses = self._crosses(columns)
        return Schema(_hashed(inputs[group[0]].with_(tags=()), name, size) for name, group, size in crosses)


def _hashed(column: ColumnSchema, name: str, size: int) -> ColumnSchema:
    return ColumnSchema(name, "int32", Role.CATEGORICAL, column.is_list, False, size, column.tags)


def hashes(series: pl.Series) -> np.ndarray:
    """Stable hashes of a column; an integer's does not depend on its width, a time's not on its unit."""
    if series.dtype.is_integer() and series.dtype != pl.UInt64:
        series = series.cast(pl.Int64)
    elif isinstance(series.dtype, pl.Datetime):
        series = series.dt.cast_time_unit("us")
    return stable_hashes(series)


def hash_one(value: Any) -> int:
    """`hashes` for one value that is not None."""
    from penstock.kernels.cpu_hash import hash64_one

    if isinstance(value, str):
        return hash64_one(value.encode())
    if isinstance(value, (bool, int)):
        return hash64_one(int(value) & 0xFFFFFFFFFFFFFFFF)
    if isinstance(value, float):
        if value != value:
            return NULL_HASH
        return hash64_one(int.from_bytes(struct.pack("<d", value + 0.0), "little"))
    return int(hashes(series_of([value]))[0])
