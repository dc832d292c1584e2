"""The rest of `merlin.core.dispatch`: what kind of data something is, and data between hosts, frames and files."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.compat.merlin.io._frames import as_pandas
from penstock.core.errors import DataError
from penstock.core.extras import require

pd = require("pandas", "pandas")
_SUFFIXES = {"pq": "PARQUET", "parquet": "PARQUET", "csv": "CSV"}


class ExtData(enum.Enum):
    """Kinds of data that a program may bring.

    >>> ExtData.PANDAS.name
    'PANDAS'
    """

    DATASET = 0
    ARROW = 1
    CUDF = 2
    PANDAS = 3
    DASK_CUDF = 4
    DASK_PANDAS = 5
    PARQUET = 6
    CSV = 7


def detect_format(data: Any) -> ExtData:
    """What kind of data something is, files by their suffix.

    >>> detect_format(pd.DataFrame({"a": [1]})), detect_format(["a.parquet"])
    (<ExtData.PANDAS: 3>, <ExtData.PARQUET: 6>)
    """
    from penstock.compat.merlin.io.dataset import Dataset

    if isinstance(data, Dataset):
        return ExtData.DATASET
    if hasattr(data, "to_delayed"):
        return ExtData.DASK_PANDAS
    if isinstance(data, pd.DataFrame):
        return ExtData.PANDAS
    if isinstance(data, pa.Table):
        return ExtData.ARROW
    first = data[0] if isinstance(data, list) and data else data
    kind = _SUFFIXES.get(str(first).rsplit(".", 1)[-1])
    if kind is None:
        raise DataError(f"{first!r} is no data of a known kind: give a Dataset, a frame, an Arrow table or files")
    return ExtData[kind]


def convert_data(x: Any, cpu: bool = True, to_collection: bool | None = None, npartitions: int = 1) -> Any:
    """A frame as pandas, or with `to_collection` as a Dask frame of pandas partitions."""
    frames = require("dask.dataframe", "dask")
    if hasattr(x, "to_delayed"):
        return x
    frame = as_pandas(x) if isinstance(x, pa.Table) else pd.DataFrame(x)
    return frames.from_pandas(frame, npartitions=npartitions, sort=False) if to_collection else frame


def df_from_dict(col_dict: Any) -> Any:
    """A frame of columns by name; lists come as `x__values` and `x__offsets`, or as pairs of these.

    >>> df_from_dict({"a": np.array([1, 2]), "b": (np.array([3, 4, 5]), np.array([0, 1, 3]))})["b"].map(len).tolist()
    [1, 2]
    """
    from penstock.compat.merlin.table import TensorTable

    return TensorTable(col_dict).to_df()


def dict_from_df(df: Any) -> dict[str, Any]:
    """Arrays by name; a column of lists as `x__values` and `x__offsets`.

    >>> dict_from_df(pd.DataFrame({"a": [[1], [2, 3]]}))
    {'a__values': array([1, 2, 3]), 'a__offsets': array([0, 1, 3])}
    """
    from penstock.compat.merlin.table import TensorTable

    return TensorTable.from_df(df).to_dict()


def to_host(x: Any) -> Any:
    """Data is in host memory."""
    return x


from_host = to_host


def nullable_series(data: Any, like_df: Any, dtype: Any) -> Any:
    """A series whose integers may be missing.

    >>> str(nullable_series([1, None], None, "int64").dtype)
    'Int64'
    """
    named = {"int32": "Int32", "int64": "Int64"}.get(str(np.dtype(dtype)), dtype)
    return pd.Series(data, dtype=named)


def random_state(seed: Any, like_df: Any = None) -> Any:
    """A generator of random numbers with a seed."""
    return np.random.RandomState(seed)


def coo_matrix(data: Any, row: Any, col: Any) -> Any:
    """A sparse matrix from values and their places."""
    return require("scipy.sparse", "scipy").coo_matrix((data, (row, col)))


def read_parquet_metadata(path: Any) -> tuple[int, int, list[str]]:
    """Rows, row groups and columns of a parquet file."""
    found = pq.read_metadata(path)
    return found.num_rows, found.num_row_groups, list(pq.read_schema(path).names)


def parquet_writer_dispatch(df: Any, path: Any = None, **kwargs: Any) -> Any:
    """Arrow's writer; with a path, one that is open and whose `write_table` takes pandas frames."""
    if path is None:
        return pq.ParquetWriter
    return _FrameWriter(path, pa.Table.from_pandas(df, preserve_index=False).schema, **kwargs)


class _FrameWriter(pq.ParquetWriter):
    def write_table(self, table: Any, *args: Any, **kwargs: Any) -> None:
        given = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)
        super().write_table(given, *args, **kwargs)
