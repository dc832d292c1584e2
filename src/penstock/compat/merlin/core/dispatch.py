"""`merlin.core.dispatch`: what chose between cuDF and pandas; here it is pandas always."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.core.errors import ParameterError
from penstock.core.extras import require

pd = require("pandas", "pandas")

HAS_GPU = False  # frames are pandas frames; a loader finds a GPU by itself
cudf = None
cupy = None
DataFrameType = pd.DataFrame
SeriesType = pd.Series

__all__ = [
    "HAS_GPU",
    "DataFrameType",
    "SeriesType",
    "add_to_series",
    "annotate",
    "arange",
    "array",
    "columnwise_explode",
    "concat",
    "concat_columns",
    "create_merlin_dataset",
    "create_multihot_col",
    "dataframe_columnwise_explode",
    "encode_list_column",
    "flatten_list_column",
    "flatten_list_column_values",
    "generate_local_seed",
    "get_lib",
    "get_random_state",
    "hash_series",
    "hex_to_int",
    "is_cpu_object",
    "is_dataframe_object",
    "is_list_dtype",
    "is_series_object",
    "is_series_or_dataframe_object",
    "is_string_dtype",
    "list_val_dtype",
    "make_df",
    "make_series",
    "pull_apart_list",
    "random_uniform",
    "read_dispatch",
    "read_parquet_dispatch",
    "reinitialize",
    "series_has_nulls",
    "to_arrow",
    "zeros",
]


def annotate(*args: Any, **kwargs: Any) -> Callable[[Callable], Callable]:
    """A decorator that marked functions for NVIDIA's profiler; it leaves them as they are.

    >>> annotate("name", color="green")(len)([1, 2])
    2
    """
    return lambda function: function


def get_lib() -> Any:
    """The frame library: pandas."""
    return pd


def reinitialize(managed_memory: bool = False) -> None:
    """Reset RMM's memory pool; there is none."""


def make_df(_like_df: Any = None, device: Any = None) -> Any:
    """A pandas frame.

    >>> make_df({"a": [1, 2]})["a"].sum()
    np.int64(3)
    """
    return pd.DataFrame(_like_df)


def make_series(_like_ser: Any = None, device: Any = None) -> Any:
    """A pandas series."""
    return pd.Series(_like_ser)


def concat(objs: Sequence[Any], **kwargs: Any) -> Any:
    """Frames or series under one another."""
    return pd.concat(objs, **kwargs)


def concat_columns(args: Sequence[Any]) -> Any:
    """Frames side by side, row by row.

    >>> concat_columns([make_df({"a": [1]}), make_df({"b": [2]})]).columns.tolist()
    ['a', 'b']
    """
    frames = [a for a in args if len(a.columns)] or list(args[:1])  # one without columns says nothing of rows
    return frames[0] if len(frames) == 1 else pd.concat([a.reset_index(drop=True) for a in frames], axis=1)


def add_to_series(series: Any, to_add: Any, prepend: bool = True) -> Any:
    """A series with values put before or after it."""
    added = pd.Series(to_add)
    return pd.concat([added, series] if prepend else [series, added])


def is_dataframe_object(x: Any) -> bool:
    return isinstance(x, pd.DataFrame)


def is_series_object(x: Any) -> bool:
    return isinstance(x, pd.Series)


def is_series_or_dataframe_object(x: Any) -> bool:
    return isinstance(x, (pd.Series, pd.DataFrame))


def is_cpu_object(x: Any) -> bool:
    return isinstance(x, (pd.Series, pd.DataFrame))


def is_list_dtype(ser: Any) -> bool:
    """Whether a series holds lists.

    >>> is_list_dtype(make_series([[1], [2, 3]])), is_list_dtype(make_series([1]))
    (True, False)
    """
    return isinstance(ser, pd.Series) and len(ser) > 0 and pd.api.types.is_list_like(ser.iloc[0])


def is_string_dtype(dtype: Any) -> bool:
    return bool(pd.api.types.is_string_dtype(dtype))


def list_val_dtype(ser: Any) -> Any:
    """The dtype of a list column's elements (of lists in lists, of the innermost); None where it holds no lists.

    >>> list_val_dtype(make_series([[[1, 2], [3]], [[4]]]))
    dtype('int64')
    """
    if not is_list_dtype(ser):
        return None
    values = flatten_list_column_values(ser)
    if values.empty:  # nothing tells
        return None
    while is_list_dtype(values):
        values = flatten_list_column_values(values)
    return np.dtype(object) if is_string_dtype(values.dtype) else values.dtype


def series_has_nulls(s: Any) -> bool:
    return bool(s.isnull().any())


def flatten_list_column_values(s: Any) -> Any:
    """All elements of a list column end to end.

    >>> flatten_list_column_values(make_series([[1, 2], [], [3]])).tolist()
    [1, 2, 3]
    """
    return pd.Series(list(itertools.chain.from_iterable(s)))


def flatten_list_column(s: Any) -> Any:
    return pd.DataFrame({s.name: flatten_list_column_values(s)})


def pull_apart_list(original: Any, device: Any = None) -> tuple[Any, Any]:
    """A list column as values and offsets.

    >>> values, offsets = pull_apart_list(make_series([[1, 2], [3]]))
    >>> values.tolist(), offsets.tolist()
    ([1, 2, 3], [0, 2, 3])
    """
    lengths = original.map(len).to_numpy()
    return flatten_list_column_values(original), pd.Series(np.concatenate([[0], np.cumsum(lengths)]))


def encode_list_column(original: Any, encoded: Any, dtype: Any = None) -> Any:
    """Values cut into lists as long as those of another column.

    >>> [row.tolist() for row in encode_list_column(make_series([[1, 2], [3]]), [7, 8, 9])]
    [[7, 8], [9]]
    """
    ends = np.cumsum(original.map(len).to_numpy())
    lists = np.split(np.asarray(encoded, dtype=dtype), ends[:-1]) if len(ends) else []
    return pd.Series(lists, dtype=object)


def build_pandas_list_column(elements: Any, row_lengths: Any) -> Any:
    """A list column from values and how many of them each row has.

    >>> build_pandas_list_column(pd.Series([5, 6, 7]), [1, 2])[1].tolist()
    [6, 7]
    """
    return create_multihot_col(np.concatenate([[0], np.cumsum(row_lengths)]), elements)


def create_multihot_col(offsets: Any, data: Any) -> Any:
    """A list column from offsets and values."""
    return pd.Series(np.split(np.asarray(data), np.asarray(offsets)[1:-1]))


def columnwise_explode(series: Any) -> Any:
    """A column of lists as a frame with a column for each element: `x_0`, `x_1`, …"""
    frame = pd.DataFrame(series.tolist())
    frame.columns = [f"{series.name}_{number}" for number in frame.columns]
    return frame


def dataframe_columnwise_explode(frame: Any) -> Any:
    """A frame with a column for each element of its lists, which are as long in every row; these come last.

    >>> dataframe_columnwise_explode(make_df({"e": [[3, 4], [5, 6]], "id": [1, 2]}))["e_1"].tolist()
    [4, 6]
    """
    lists = [name for name in frame.columns if is_list_dtype(frame[name])]
    return concat_columns([frame.drop(columns=lists), *(columnwise_explode(frame[name]) for name in lists)])


def hash_series(ser: Any) -> np.ndarray:
    """pandas' hashes of a series, which are those of NVTabular on a CPU.

    >>> len(set(hash_series(make_series(["a", "b", "a"])).tolist()))
    2
    """
    values = flatten_list_column_values(ser) if is_list_dtype(ser) else ser
    return pd.util.hash_pandas_object(values, index=False).to_numpy()


def hex_to_int(s: Any, dtype: Any = None) -> Any:
    """Hexadecimal text as integers; missing values stay missing.

    >>> hex_to_int(make_series(["0f", None])).tolist()
    [15, <NA>]
    """
    numbers = s.map(lambda text: pd.NA if pd.isnull(text) else int(text, 16) if isinstance(text, str) else int(text))
    whole = numbers.astype("Int64")
    return whole.map(_in_32_bits, na_action="ignore").astype("Int32") if dtype is None else whole.astype(dtype)


def _in_32_bits(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def arange(size: int, like_df: Any = None, dtype: Any = None) -> np.ndarray:
    return np.arange(size, dtype=dtype)


def array(x: Any, like_df: Any = None, dtype: Any = None) -> np.ndarray:
    return np.array(x, dtype=dtype)


def zeros(size: Any, like_df: Any = None, dtype: Any = None) -> np.ndarray:
    return np.zeros(size, dtype=dtype)


def random_uniform(size: Any) -> np.ndarray:
    return np.random.default_rng().uniform(size=size)


def get_random_state() -> Any:
    """A generator of random numbers of its own, seeded by the system."""
    return np.random.RandomState()


def generate_local_seed(global_rank: int, global_size: int) -> int:
    """A seed for one rank, another at each call; nothing global is seeded."""
    return int(get_random_state().randint(0, 2**31, size=global_size)[global_rank])


def read_dispatch(df: Any = None, cpu: Any = None, collection: bool = False, fmt: str = "parquet") -> Callable:
    """pandas' reader of a format."""
    if fmt not in ("parquet", "csv"):
        raise ParameterError(f"fmt must be 'parquet' or 'csv', got {fmt!r}")
    library = require("dask.dataframe", "dask") if collection else pd
    return getattr(library, f"read_{fmt}")


def read_parquet_dispatch(df: Any) -> Callable:
    return read_dispatch(df)


def to_arrow(x: Any) -> Any:
    import pyarrow as pa

    return pa.Table.from_pandas(x, preserve_index=False)


def create_merlin_dataset(df: Any) -> Any:
    """A Dataset of a frame."""
    from penstock.compat.merlin.io.dataset import Dataset

    return df if isinstance(df, Dataset) else Dataset(df)
