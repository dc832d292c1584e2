"""Frames of a data set: one by one, and in which order they are written."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from penstock.core.errors import ParameterError
from penstock.core.extras import require
from penstock.core.schema import Schema
from penstock.data.dataset import Dataset
from penstock.data.partition import Partition


class Shuffle(enum.Enum):
    """`PER_PARTITION` permutes the rows inside each partition; `PER_WORKER` and `FULL` all rows.

    >>> Shuffle.PER_PARTITION.name
    'PER_PARTITION'
    """

    PER_PARTITION = 0
    PER_WORKER = 1
    FULL = 2


def native_shuffle(shuffle: Any) -> str | None:
    """Penstock's word for a shuffle.

    >>> native_shuffle(Shuffle.PER_WORKER), native_shuffle(None), native_shuffle(Shuffle.PER_PARTITION)
    ('full', None, 'partition')
    """
    if shuffle is None or shuffle is False:
        return None
    if shuffle is Shuffle.PER_PARTITION:
        return "partition"
    if shuffle in (True, Shuffle.PER_WORKER, Shuffle.FULL):
        return "full"
    raise ParameterError(f"shuffle must be a Shuffle, True, False or None, got {shuffle!r}")


def shuffle_df(df: Any, size: int | None = None, keep_index: bool = False) -> Any:
    """A pandas frame with its rows in random order.

    >>> import pandas as pd
    >>> sorted(shuffle_df(pd.DataFrame({"a": [1, 2, 3]}))["a"])
    [1, 2, 3]
    """
    shuffled = df.sample(n=size or len(df), replace=False)
    return shuffled if keep_index else shuffled.reset_index(drop=True)


class DataFrameIter:
    """What `Dataset.to_iter` gives; its length is the number of rows.

    >>> from penstock.compat.merlin.io import Dataset
    >>> rows = Dataset({"x": [1, 2, 3]}, npartitions=2).to_iter()
    >>> len(rows), [len(frame) for frame in rows]
    (3, [1, 2])
    """

    def __init__(
        self,
        data: Any,
        columns: Sequence[str] | None = None,
        indices: Sequence[int] | None = None,
        partition_lens: Any = None,
        epochs: int = 1,
    ) -> None:
        self.data = getattr(data, "native", data)
        self.columns = None if columns is None else list(columns)
        self.indices = list(indices) if indices is not None else list(range(self.data.num_partitions))
        self.epochs = epochs

    def __len__(self) -> int:
        counts = self.data._row_counts()
        return self.epochs * sum(counts[i] for i in self.indices)

    def __iter__(self) -> Iterator[Any]:
        names = self.columns or self.data.schema.names
        for _ in range(self.epochs):
            for index in self.indices:
                yield self.data.partitions[index].read(names).to_pandas()


class _ReadPandas:
    """Reads a partition for Dask."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns

    def __call__(self, part: Partition) -> Any:
        return part.read(self.columns).to_pandas()


def dask_frame(parts: Sequence[Partition], schema: Schema) -> Any:
    """A Dask frame of pandas partitions with the columns of a schema."""
    frames = require("dask.dataframe", "dask")
    meta = pl.DataFrame(schema=schema.polars_schema).to_pandas()
    read = _ReadPandas(tuple(schema.names))
    with require("dask", "dask").config.set({"dataframe.convert-string": False}):  # lists are no strings
        return frames.from_map(read, parts, meta=meta, enforce_metadata=False, label="read_pandas")


def last_rows(data: Dataset, count: int) -> Any:
    """The last rows, as a pandas frame."""
    frames: list[pl.DataFrame] = []
    missing = count
    for part in reversed(data.partitions):
        frames.insert(0, part.read(data.schema.names).tail(missing))
        missing -= frames[0].height
        if missing <= 0:
            break
    return pl.concat(frames).to_pandas()
