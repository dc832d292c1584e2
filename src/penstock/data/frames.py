"""From frames in memory to partitions and a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import pyarrow as pa

from penstock.core.dtypes import without_half
from penstock.core.errors import DataError, ParameterError
from penstock.core.schema import Schema
from penstock.data.formats.base import agree, settled
from penstock.data.part_size import part_size_for
from penstock.data.partition import FramePartition, Partition, cast_frame, named
from penstock.data.sources import Frame


def open_frame(
    source: Frame, part_size: int | None, dtypes: Mapping[str, Any] | None = None
) -> tuple[list[Partition], Schema]:
    """Partitions of a frame in memory: polars, pandas, Arrow, or a mapping of arrays."""
    frame = to_polars(source)
    frame = cast_frame(frame, {n: without_half(d) for n, d in frame.schema.items()}, "the frame")
    if dtypes:
        frame = cast_frame(frame, agree(None, dict(frame.schema), "the frame", "the frame", dtypes), "the frame")
    readable, schema = settled(frame.schema, "the frame")
    frame = frame.select(named(list(readable))) if schema.unread else frame
    rows = max(1, frame.height)
    num_bytes = max(1, int(frame.estimated_size()))
    step = max(1, min(rows, int(rows * (part_size or part_size_for(num_bytes)) / num_bytes)))
    parts = [FramePartition(frame.slice(at, step)) for at in range(0, rows, step)]
    return list(parts), schema


def to_polars(source: Frame) -> pl.DataFrame:
    """A polars frame from a polars, pandas or Arrow one, or from a mapping of arrays."""
    if isinstance(source, pl.DataFrame):
        return source
    if isinstance(source, pl.LazyFrame):
        return source.collect()
    if isinstance(source, (pa.Table, pa.RecordBatch)):
        return pl.DataFrame(pl.from_arrow(source))
    if isinstance(source, Mapping):
        return pl.DataFrame(dict(source))
    if type(source).__module__.split(".")[0] == "pandas" and hasattr(source, "columns"):
        return _from_pandas(source)
    raise ParameterError(
        f"cannot read data from {type(source).__name__}; give paths, a polars, pandas or Arrow frame, or a dict"
    )


def _from_pandas(source: Any) -> pl.DataFrame:
    try:
        return pl.from_pandas(source)
    except (pa.ArrowException, TypeError) as error:
        for place, name in enumerate(source.columns):
            _check_one_dtype(source.iloc[:, [place]], name)
        raise DataError(f"the pandas frame cannot be read: {error}") from error


def _check_one_dtype(column: Any, name: Any) -> None:
    """Raise a DataError that says what a column holds, unless its values are of one dtype."""
    try:
        pl.from_pandas(column)
    except (pa.ArrowException, TypeError) as error:
        kinds = sorted({type(value).__name__ for value in column.iloc[:, 0].dropna()})
        raise DataError(
            f"column {name!r} of the pandas frame has no single dtype, it holds {' and '.join(kinds)} ({error}); make "
            f"its values of one kind first, as astype(str) does"
        ) from error


def like(frame: pl.DataFrame, original: Any) -> Any:
    """`frame` as the kind of frame that `original` is."""
    if isinstance(original, (pl.DataFrame, pl.LazyFrame)):
        return frame
    kind = type(original).__module__.split(".")[0]
    if kind == "pandas":
        pandas = frame.to_pandas()
        if len(pandas) == len(original):
            pandas.index = original.index
        return pandas
    if kind == "pyarrow":
        return frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    return frame
