"""The general road: whatever a partition reads as a frame, as arrays the loader can gather from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from penstock.core.arrow_arrays import numpy_of
from penstock.core.batch import Ragged
from penstock.core.described import described
from penstock.core.dtypes import split_list
from penstock.core.errors import DataError
from penstock.core.runtime.forks import polars_is_lost
from penstock.data.files import is_remote
from penstock.data.formats.parquet import ParquetPartition
from penstock.data.partition import FramePartition, Partition, cast_frame


@dataclass(frozen=True)
class Fill:
    """What replaces the nulls of each column; without it, or where the column cannot hold it, nulls are an error."""

    values: Mapping[str, float | int | bool] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)  # columns that cannot hold what was asked for, and why

    def of(self, column: str) -> float | None:
        return self.values.get(column)


def read_frame(partition: Partition, columns: Sequence[str]) -> pl.DataFrame:
    """The partition's rows. In a forked process polars has lost its threads and would wait for them for ever."""
    if polars_is_lost() and isinstance(partition, ParquetPartition) and not is_remote(partition.path):
        with pq.ParquetFile(partition.path) as file:
            table = file.read_row_groups(list(partition.row_groups), columns=list(columns), use_threads=False)
        table = table.slice(partition.before, partition.num_rows)
        frame = pl.DataFrame([pl.Series(n, table.column(n).combine_chunks()) for n in columns])
        return _plain(cast_frame(frame, partition.dtypes, partition.path, partition.first_row), partition.path)
    if isinstance(partition, FramePartition) and all(c in partition.frame.columns for c in columns):
        return _plain(pl.DataFrame([partition.frame.get_column(c) for c in columns]))
    return _plain(partition.read(columns), partition.path)


def _plain(frame: pl.DataFrame, file: str | None = None) -> pl.DataFrame:
    """Lists of a fixed size as lists, decimals as the numbers that their schema says."""
    columns = []
    for series in frame:
        if isinstance(series.dtype, pl.Array):
            series = series.arr.to_list()
        columns.append(described(series, where=file) if split_list(series.dtype)[0].is_decimal() else series)
    return pl.DataFrame(columns) if columns else frame


def checked_height(frame: pl.DataFrame, partition: Partition, expected: int) -> pl.DataFrame:
    """The frame, if it has as many rows as the plan was made for."""
    if frame.height != expected:
        raise DataError(
            f"{where(partition)} gives {frame.height} rows where {expected} were counted; a transform in the loader "
            f"must keep the rows (filter the data set before), and files must not change while they are read"
        )
    return frame


def dense_array(series: pl.Series, fill: Fill, partition: Partition) -> np.ndarray:
    """A column as a contiguous array, without a copy where it has no nulls and one piece."""
    if series.null_count():
        series = series.fill_null(_fill_or_raise(fill, series, partition))
    if series.dtype == pl.Boolean:
        series = series.cast(pl.UInt8)
    return _numpy(series)


def list_array(series: pl.Series, fill: Fill, partition: Partition) -> Ragged:
    """A list column as values and offsets; a missing list is an error, or empty where a fill is given."""
    if series.null_count():
        _fill_or_raise(fill, series, partition)
        series = series.fill_null([])
    arrow: Any = series.rechunk().to_arrow()
    offsets = numpy_of(arrow.offsets).astype(np.int64, copy=False)
    values = pl.Series(series.name, arrow.values)
    if values.null_count():
        values = values.fill_null(_fill_or_raise(fill, values, partition))
    return Ragged(_numpy(values), offsets)


def _numpy(series: pl.Series) -> np.ndarray:
    if series.dtype == pl.Boolean:
        series = series.cast(pl.UInt8)
    return np.ascontiguousarray(series.rechunk().to_physical().to_numpy())


def _fill_or_raise(fill: Fill, series: pl.Series, partition: Partition) -> float:
    value = fill.of(series.name)
    if value is None:
        raise null_error(fill, series.name, series.null_count(), partition)
    return value


def null_error(fill: Fill, column: str, count: int, partition: Partition) -> DataError:
    """The error for nulls that nothing can replace."""
    why = fill.refused.get(column)
    advice = "pass fill= to the loader" if why is None else f"pass another fill= to the loader: {why}"
    return DataError(f"{where(partition)}: column {column!r} has {count} nulls; fill them in the workflow, or {advice}")


def where(partition: Partition) -> str:
    """How to name a partition in an error."""
    if partition.path is None:
        return "the frame"
    groups = getattr(partition, "row_groups", None)
    return f"{partition.path} (row groups {groups[0]} to {groups[-1]})" if groups else str(partition.path)
