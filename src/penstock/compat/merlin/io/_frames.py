"""Frames of a data set: as pandas, one by one, and in which order they are written."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.compat.other_libraries import text_is_objects
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

_JOINS = {"inner": "inner", "left": "left", "right": "left", "outer": "full", "full": "full"}


def merged(left: Dataset, right: Dataset, engine: Any, arguments: Mapping[str, Any]) -> Dataset:
    """The rows of both where the keys are equal; `on`, `left_on`, `right_on`, `how` and `suffixes` as in pandas."""
    said = dict(arguments)
    how = said.pop("how", "inner")
    if how not in _JOINS:
        raise ParameterError(f"how must be one of {', '.join(_JOINS)}, got {how!r}")
    on = said.pop("on", None)
    if on is None and "left_on" not in said:  # the columns of one name
        on = [name for name in left.schema.names if name in right.schema] or None
    left_on, right_on = said.pop("left_on", on), said.pop("right_on", on)
    suffixes = said.pop("suffixes", ("_x", "_y"))
    if said or left_on is None or right_on is None:
        raise ParameterError(f"merge takes on (or left_on and right_on), how and suffixes, got {sorted(said)}")
    keys, theirs = ([k] if isinstance(k, str) else list(k) for k in (left_on, right_on))
    pairs = list(zip(keys, theirs, strict=True))
    shared = [key for key, other in pairs if key == other]
    # Keys that are named otherwise there: both stay, and the rows are joined by copies.
    copies = {f"{key} = {other}": (key, other) for key, other in pairs if key != other}
    both = [n for n in left.schema.names if n in right.schema and n not in shared]
    mine = _renamed(left, {n: f"{n}{suffixes[0]}" for n in both}, {c: pair[0] for c, pair in copies.items()})
    other = _renamed(right, {n: f"{n}{suffixes[1]}" for n in both}, {c: pair[1] for c, pair in copies.items()})
    own = [n for n in right.schema.names if n not in shared]
    columns = [f"{n}{suffixes[0]}" if n in both else n for n in left.schema.names]
    columns += [f"{n}{suffixes[1]}" if n in both else n for n in own]
    on = [*shared, *copies]
    if how == "right":  # the left join of the right side, in the order of columns that pandas gives
        return other.merge(mine, on, "left", engine=engine).select(columns)
    return mine.merge(other, on, _JOINS[how], engine=engine).select(columns)


class _Renames:
    def __init__(self, names: Mapping[str, str], copies: Mapping[str, str]) -> None:
        self.names, self.copies = dict(names), dict(copies)

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        copies = [frame[name].alias(copy) for copy, name in self.copies.items()]
        return frame.rename(self.names, strict=False).with_columns(copies)


def _renamed(data: Dataset, names: Mapping[str, str], copies: Mapping[str, str]) -> Dataset:
    changed = {old: new for old, new in names.items() if old != new}
    if not changed and not copies:
        return data
    columns = [c.with_(name=changed.get(c.name, c.name)) for c in data.schema]
    columns += [data.schema[name].with_(name=copy) for copy, name in copies.items()]
    return data.map(_Renames(changed, copies), type(data.schema)(columns))


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
        read, parts = _ReadPandas(tuple(names)), numbered(self.data.partitions)
        for _ in range(self.epochs):
            for index in self.indices:
                yield read(parts[index])


def as_pandas(frame: Any, objects: bool | None = None) -> Any:
    """A frame, a series or an Arrow table as pandas', with text as this process's pandas has it (or as told).

    Arrow, which does the work, asks pandas for its release only, and not for the setting.

    >>> as_pandas(pl.DataFrame({"a": ["x", None]}), objects=True)["a"].tolist()
    ['x', None]
    """
    if isinstance(frame, pa.Table):
        frame = pl.DataFrame(pl.from_arrow(frame))
    pd, made = require("pandas", "pandas"), frame.to_pandas()
    if not (text_is_objects(pd) if objects is None else objects):
        return made
    if isinstance(frame, pl.Series):
        return pd.Series(frame.to_numpy(), name=frame.name, dtype=object) if frame.dtype == pl.String else made
    text = {name: frame[name].to_numpy() for name, dtype in frame.schema.items() if dtype == pl.String}
    return made.assign(**{name: pd.Series(values, dtype=object) for name, values in text.items()}) if text else made


class _ReadPandas:
    """Reads a partition as pandas, with an index that begins at the number of its first row."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.objects = text_is_objects(require("pandas", "pandas"))  # said here: a worker's pandas has not been told

    def __call__(self, part: tuple[Partition, int]) -> Any:
        frame = as_pandas(part[0].read(self.columns), self.objects)
        frame.index += part[1]
        return frame


def numbered(parts: Sequence[Partition]) -> list[tuple[Partition, int]]:
    """Partitions and the numbers of their first rows: those of a frame count on, those of files begin at 0 each."""
    counts = [part.num_rows if part.path is None else None for part in parts]
    if any(count is None for count in counts):
        return [(part, 0) for part in parts]
    return list(zip(parts, np.cumsum([0, *counts]).tolist(), strict=False))


def dask_frame(parts: Sequence[Partition], schema: Schema) -> Any:
    """A Dask frame of pandas partitions with the columns of a schema."""
    frames = require("dask.dataframe", "dask")
    meta = as_pandas(pl.DataFrame(schema=schema.polars_schema))
    read = _ReadPandas(tuple(schema.names))
    with require("dask", "dask").config.set({"dataframe.convert-string": False}):  # lists are no strings
        return frames.from_map(read, numbered(parts), meta=meta, enforce_metadata=False, label="read_pandas")


def last_rows(data: Dataset, count: int) -> Any:
    """The last rows, as a pandas frame."""
    frames: list[pl.DataFrame] = []
    missing = count
    for part in reversed(data.partitions):
        frames.insert(0, part.read(data.schema.names).tail(missing))
        missing -= frames[0].height
        if missing <= 0:
            break
    return as_pandas(pl.concat(frames))


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
    cache: str | None = "disk",
    cats_only: bool = False,
    reader: Callable[..., Any] | None = None,
    columns: Any = None,
    **kwargs: Any,
) -> Any:
    """The table of a parquet file as a pandas frame; kept in `table_cache` unless `cache` is `"disk"` or None.

    With `cats_only` the index, which holds the codes of categories, becomes the column `labels`.
    """
    check("cache", cache or "disk", OneOf(("disk", "host", "device")))
    kept = table_cache.get(path)
    if kept is None:
        read = reader or require("pandas", "pandas").read_parquet
        table = read(path, columns=columns, **kwargs)
        if cache not in ("disk", None):
            table_cache[path] = table.copy(deep=False)
    else:
        table = kept.copy(deep=False) if hasattr(kept, "iloc") else as_pandas(kept)  # frames, or Arrow's tables
    if cats_only:
        table.index.name = "labels"
        table = table.reset_index(drop=False)
    return table
