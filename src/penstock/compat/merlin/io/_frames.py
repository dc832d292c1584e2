"""Frames of a data set: one by one, and in which order they are written."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from penstock.core.array_files import load_array
from penstock.core.artefact import replacing
from penstock.core.errors import DataError, ParameterError, SchemaError
from penstock.core.extras import require
from penstock.core.params import OneOf, check
from penstock.core.schema import Schema
from penstock.data.dataset import Dataset
from penstock.data.partition import Partition

# `Dataset.to_npy`: all rows as one array.


def write_array(data: Dataset, output_file: Any, append: bool) -> None:
    """Write a `.npy` file with a column for each column of the data, and for each element of its lists."""
    pieces = [np.hstack([_block(series) for series in frame]) for frame in data.iter_frames()]
    if append and Path(output_file).exists():
        pieces.insert(0, load_array(output_file))
    with replacing(output_file) as partial, partial.open("wb") as file:
        np.save(file, np.vstack(pieces))


def _block(series: pl.Series) -> np.ndarray:
    if series.null_count():
        raise DataError(
            f"Cannot convert data because null values were detected: column {series.name!r} has {series.null_count()}; "
            f"fill them first (FillMissing)"
        )
    if isinstance(series.dtype, pl.List):
        lengths = set(series.list.len().to_list())
        if len(lengths) > 1:
            raise SchemaError(f"column {series.name!r} holds lists of different lengths; an array needs them equal")
        return np.vstack(series.to_list()) if series.len() else np.empty((0, 0))
    return series.to_numpy().reshape(-1, 1)


# `Dataset.merge`: two data sets joined on keys, with the arguments of pandas.

_JOINS = {"inner": "inner", "left": "left", "outer": "full", "full": "full"}


def merged(left: Dataset, right: Dataset, engine: Any, arguments: Mapping[str, Any]) -> Dataset:
    """The rows of both where the keys are equal; `on`, `left_on`, `right_on`, `how` and `suffixes` as in pandas."""
    said = dict(arguments)
    how = said.pop("how", "inner")
    if how not in _JOINS:
        raise ParameterError(f"how must be one of {', '.join(_JOINS)}, got {how!r}")
    on = said.pop("on", None)
    left_on, right_on = said.pop("left_on", on), said.pop("right_on", on)
    suffixes = said.pop("suffixes", ("_x", "_y"))
    if said or left_on is None or right_on is None:
        raise ParameterError(f"merge takes on (or left_on and right_on), how and suffixes, got {sorted(said)}")
    keys, theirs = ([k] if isinstance(k, str) else list(k) for k in (left_on, right_on))
    both = [n for n in left.schema.names if n in right.schema and n not in keys]
    mine = _renamed(left, {n: f"{n}{suffixes[0]}" for n in both})
    names = {n: f"{n}{suffixes[1]}" for n in both} | dict(zip(theirs, keys, strict=True))
    return mine.merge(_renamed(right, names), keys, _JOINS[how], engine=engine)


class _Renames:
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = dict(names)

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.rename(self.names, strict=False)


def _renamed(data: Dataset, names: Mapping[str, str]) -> Dataset:
    changed = {old: new for old, new in names.items() if old != new}
    if not changed:
        return data
    columns = [c.with_(name=changed.get(c.name, c.name)) for c in data.schema]
    return data.map(_Renames(changed), type(data.schema)(columns))


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


# `merlin.io.worker`: tables that a process keeps between tasks.

_lock = threading.RLock()
_caches: dict[str, dict[Any, Any]] = {}


@contextmanager
def get_worker_cache(name: str) -> Iterator[dict[Any, Any]]:
    """A dict of this process under a name; nobody else changes it meanwhile.

    >>> with get_worker_cache("tables") as cache:
    ...     cache["a"] = 1
    >>> with get_worker_cache("tables") as cache:
    ...     cache
    {'a': 1}
    >>> clean_worker_cache("tables")
    """
    with _lock:
        yield _caches.setdefault(name, {})


def clean_worker_cache(name: str | None = None) -> None:
    """Let go of what is kept under a name, or of everything."""
    with _lock:
        for known in list(_caches) if name is None else [name]:
            _caches.pop(known, None)


def fetch_table_data(
    table_cache: dict[Any, Any],
    path: str,
    cache: str = "disk",
    cats_only: bool = False,
    reader: Callable[..., Any] | None = None,
    columns: Any = None,
    **kwargs: Any,
) -> Any:
    """The table of a parquet file as a pandas frame; kept in `table_cache` unless `cache` is `"disk"`.

    With `cats_only` the index, which holds the codes of categories, becomes the column `labels`.
    """
    check("cache", cache, OneOf(("disk", "host", "device")))
    kept = table_cache.get(path)
    if kept is None:
        read = reader or require("pandas", "pandas").read_parquet
        table = read(path, columns=columns, **kwargs)
        if cache != "disk":
            table_cache[path] = table.copy(deep=False)
    else:
        table = kept.copy(deep=False) if hasattr(kept, "iloc") else kept.to_pandas()  # frames, or Arrow's tables
    if cats_only:
        table.index.name = "labels"
        table = table.reset_index(drop=False)
    return table
